"""The pages that cross floors, each registered where it stands."""

from config.console import audit, clients, jobs, people

__all__ = ["audit", "clients", "jobs", "people"]
