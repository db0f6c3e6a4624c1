"""The pages that cross apps; each module registers its pages."""

from config.console import client_page, jobs, person_page

__all__ = ["client_page", "jobs", "person_page"]
