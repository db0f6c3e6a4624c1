"""The bill of materials."""

import json
from pathlib import Path

from tests.supply import bill, fonts
from tests.supply.locks import pins

LOCK = """django==5.2.19 \\
    --hash=sha256:{0}
Some_Package==1.0 ; sys_platform == 'linux' \\
    --hash=sha256:{0} \\
    --hash=sha256:{1}
""".format("a" * 64, "b" * 64)


def test_the_bill_names_every_locked_package_with_version_and_hashes(tmp_path: Path) -> None:
    lock, written = tmp_path / "requirements.lock", tmp_path / "new" / "bill.json"
    lock.write_text(LOCK)
    assert bill.main([str(lock), str(written)]) == 0
    bom = json.loads(written.read_text())
    assert (bom["bomFormat"], bom["metadata"]["component"]["name"]) == (
        "CycloneDX",
        "shell-backend",
    )
    parts = {part["name"].lower().replace("_", "-"): part for part in bom["components"]}
    assert {(name, part["version"]) for name, part in parts.items()} == {
        *((pin.name, str(pin.version)) for pin in pins(lock)),
        (fonts.PACKAGE, fonts.VERSION),
    }
    assert parts["some-package"]["purl"].startswith("pkg:pypi/some-package@1.0")
    hashes = [
        each["content"]
        for reference in parts["some-package"]["externalReferences"]
        for each in reference["hashes"]
    ]
    assert hashes == ["a" * 64, "b" * 64]


def test_a_lock_that_cannot_be_read_makes_no_bill(tmp_path: Path) -> None:
    assert bill.main([str(tmp_path / "none.lock"), str(tmp_path / "bill.json")]) != 0
    assert not (tmp_path / "bill.json").exists()
