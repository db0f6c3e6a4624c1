"""Ways to run PostgreSQL as root, which it refuses: in a user namespace, or as another user."""

import os
import pwd
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.tools import Unready


@cache
def unprivileged() -> Sequence[str]:
    """The command's prefix, because the server refuses to be root or a user without a name.

    A user namespace shows it another number and changes nothing on disk. Where there are none, root steps down to
    ``nobody`` but keeps its way through folders that are closed to others.
    """
    if not _needs_another_user():
        return ()
    user = pwd.getpwnam("nobody")
    namespace = ("unshare", "--user", f"--map-user={user.pw_uid}", "--")
    if _works([*namespace, "true"]):
        return namespace
    step_down = (
        *("setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"),
        *("--inh-caps=+dac_override", "--ambient-caps=+dac_override", "--pdeathsig=INT", "--"),
    )
    if os.geteuid() == 0 and _works([*step_down, "true"]):
        return step_down
    raise Unready(
        "PostgreSQL does not run as root, and this machine gives no way around it: use an ordinary user."
    )


def give_to_server(data: Path) -> None:
    """As root, makes the data belong to the user the server runs as, which differs between the two ways above."""
    if os.geteuid() != 0:
        return
    uid = pwd.getpwnam("nobody").pw_uid if unprivileged()[0] == "setpriv" else 0
    if data.stat().st_uid != uid:
        # The top comes last, so that an interrupted change is made again.
        for folder, _, files in os.walk(data, topdown=False):
            for name in [*files, "."]:
                os.chown(Path(folder) / name, uid, -1, follow_symlinks=False)


def _needs_another_user() -> bool:
    try:
        return pwd.getpwuid(os.geteuid()).pw_uid == 0
    except KeyError:
        return True


def _works(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False
