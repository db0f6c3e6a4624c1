"""The pages that cross floors, each registered where it stands."""

from config.console import audit, calls, clients, jobs, micro_apps, people

__all__ = ["audit", "calls", "clients", "jobs", "micro_apps", "people"]
