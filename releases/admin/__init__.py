"""The operators' pages about releases of the shell and of micro apps."""

from releases.admin import levers, micro_apps, shell

__all__ = ["levers", "micro_apps", "shell"]
