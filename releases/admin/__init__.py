"""The operators' pages about releases of the shell and of micro apps."""

from releases.admin import micro_apps, shell

__all__ = ["micro_apps", "shell"]
