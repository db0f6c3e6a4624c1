"""A process that has loaded what a service needs of others, and becomes a service for each line it is sent.

``python -m tests.served.preloading FD``; `tests.served.preloaded` starts it. Settings and our own code are read by the
service itself, from its own environment.
"""

from gevent import monkey

# As config.gunicorn does it, before any other import.
monkey.patch_all()

import json  # noqa: E402
import os  # noqa: E402
import runpy  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402
from importlib import import_module  # noqa: E402
from typing import Any, NoReturn  # noqa: E402

from tests.tools.children import die_with  # noqa: E402

LIBRARIES = """
argon2 authlib.integrations.requests_client bpe_openai cryptography.hazmat.primitives.serialization environs
genai_prices gunicorn.app.wsgiapp gunicorn.workers.ggevent jsonschema_rs jwt orjson procrastinate psycopg psycopg_pool
redis requests segno sentry_sdk stripe webauthn zxcvbn
django.contrib.admin.utils django.core.handlers.wsgi django.core.serializers.json django.db.backends.postgresql.base
django.db.models django.forms django.template.defaulttags django.views.generic
"""
VOCABULARIES = ("o200k_base", "cl100k_base")
# Those of gevent would begin its loop, which is the service's to begin.
fork, wait, sleep = (
    monkey.get_original(*name) for name in (("os", "fork"), ("os", "waitpid"), ("time", "sleep"))
)


def main(channel: int) -> None:
    """Forks until whoever sends is gone."""
    modules = {name: import_module(name) for name in LIBRARIES.split()}
    for name in VOCABULARIES:
        modules["bpe_openai"].get_encoding(name)
    with os.fdopen(channel, "rb", buffering=0, closefd=False) as lines:
        while line := lines.readline():
            between = fork()
            if between == 0:
                if pid := fork():
                    os.write(channel, b"%d" % pid)
                    os._exit(0)
                os.close(channel)
                become(json.loads(line))
            wait(between, 0)
            # Only now its child has another parent.
            os.write(channel, b"\n")


def become(asked: dict[str, Any]) -> NoReturn:
    """Is the program from here on, once it is the child of whoever asked."""
    os.setpgid(0, 0)
    os.environ.clear()
    os.environ.update(asked["environ"])
    log = os.open(asked["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    null = os.open(os.devnull, os.O_RDONLY)
    for file, number in ((null, 0), (log, 1), (log, 2)):
        os.dup2(file, number)
    while os.getppid() != asked["parent"]:
        sleep(0.001)
    die_with(asked["parent"], signal.Signals(asked["orphaned_by"]))
    sys.argv[:] = asked["arguments"]
    runpy.run_module(asked["arguments"][0], run_name="__main__", alter_sys=True)
    sys.exit()


if __name__ == "__main__":
    main(int(sys.argv[1]))
