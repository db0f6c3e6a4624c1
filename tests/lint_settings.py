"""The settings of the service with the migration linter beside it, which only checks need."""

from config.settings import *  # noqa: F403
from config.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "django_migration_linter"]

# PostgreSQL widens a varchar without writing its table again; the linter knows no type of a column that may change.
MIGRATION_LINTER_OPTIONS = {"ignore_name": ["0016_members_by_name"]}
