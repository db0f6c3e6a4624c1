"""Platform ids: those that shells look for, and what was probably meant by others."""

import pytest

from releases.manifests.platforms import KNOWN, base_of, faults, near_miss


def test_the_known_are_what_a_shell_looks_for() -> None:
    assert {"darwin-aarch64", "windows-x86_64", "linux-x86_64", "linux-armv7"} <= KNOWN
    assert {"linux-riscv64", "linux-riscv64-deb"} <= KNOWN
    assert {"linux-x86_64-deb", "windows-x86_64-nsis", "darwin-aarch64-app"} <= KNOWN
    assert not KNOWN & {"darwin-universal", "darwin-aarch64-deb", "darwin-armv7", "darwin"}


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("darwin-universal", "darwin-aarch64"),
        ("darwin-arm64", "darwin-aarch64"),
        ("macos-aarch64", "darwin-aarch64"),
        ("Darwin-AArch64", "darwin-aarch64"),
        ("darwin_aarch64", "darwin-aarch64"),
        ("darwin-aarch64-dmg", "darwin-aarch64-app"),
        ("win64-x64", "windows-x86_64"),
        ("windows-amd64", "windows-x86_64"),
        ("windows-x86-64", "windows-x86_64"),
        ("window-x86_64", "windows-x86_64"),
        ("windows-x86_64-exe", "windows-x86_64-nsis"),
        ("linux-x86_64-appimages", "linux-x86_64-appimage"),
        ("macos-arm64", "darwin-aarch64"),
        ("win64", "windows-x86_64"),
        ("macOS", "darwin-aarch64"),
        ("linux", "linux-x86_64"),
        ("beos", None),
        ("", None),
    ],
)
def test_a_near_miss_is_suggested(given: str, meant: str | None) -> None:
    assert near_miss(given) == meant


def test_the_base_of_a_bundle_is_its_platform() -> None:
    assert base_of("linux-x86_64-deb") == base_of("linux-x86_64") == "linux-x86_64"


def test_a_required_platform_that_no_shell_asks_for_is_a_fault() -> None:
    assert faults(["darwin-aarch64"]) == {}
    assert faults(["windows-x86_64", "darwin-universal", "amiga-68k"]) == {
        "PUBLISH_PLATFORMS": "Its platform 2 is unknown; darwin-aarch64 was probably meant. Its platform 3 is unknown."
    }
