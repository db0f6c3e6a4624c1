"""Values of the service's variables: for `make run`, which keeps its secrets, and for one test run."""

import ast
import base64
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from config.platform.env.hosts import is_loopback
from tests.tools.folders import ROOT
from tests.tools.minisign import tauri_public_key

# Read by what changes the schema; the settings of the service leave it alone.
READ_BY_COMMANDS = ("DATABASE_OWNER_URL",)
# Functions of the settings that read a variable, beside the methods of ``env``.
READERS = {"secret", "text"}


def read_by_settings() -> dict[str, ast.Call]:
    """Every variable that the settings read, with the call that reads it."""
    return {
        ast.literal_eval(node.args[0]): node
        for node in ast.walk(ast.parse((ROOT / "config" / "settings.py").read_text()))
        if isinstance(node, ast.Call) and node.args and _reads(node.func)
    }


def _reads(function: ast.expr) -> bool:
    if isinstance(function, ast.Attribute):
        return isinstance(function.value, ast.Name) and function.value.id == "env"
    return isinstance(function, ast.Name) and function.id in READERS


# Every variable that the service reads; a test run inherits none of them.
NAMES = (*read_by_settings(), *READ_BY_COMMANDS)


def for_run(
    folder: Path, *, host: str, port: int, addresses: Mapping[str, str], before: Mapping[str, str]
) -> dict[str, str]:
    """The environment file of `make run`: secrets as they were before, addresses as they are now.

    A server that the process environment names with credentials has no address here. A command started without
    that variable fails, instead of reaching another server.
    """
    new = new_secrets()
    values = {
        "HOST": host,
        "PORT": str(port),
        "BASE_URL": address(host, port),
        "ALLOWED_HOSTS": "127.0.0.1,localhost,[::1]",
        **_in_folder(folder),
        **new,
        **{name: value for name, value in before.items() if name in new},
        **addresses,
    }
    # Enough for a service that only this machine reaches.
    local = is_loopback(values["BASE_URL"])
    return {"OPERATOR_SECOND_FACTOR": "off" if local else "required", **values}


def for_tests(folder: Path) -> dict[str, str]:
    """A complete environment but for DATABASE_URL and CACHE_URL, as strict as a public host's; secrets are new."""
    return {
        "BASE_URL": "https://shell.test",
        "CDN_URL": "https://cdn.shell.test",
        "CDN_PURGE": "",
        "ALLOWED_HOSTS": "shell.test,127.0.0.1,localhost",
        # The discard port: a test that needs a provider starts one.
        "LLM_BASE_URL": "http://127.0.0.1:9/v1",
        # A night would change rows under a test; a test of the night gives a time.
        "NIGHTLY_AT": "",
        "OPERATOR_SECOND_FACTOR": "required",
        # Tests start the service hundreds of times; without this, some machines compile it anew for each start.
        "PYTHONDONTWRITEBYTECODE": "",
        **_in_folder(folder),
        **new_secrets(),
    }


def outside(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without any variable of the service."""
    ours = {*NAMES, *(f"{name}_FILE" for name in NAMES)}
    return {name: value for name, value in environ.items() if name not in ours}


def new_secrets() -> dict[str, str]:
    """Fresh values of every secret that stays the same between runs."""
    return {
        "SECRET_KEY": secrets.token_urlsafe(48),
        "ENCRYPTION_KEYS": base64.urlsafe_b64encode(os.urandom(32)).decode(),
        "LLM_API_KEY": secrets.token_urlsafe(24),
        "PUBLISH_SECRETS": secrets.token_urlsafe(32),
    }


def address(host: str, port: int) -> str:
    """Returns the address at which this machine opens what listens there."""
    return f"http://{reachable(host)}:{port}"


def reachable(host: str) -> str:
    """The host in an address that this machine can open."""
    if host in {"0.0.0.0", "::", ""}:
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def _in_folder(folder: Path) -> dict[str, str]:
    return {
        "LLM_PROVIDER": "openai",
        "LLM_DEFAULT_MODEL": "stand-in-small",
        "STORAGE_URL": (folder / "storage").as_uri(),
        "EMAIL_URL": (folder / "mail").as_uri(),
        "DEFAULT_FROM_EMAIL": "Shell <shell@example.test>",
        "OPERATOR_EMAILS": "operator@example.test",
        "UPDATE_PUBLIC_KEY": tauri_public_key(folder, "update"),
        "APPS_PUBLIC_KEY": tauri_public_key(folder, "apps"),
    }
