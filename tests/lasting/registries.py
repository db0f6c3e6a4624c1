"""Names that a registry of Django, of the queue or of a library knows."""

import re
from collections.abc import Iterator
from inspect import signature
from typing import Any

from django.apps import apps
from django.conf import settings
from django.contrib.auth import (
    BACKEND_SESSION_KEY,
    HASH_SESSION_KEY,
    SESSION_KEY,
    get_permission_codename,
)
from django.contrib.auth.backends import BaseBackend
from django.contrib.auth.hashers import get_hashers
from django.core.management import BaseCommand, get_commands, load_command_class
from django.core.management.base import CommandParser
from django.db.migrations.loader import MigrationLoader
from django.db.models import BinaryField, Model
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils.module_loading import import_string
from django_otp import DEVICE_ID_SESSION_KEY
from django_otp.models import Device
from procrastinate.contrib.django import app as queue

from config.platform.encryption import Sealed
from tests.lasting.reading import OURS, Part
from tests.tools.folders import ROOT

# The groups of an expression, in the form of their names.
_CAPTURED = re.compile(r"\(\?P(<\w+>)[^()]*\)(?:\\Z)?")


def app_labels() -> Iterator[str]:
    yield from (each.label for each in apps.get_app_configs())


def content_types() -> Iterator[Part]:
    """Models, each with its permissions."""
    for model in apps.get_models():
        opts = model._meta
        yield from ((opts.label_lower, codename) for codename, _ in opts.permissions)
        for act in opts.default_permissions:
            yield opts.label_lower, get_permission_codename(act, opts)


def choices() -> Iterator[Part]:
    """Columns of ours, each with the values that it may hold."""
    for model in apps.get_models(include_auto_created=True):
        for field in model._meta.local_fields:
            if model._meta.app_label in OURS and field.choices:
                for value, _ in field.flatchoices:
                    yield f"{model._meta.db_table}.{field.column}", str(value)


def sealed_columns() -> Iterator[Part]:
    """Encrypted columns, each with the fields of its row that a value is bound to beside the column."""
    for model in Sealed.__subclasses__():
        assert issubclass(model, Model)
        for field in model._meta.local_fields:
            if isinstance(field, BinaryField):
                for bound in model.bound_to:
                    yield f"{model._meta.db_table}.{field.column}", bound


def migrations() -> Iterator[str]:
    """The migrations on disk and those that they replace."""
    for (label, name), each in MigrationLoader(None).disk_migrations.items():
        if label in OURS:
            yield f"{label}.{name}"
            yield from (".".join(replaced) for replaced in each.replaces)


def addresses() -> Iterator[Part]:
    """Addresses of the service, each with its names."""
    yield from _addresses(get_resolver(), "", "/")


def _addresses(resolver: URLResolver, namespace: str, before: str) -> Iterator[Part]:
    for each in resolver.url_patterns:
        path = before + _CAPTURED.sub(r"\1", str(each.pattern)).strip("^$")
        if isinstance(each, URLPattern):
            yield path, f"{namespace}{each.name}" if each.name else ""
        else:
            inside = f"{namespace}{each.namespace}:" if each.namespace else namespace
            yield from _addresses(each, inside, path)


def commands() -> Iterator[Part]:
    """The commands of this project, each with its options."""
    common = _options(BaseCommand())
    for name, label in get_commands().items():
        if isinstance(label, str) and label.rpartition(".")[2] in OURS:
            yield name, ""
            options = _options(load_command_class(label, name)) - common
            yield from ((name, option) for option in options)


def _options(command: BaseCommand) -> set[str]:
    parser: CommandParser = command.create_parser("manage.py", "")
    return set(re.findall(r"(?<![\w-])--[\w-]+", parser.format_usage()))


def sessions() -> Iterator[str]:
    """The session keys of Django and django-otp."""
    yield from (SESSION_KEY, BACKEND_SESSION_KEY, HASH_SESSION_KEY, DEVICE_ID_SESSION_KEY)


def session_values() -> Iterator[str]:
    """The backends that sign in, and the devices that prove: a session names those of its operator."""
    for path in settings.AUTHENTICATION_BACKENDS:
        if import_string(path).authenticate is not BaseBackend.authenticate:
            yield path
    yield from (each.model_label() for each in apps.get_models() if issubclass(each, Device))


def session_salts() -> Iterator[str]:
    """The salts of sessions and of the cookie of messages."""
    yield import_string(f"{settings.SESSION_ENGINE}.SessionStore")().key_salt
    yield import_string(settings.MESSAGE_STORAGE).key_salt


def cookies() -> Iterator[str]:
    session = settings.SESSION_COOKIE_NAME
    yield from (session, settings.CSRF_COOKIE_NAME)
    yield session.replace("sessionid", "messages")


def hashers() -> Iterator[str]:
    yield from (each.algorithm for each in get_hashers())


def entry_points() -> Iterator[str]:
    """The modules that images, supervisors and scripts start."""
    yield settings.WSGI_APPLICATION
    for path in (ROOT / "Dockerfile", *(ROOT / "docs" / "examples").rglob("*")):
        if path.is_file() and path.parent.name != "__pycache__":
            yield from re.findall(r"\bconfig\.(?:wsgi|gunicorn|settings)\b", path.read_text())


def tasks() -> Iterator[Any]:
    """The queue's tasks but those of its library."""
    queue.perform_import_paths()
    yield from (each for each in queue.tasks.values() if not each.name.startswith("builtin:"))


def arguments() -> Iterator[Part]:
    """Tasks, each with its arguments, which jobs have by name."""
    for task in tasks():
        yield task.name, ""
        for name in signature(task.func).parameters:
            yield task.name, name if name != "context" else ""


def locks_of_tasks() -> Iterator[str]:
    for task in tasks():
        yield from filter(None, (task.lock, task.queueing_lock))


def periodic_tasks() -> Iterator[str]:
    """By the key of the rows that keep when each was queued last."""
    queue.perform_import_paths()
    for name, key in queue.periodic_registry.periodic_tasks:
        yield f"{name} {key}".strip()
