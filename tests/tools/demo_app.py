"""The micro app of the demo: one page, bundled and signed to the same bytes each time, so that publishing repeats."""

import gzip
import io
import tarfile
from pathlib import Path

from tests.tools.minisign import sign

NAME, VERSION = "notes", "1.0.0"
PAGE = b"<!doctype html><title>Notes</title><h1>Notes</h1><textarea></textarea>"
COMMENT = f"timestamp:1767225600\tfile:bundle.tar.gz\tapp:{NAME}\tversion:{VERSION}"


def arguments(folder: Path) -> list[str]:
    """Writes bundle and signature; the arguments of ``publish_app``."""
    member, out = tarfile.TarInfo("index.html"), io.BytesIO()
    member.size = len(PAGE)
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.addfile(member, io.BytesIO(PAGE))
    bundle, signature = folder / "bundle.tar.gz", folder / "bundle.tar.gz.minisig"
    bundle.write_bytes(gzip.compress(out.getvalue(), mtime=0))
    signature.write_bytes(sign(folder / "apps.key", bundle.read_bytes(), COMMENT))
    return [NAME, VERSION, str(bundle), str(signature)]
