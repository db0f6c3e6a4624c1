"""Names the images that a deployment takes by a tag: ``python -m tests.supply.images [<its .env>]``.

A tag may be given another image at any time. As compose does, the variables of ``compose.yaml`` are looked up in the
environment, then in the file, and else have its defaults, which are tags.
"""

import os
import re
import sys
from pathlib import Path

from tests.tools import environment
from tests.tools.folders import ROOT

VARIABLE = re.compile(r"\$\{([A-Z]+_IMAGE):-([^}]+)\}")
BY_DIGEST = re.compile(r"\S+@sha256:[0-9a-f]{64}", re.ASCII)


def main(arguments: list[str]) -> int:
    """0 if every image is named by its digest, else 1."""
    given = {**environment.read(Path(arguments[0] if arguments else ROOT / ".env")), **os.environ}
    chosen = VARIABLE.findall((ROOT / "compose.yaml").read_text())
    floating = {
        name: image
        for name, default in chosen
        if not BY_DIGEST.fullmatch(image := given.get(name) or default)
    }
    for name, image in floating.items():
        print(
            f"{name}={image} is a tag: name the image by its digest, as docs/examples/compose shows."
        )
    return 1 if floating else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
