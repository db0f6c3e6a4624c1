"""A demo release: `python -m tests.tools.release 1.0.0` builds one, signs it with the demo key and uploads it.

What it leaves in `.local/release/` is what a pipeline sends: `latest.json` and its signature. The artifacts, which
are a few bytes for each platform, go where the demo CDN serves them from.
"""

import argparse
import base64
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from tests.tools import Unready, environment
from tests.tools.folders import LOCAL, claim
from tests.tools.minisign import sign

PLATFORMS = ("darwin-aarch64", "windows-x86_64")
MANIFEST, SIGNATURE = "latest.json", "latest.json.minisig"


def build(folder: Path, *, version: str, channel: str, cdn: str, at: int) -> Path:
    """Writes and signs everything; the folder with the manifest. ``at`` in seconds since 1970.

    Artifacts that are there stay as they are: what a version has never changes.
    """
    key = folder / "update.key"
    platforms = {}
    for platform in PLATFORMS:
        name = f"shell-{platform}.tar.gz"
        file = claim(folder / "storage") / "shell" / version / name
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(f"A demo of the shell {version} for {platform}.\n".encode())
        signature = sign(key, file.read_bytes(), f"timestamp:{at}\tfile:{name}\tversion:{version}")
        platforms[platform] = {
            "url": f"{cdn}/shell/{version}/{name}",
            "signature": base64.b64encode(signature).decode(),
        }
    document = {
        "version": version,
        "channel": channel,
        "pub_date": datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "notes": f"The demo of {version}.",
        "platforms": platforms,
    }
    out = claim(folder / "release")
    body = json.dumps(document, indent=2).encode()
    (out / MANIFEST).write_bytes(body)
    (out / SIGNATURE).write_bytes(sign(key, body, f"timestamp:{at}\tfile:{MANIFEST}"))
    return out


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.release", description=__doc__)
    parser.add_argument("version")
    parser.add_argument("--channel", default="stable")
    parser.add_argument("--folder", type=Path, default=LOCAL, help="the folder of `make run`")
    options = parser.parse_args(arguments)
    folder = options.folder.absolute()
    values = environment.read(folder / "env")
    if not {"CDN_URL", "UPDATE_PUBLIC_KEY"} <= values.keys():
        raise Unready(
            f"{folder / 'env'} names no demo CDN: start `make run` first, without CDN_URL."
        )
    out = build(
        folder,
        version=options.version,
        channel=options.channel,
        cdn=values["CDN_URL"],
        at=int(time.time()),
    )
    print(f"Built, signed and uploaded. To publish: {out / MANIFEST} and {out / SIGNATURE}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Unready as error:
        sys.exit(f"\n{error}")
