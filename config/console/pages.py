"""The pages that know more than one app; each module registers its own."""

from config.console import client_page, jobs, person_page

__all__ = ["client_page", "jobs", "person_page"]
