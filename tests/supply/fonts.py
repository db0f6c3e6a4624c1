"""The console's font: where it comes from, and its entry in the bill of materials.

Its files are those of ``@fontsource-variable/inter``, as ``npm pack`` leaves them: Latin and extended Latin, upright.
"""

from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.tools.folders import ROOT

FOLDER = ROOT / "config" / "static" / "console"
LICENCE = FOLDER / "inter-OFL.txt"
PACKAGE, VERSION = "@fontsource-variable/inter", "5.3.0"


def files() -> list[Path]:
    return sorted(FOLDER.glob("*.woff2"))


def component() -> dict[str, Any]:
    """The font as CycloneDX describes a component, with the hash of each file."""
    purl = f"pkg:npm/{PACKAGE.replace('@', '%40')}@{VERSION}"
    return {
        "bom-ref": purl,
        "components": [
            {
                "bom-ref": each.name,
                "hashes": [{"alg": "SHA-256", "content": sha256(each.read_bytes()).hexdigest()}],
                "name": each.name,
                "type": "file",
            }
            for each in files()
        ],
        "licenses": [{"license": {"id": "OFL-1.1"}}],
        "name": PACKAGE,
        "purl": purl,
        "type": "library",
        "version": VERSION,
    }
