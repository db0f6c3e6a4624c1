"""A service and all that it needs, each server at the end of a cable that can be made ill.

Everything is started here and ends with the stage; nothing listens beyond this machine.
"""

import json
import logging
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import boto3
import psycopg
from botocore.config import Config
from django.db import connections
from moto.server import ThreadedMotoServer

from tests.faults.disk import small_disk
from tests.platform.db.own_postgres import OwnPostgres
from tests.platform.edge.ratelimits.nodes import Server
from tests.platform.edge.ratelimits.own_redis import OwnRedis, own_redis
from tests.releases.signing import Signer
from tests.served.browser import Browser
from tests.served.cable import Cable, cable_to
from tests.served.canaries import Secrets
from tests.served.database import Database, Unblock, new_database
from tests.served.oauth_failures import FailingProvider
from tests.served.releasing import ServedPipeline
from tests.served.service import HOST, Service, running_service
from tests.standins.cdn import POINTER, Answer, Cdn, running_cdn, whole
from tests.standins.mail_server import MailServer
from tests.standins.provider_process import Provider, running_provider
from tests.standins.stripe_server import KEY, Stripe, stripe_server
from tests.tools import kept
from tests.tools.children import Child, Program
from tests.tools.folders import sockets_of
from tests.tools.owners import as_superuser
from tests.tools.ports import free
from tests.tools.postgres import SPLIT, Postgres

BUCKET, OAUTH = "releases", "sheets"
# The second is for pipelines whose service is killed.
CHANNELS = ("stable", "mortal")
# So that a fault of a minute holds a whole call, and a silent provider is given up within one.
PROVIDER_SECONDS = 8
SHORT = {"LLM_READ_TIMEOUT": str(PROVIDER_SECONDS), "LLM_MAX_SECONDS": "40", "NIGHTLY_AT": ""}
AWS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_EC2_METADATA_DISABLED": "true",
}
# A server on a small disk keeps little to write again.
LITTLE_LOG = ("max_wal_size = '48MB'", "min_wal_size = '16MB'", "checkpoint_timeout = '60s'")


@dataclass(kw_only=True)
class Stage:
    """Made by :func:`stage`. ``disk`` is that of the database, None where none could be made small."""

    folder: Path
    disk: Path | None
    postgres: OwnPostgres
    database: Database
    redis: OwnRedis
    provider: Provider
    mail: MailServer
    stripe: Stripe
    pipeline: ServedPipeline
    cables: dict[str, Cable]
    environ: dict[str, str]
    operator: tuple[str, str]
    service: Service
    worker: Child | None
    servers: ExitStack
    # Of a Redis cluster, in the scenario that has one.
    nodes: list[Server] = field(default_factory=list)
    # The last version that a pipeline has made.
    patch: int = 0

    @contextmanager
    def other_service(
        self, environ: Mapping[str, str], *, afresh: bool = False, worker: bool = True
    ) -> Iterator[tuple[Service, Child | None]]:
        """Another one on the same servers, with variables that go before the usual, and its worker."""
        # Under the name of the first, so that tokens are good for both.
        own = {**self.environ, "BASE_URL": self.service.url, **environ}
        with ExitStack() as stack:
            service = stack.enter_context(running_service(self.folder, own, afresh=afresh))
            child = start_worker(service) if worker else None
            if child is not None:
                stack.callback(child.stop)
            yield service, child

    @contextmanager
    def without_worker(self) -> Iterator[None]:
        """Another one may take what is queued."""
        self.stop_worker()
        try:
            yield
        finally:
            self.worker = start_worker(self.service)

    def stop_worker(self) -> None:
        if self.worker is not None:
            self.worker.stop()
        self.worker = None

    def keep_going(self) -> None:
        """Restarts the database and the worker where they have ended, as a supervisor does."""
        if self.postgres.child.ended is not None:
            self.postgres.start()
        if self.worker is not None and self.worker.ended is not None:
            self.worker = start_worker(self.service)

    def admin(self, statement: str) -> None:
        """One statement by the superuser, beside the service."""
        with psycopg.connect(as_superuser(self.postgres.url), autocommit=True) as server:
            server.execute(statement)

    def terminate_sessions(self) -> None:
        """Terminates the service's database sessions."""
        self.admin(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            f" WHERE datname = '{self.database.name}' AND pid <> pg_backend_pid()"
        )

    def browser(self, service: Service) -> Browser:
        """An operator, signed in to the console."""
        browser = Browser(service.url)
        email, password = self.operator
        browser.submit("/admin/login/?next=/admin/", username=email, password=password)
        return browser

    def move_to(self, child: Child, server: Postgres) -> None:
        """The database is on another server from now on; this process gets it back once the stage ends."""
        self.postgres.child, self.postgres.server, self.postgres.url = child, server, server.url
        os.environ["DATABASE_URL"] = server.url
        connections.databases["default"]["HOST"] = str(server.sockets)
        self.database.url = server.url_of(self.database.name)
        self.database.service_url = server.service_url_of(self.database.name)
        self.cables["postgres"].far = self.database.service_url


def start_worker(service: Service) -> Child:
    """The worker of queued work; a test of faults ends and starts it as it likes."""
    log = service.child.program.log.with_name(f"worker-{service.port}.log")
    command = [sys.executable, "manage.py", "work"]
    return Program(name="worker", command=command, log=log, environ=service.environ).start()


