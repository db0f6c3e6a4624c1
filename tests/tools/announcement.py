"""The text that `make run` prints once everything answers: places, and lines to paste."""

import json
from collections.abc import Mapping
from pathlib import Path
from shlex import quote

from tests.tools.postgres import psql


def announcement(folder: Path, environ: Mapping[str, str], *, own_database: bool) -> str:
    """The whole text; `demo.json` must exist."""
    base = environ["BASE_URL"]
    demo = json.loads((folder / "demo.json").read_text())
    off = environ.get("OPERATOR_SECOND_FACTOR") == "off"
    unasked = " (no second factor asked: OPERATOR_SECOND_FACTOR=off)" if off else ""
    places = {
        "The service": base,
        # Passkeys, where they are asked for, refuse addresses of numbers.
        "Operators' admin": f"{base.replace('//127.0.0.1:', '//localhost:')}/admin/{unasked}",
        "Releases": environ["CDN_URL"],
        "API docs": f"{base}/docs/",
        "Demo accounts": f"{folder / 'demo.json'} (user and operator, with passwords)",
        "Environment": f"{folder / 'env'} (manage.py reads it)",
        "Mail": f"{folder / 'mail'}",
        "Logs": f"{folder / 'log'}",
    }
    if own_database:
        places["Database"] = f"{quote(psql())} {quote(environ['DATABASE_OWNER_URL'])}"
    lines = [f"  {name + ':':<18}{place}" for name, place in places.items()]
    paste = [f"  {line}" for line in session(base, demo)]
    return "\n".join(
        ["", *lines, "", "Paste in another terminal:", "", *paste, "", "Ctrl-C stops it."]
    )


def session(base: str, demo: Mapping[str, str]) -> list[str]:
    """A first session: sign in, licence, an answer, a stream, and their cost."""
    login = json.dumps({"email": demo["email"], "password": demo["password"]})
    ask = json.dumps({"messages": [{"role": "user", "content": "Say hello."}]})
    as_json, as_user = "-H 'Content-Type: application/json'", '-H "Authorization: Bearer $TOKEN"'
    access = r"""sed -E 's/.*"access": ?"([^"]+)".*/\1/'"""
    curl = r"curl -sw '\n'"
    return [
        f"TOKEN=$(curl -s {base}/v1/auth/login {as_json} -d {quote(login)} | {access})",
        f"{curl} {base}/v1/license/status {as_user}",
        f"{curl} {base}/v1/llm/complete {as_user} {as_json} -d {quote(ask)}",
        f"curl -sN {base}/v1/llm/stream {as_user} {as_json} -d {quote(ask)}",
        f"{curl} {base}/v1/usage/me {as_user}",
    ]
