"""The stock project as it is run beside the service: a database and a key of its own, and people who hold tokens."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from tests.bench.stage import Served, Stage
from tests.served.database import new_database
from tests.tools.folders import ROOT

SETTINGS = "tests.bench.references.stock.settings"


@dataclass(frozen=True, slots=True, kw_only=True)
class StockPerson:
    """Somebody of the stock project; the password is that of all callers."""

    username: str
    access: str
    refresh: str


@dataclass(frozen=True, slots=True)
class Stock:
    """The running project."""

    served: Served
    environ: Mapping[str, str]

    def people(self, number: int, *, called: str) -> list[StockPerson]:
        """So many new people with a first pair of tokens, which simplejwt itself makes; names are used once."""
        printed = _people(self.environ, number, called)
        return [StockPerson(**json.loads(line)) for line in printed.splitlines()]


@contextmanager
def running_stock(stage: Stage) -> Iterator[Stock]:
    """Served as the service is: same server, same class and number of workers."""
    with new_database(nullcontext) as database:
        private, public = _key()
        own = {
            "DATABASE_URL": database.url,
            "STOCK_SIGNING_KEY": private,
            "STOCK_VERIFYING_KEY": public,
        }
        environ = {**stage.environ, **own, "DJANGO_SETTINGS_MODULE": SETTINGS}
        _people(environ, 0, "nobody")
        with stage.reference("stock.wsgi", settings_module=SETTINGS, **own) as served:
            yield Stock(served, environ)


def _people(environ: Mapping[str, str], number: int, called: str) -> str:
    command = [
        sys.executable,
        "-m",
        "tests.bench.references.stock.people",
        str(number),
        called,
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _key() -> tuple[str, str]:
    """A new pair, as large as the service's, in PEM."""
    key = rsa.generate_private_key(65537, 2048)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return private.decode(), public.decode()