@contextmanager
def stage(folder: Path, unblock: Unblock) -> Iterator[Stage]:
    with ExitStack() as stack:
        enter = stack.enter_context
        disk = enter(small_disk(folder / "disk"))
        postgres = enter(_postgres(disk or folder, folder))
        # The database may move to these servers; it is dropped there, so this ends after it.
        servers = enter(ExitStack())
        database = enter(new_database(unblock, like=SPLIT))
        redis = enter(own_redis())
        provider = enter(running_provider(api_key=os.environ["LLM_API_KEY"]))
        second = enter(_second_provider(folder))
        mail = MailServer()
        stack.callback(mail.close)
        stripe = enter(stripe_server())
        oauth = enter(FailingProvider.running(Secrets()))
        bucket, storage = enter(_bucket())
        cdn = enter(running_cdn())
        far = {
            "postgres": database.service_url,
            "provider": provider.base_url,
            "second": second,
            "mail": mail.url,
            "stripe": stripe.url,
            "oauth": oauth.settings()["token_endpoint"],
            "storage": storage,
            "cdn": cdn.url,
        }
        cables = {name: enter(cable_to(url)) for name, url in far.items()}
        pipeline = _pipeline(cdn, cables["cdn"], bucket, folder)
        environ = {
            **SHORT,
            **AWS,
            **pipeline.environ(),
            "DATABASE_URL": cables["postgres"].url,
            "DATABASE_OWNER_URL": database.url,
            "CACHE_URL": redis.url,
            "LLM_BASE_URL": cables["provider"].url,
            "EMAIL_URL": cables["mail"].url,
            "STRIPE_API_KEY": KEY,
            "STRIPE_API_BASE": cables["stripe"].url,
            "STORAGE_URL": f"s3://{BUCKET}?endpoint={cables['storage'].url}&region=us-east-1",
            "CDN_PURGE": "purge",
            "OAUTH_PROVIDERS": json.dumps({OAUTH: _through(oauth.settings(), cables["oauth"])}),
        }
        service = enter(running_service(folder, environ))
        demo = folder / "demo.json"
        service.manage(
            "seed_demo", "--output", str(demo), "--second-provider", cables["second"].url
        )
        pipeline.url = service.url
        told = json.loads(demo.read_text())
        made = Stage(
            folder=folder,
            disk=disk,
            postgres=postgres,
            database=database,
            redis=redis,
            provider=provider,
            mail=mail,
            stripe=stripe,
            pipeline=pipeline,
            cables=cables,
            environ=environ,
            operator=(told["operator_email"], told["operator_password"]),
            service=service,
            worker=start_worker(service),
            servers=servers,
        )
        stack.callback(made.stop_worker)
        yield made


@contextmanager
def _postgres(folder: Path, beside: Path) -> Iterator[OwnPostgres]:
    """A server whose commits last, with the databases that tests copy; Django's own view goes there too."""
    with sockets_of(beside) as sockets:
        bare = Postgres(folder=folder, sockets=sockets, log=beside / "postgres.log")
        kept.lay_out(bare, os.environ)
        server = OwnPostgres(folder, sockets=sockets, durable=True)
        try:
            with psycopg.connect(server.server.superuser_url, autocommit=True) as own:
                for each in LITTLE_LOG:
                    own.execute(f"ALTER SYSTEM SET {each}")
                own.execute("SELECT pg_reload_conf()")
            settings = connections.databases["default"]
            with (
                patch.dict(os.environ, {"DATABASE_URL": server.url}),
                patch.dict(settings, {"HOST": str(sockets)}),
            ):
                yield server
        finally:
            server.stop()


@contextmanager
def _second_provider(folder: Path) -> Iterator[str]:
    port = free(HOST, 0)
    command = [sys.executable, "-m", "tests.standins.messages_provider", "--port", str(port)]
    program = Program(
        name="second provider", command=command, log=folder / "second.log", environ=os.environ
    )
    child = program.start()
    try:
        child.wait_until(partial(_listens, port), seconds=60)
        yield f"http://{HOST}:{port}"
    finally:
        child.stop()


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection((HOST, port)):
        return True
    return False


@contextmanager
def _bucket() -> Iterator[tuple[Any, str]]:
    """An S3 server with a bucket, and its address."""
    # It tells of every request.
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    moto = ThreadedMotoServer(ip_address=HOST, port=0)
    moto.start()
    try:
        url = "http://{}:{}".format(*moto.get_host_and_port())
        client = boto3.client(
            "s3",
            endpoint_url=url,
            region_name="us-east-1",
            config=Config(s3={"addressing_style": "path"}),
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )
        client.create_bucket(Bucket=BUCKET)
        yield client, url
        client.close()
    finally:
        moto.stop()


def _pipeline(cdn: Cdn, cable: Cable, bucket: Any, folder: Path) -> ServedPipeline:
    """Its artifacts lie at the CDN, which has the channels' manifests from the bucket."""
    for name in CHANNELS:
        for file in ("latest.json", "latest.json.minisig"):
            path = f"shell/{name}/{file}"
            cdn.files[f"/{path}"] = _from_bucket(bucket, path)
    cdn.url = cable.url
    return ServedPipeline(Signer(), cdn, folder / "unused")


def _from_bucket(bucket: Any, path: str) -> Answer:
    def answer(request: Any) -> None:
        found = bucket.get_object(Bucket=BUCKET, Key=path)["Body"].read()
        whole(found, Cache_Control=POINTER)(request)

    return answer


def _through(settings: dict[str, Any], cable: Cable) -> dict[str, Any]:
    """The provider's settings, with the address at which the service exchanges tokens at the end of a cable."""
    return {**settings, "token_endpoint": cable.url}
