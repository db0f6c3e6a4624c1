"""Images without a registry: the service's, by its Dockerfile, and one that stands in for those of other servers.

The base of the first is made from Debian's own packages, as the source of this machine's has them, and named in the
build argument. The second holds nothing but folders, users and a few lines of shell: its programs are this machine's.
"""

import io
import shutil
import ssl
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.served.deployed.engine import Engine
from tests.tools.folders import ROOT
from tests.tools.postgres import psql

BASE, IMAGE, STAND_IN = "localhost/base", "shell-backend:0.1.0", "localhost/stand-in"
# The last is for a test that has the image as its system.
PACKAGES = "python3,python3-venv,ca-certificates,systemd"
SOURCES = ["Created-By: Packages", "Origin: Debian"]
TRUSTED = "etc/ssl/certs/ca-certificates.crt"
# By its own path: the environment may be a link.
PYTHON = str(Path(sys.prefix).resolve() / "bin" / Path(sys.executable).name)
# As the published images have them: name, number, folder that is the user's own.
USERS = (
    ("root", 0, "root"),
    ("postgres", 999, "var/lib/postgresql"),
    ("redis", 998, "var/lib/redis"),
    ("nginx", 101, "var/cache/nginx"),
)
# PostgreSQL's image does this with an empty folder.
ENTRYPOINT = """#!/bin/sh
set -e
export PGDATA=/var/lib/postgresql/18/docker
if [ "$1" = postgres ] && [ ! -s "$PGDATA/PG_VERSION" ]; then
    printf %s "$POSTGRES_PASSWORD" >/tmp/password
    initdb --no-sync -E UTF8 --username "$POSTGRES_USER" --pwfile /tmp/password --auth-host scram-sha-256 "$PGDATA"
    echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
    echo "listen_addresses = '*'" >>"$PGDATA/postgresql.conf"
    echo "unix_socket_directories = '/var/run/postgresql'" >>"$PGDATA/postgresql.conf"
    pg_ctl --silent --wait -D "$PGDATA" -o "-c listen_addresses=" start
    export PGHOST=/var/run/postgresql
    createdb --username "$POSTGRES_USER" "$POSTGRES_DB"
    for each in /docker-entrypoint-initdb.d/*.sql; do
        psql --set ON_ERROR_STOP=1 --no-psqlrc --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" --file "$each"
    done
    pg_ctl --silent --wait -D "$PGDATA" stop
fi
exec "$@"
"""
# moto in place of MinIO, started as that is.
S3 = f"""#!/bin/sh
[ "$1 $2 $4 $#" = "server --address /data 4" ] || exit 64
[ -n "$MINIO_ROOT_USER" ] && [ -n "$MINIO_ROOT_PASSWORD" ] && touch /data/.written && cd "$HOME" || exit 65
export S3_IGNORE_SUBDOMAIN_BUCKETNAME=true
exec {PYTHON} -m moto.server --host 0.0.0.0 --port "${{3#:}}"
"""


def build_service(engine: Engine) -> str:
    """By the Dockerfile, as it is; its name."""
    root = engine.folder / "root"
    site, suite = _source(engine)
    engine.run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", suite, str(root), site)
    (root / "usr" / "bin" / "python").symlink_to("python3")
    # pip finds the authorities that this machine trusts.
    shutil.copyfile(ssl.get_default_verify_paths().cafile or f"/{TRUSTED}", root / TRUSTED)
    archive = ["tar", "--create", "--directory", str(root), "."]
    into = ["docker", "import", "--change", "ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
    with subprocess.Popen(archive, stdout=subprocess.PIPE) as packed:
        subprocess.run(
            [*into, "-", BASE],
            stdin=packed.stdout,
            env=engine.environ,
            check=True,
            capture_output=True,
        )
    assert packed.returncode == 0
    shutil.rmtree(root)
    build = ["docker", "build", "--network", "host", "--build-arg", f"PYTHON={BASE}"]
    engine.run(*build, "--tag", IMAGE, str(ROOT))
    return IMAGE


def build_stand_in(engine: Engine) -> str:
    """Its name."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in ("bin", "lib", "lib64", "sbin"):
            _add(archive, name, link=f"usr/{name}")
        for name in ("tmp", "etc/nginx/tls", "opt/stand-in", "var/run", "usr"):
            _add(archive, name)
        for _, number, folder in USERS:
            _add(archive, folder, owner=number)
        users = [f"{name}:x:{number}:{number}::/{home}:/bin/sh" for name, number, home in USERS]
        _add(archive, "etc/passwd", content="\n".join([*users, ""]))
        groups = [f"{name}:x:{number}:" for name, number, _ in USERS]
        _add(archive, "etc/group", content="\n".join([*groups, ""]))
        _add(archive, "opt/stand-in/entrypoint", content=ENTRYPOINT)
        _add(archive, "opt/stand-in/minio", content=S3)
    found = f"/opt/stand-in:{Path(psql()).resolve().parent}:/usr/local/bin:/usr/sbin:/usr/bin"
    changes = [f"ENV PATH={found}", 'ENTRYPOINT ["/opt/stand-in/entrypoint"]']
    options = [part for each in changes for part in ("--change", each)]
    engine.run("docker", "import", *options, "-", STAND_IN, given=packed.getvalue())
    return STAND_IN


def programs() -> list[str]:
    """Returns the mounts of a stand-in's container: programs of this machine, and Python with PostgreSQL."""
    pythons = {str(Path(each).resolve()) for each in (sys.prefix, sys.base_prefix)}
    # Debian's own is below /usr.
    folders = sorted(each for each in pythons if not each.startswith("/usr"))
    return ["/usr:/usr:ro", *(f"{each}:{each}:ro" for each in folders)]


def _add(
    archive: tarfile.TarFile, name: str, *, link: str = "", content: str = "", owner: int = 0
) -> None:
    entry = tarfile.TarInfo(name)
    entry.mode, entry.uid, entry.gid = 0o755, owner, owner
    if name == "tmp":
        entry.mode = 0o1777
    entry.type = tarfile.SYMTYPE if link else tarfile.REGTYPE if content else tarfile.DIRTYPE
    entry.linkname, entry.size = link, len(content.encode())
    archive.addfile(entry, io.BytesIO(content.encode()))


def _source(engine: Engine) -> tuple[str, str]:
    """Returns the source of this machine's Debian packages, and their release."""
    command = ["apt-get", "indextargets", "--format", "$(SITE) $(RELEASE)", *SOURCES]
    site, suite = engine.run(*command).splitlines()[0].split()
    return site, suite
