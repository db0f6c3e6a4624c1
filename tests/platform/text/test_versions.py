"""Versions: strict, and in the order of Rust's semver crate."""

from itertools import pairwise

import pytest

from config.platform.text.versions import NotAVersion, Version

# As the crate sorts them, build metadata included.
ASCENDING = """
0.0.0 0.0.1 0.1.0 1.0.0-0 1.0.0-1 1.0.0-2 1.0.0-10 1.0.0-99999999999999999999 1.0.0-A 1.0.0-a
1.0.0-a.0 1.0.0-a.a 1.0.0-a.a.0 1.0.0-a-b 1.0.0-alpha 1.0.0-alpha.1 1.0.0-alpha.beta 1.0.0-beta 1.0.0-beta.2
1.0.0-beta.11 1.0.0-rc.1 1.0.0 1.0.0+0 1.0.0+00 1.0.0+1 1.0.0+01 1.0.0+001 1.0.0+2 1.0.0+02 1.0.0+10
1.0.0+10.a 1.0.0+a 1.0.0+a.1 1.0.0+b 1.0.1-0 1.0.1 1.2.0 1.10.0 2.0.0 10.0.0
""".split()  # noqa: SIM905 - a table of forty would be no easier to read


def test_the_order_is_the_one_that_shells_have() -> None:
    versions = [Version.parse(each) for each in ASCENDING]
    assert all(
        before < after and after > before and before != after
        for before, after in pairwise(versions)
    )
    versions.reverse()
    assert [str(each) for each in sorted(versions)] == ASCENDING


def test_equal_versions_are_one() -> None:
    assert Version.parse("1.2.3+a") == Version.parse("1.2.3+a")
    assert len({Version.parse("1.2.3"), Version.parse("1.2.3"), Version.parse("1.2.3+a")}) == 2
    assert Version.parse("1.2.3") != "1.2.3"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "not a SemVer"),
        ("1", "three numbers"),
        ("1.2", "three numbers"),
        ("1.2.3.4", "fourth"),
        ("v1.2.3", "leading v"),
        ("V1.2.3", "leading v"),
        (" 1.2.3", "leading v or spaces"),
        ("1.2.3\n", "leading v or spaces"),
        ("01.2.3", "leading zeros"),
        ("1.02.3", "leading zeros"),
        ("1.2.3-01", "leading zeros"),
        ("1.2.3-", "not a SemVer"),
        ("1.2.3-a..b", "not a SemVer"),
        ("1.2.3+", "not a SemVer"),
        ("1.2.3+a+b", "not a SemVer"),
        ("1.2.3-ä", "not a SemVer"),
        ("١.2.3", "not a SemVer"),
        ("-1.2.3", "not a SemVer"),
        ("18446744073709551616.0.0", "64 bits"),
        (f"1.0.0-{'a' * 200}", "120"),
    ],
)
def test_an_invalid_version_is_refused_with_a_hint(text: str, hint: str) -> None:
    with pytest.raises(NotAVersion, match=hint):
        Version.parse(text)


def test_the_largest_numbers_are_versions() -> None:
    assert str(Version.parse("18446744073709551615.0.0")) == "18446744073709551615.0.0"
