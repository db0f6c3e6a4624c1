"""The document: what a shell accepts is taken, everything it would stumble over is refused with its place."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from config.platform.problems.problem import Fault
from releases.manifests.manifest import Manifest, Terms, read

CDN = "https://cdn.shell.test"
TERMS = Terms(channel="stable", cdn_url=CDN, platforms=["darwin-aarch64", "windows-x86_64"])
Change = Callable[[dict[str, Any]], Any]


def document() -> dict[str, Any]:
    return {
        "channel": "stable",
        "version": "1.2.3",
        "pub_date": "2026-11-20T12:00:00Z",
        "notes": "What is new.",
        "platforms": {
            each: {"url": f"{CDN}/shell/1.2.3/shell.tar.gz", "signature": "c2ln"}
            for each in TERMS.platforms
        },
    }


def result(changed: dict[str, Any], terms: Terms = TERMS) -> Manifest | list[Fault]:
    return read(json.dumps(changed).encode(), changed, terms)


def faults(changed: dict[str, Any], terms: Terms = TERMS) -> list[tuple[str, str]]:
    found = result(changed, terms)
    assert isinstance(found, list)
    assert all(fault.detail for fault in found)
    return [(fault.pointer, fault.code) for fault in found]


def with_(**members: Any) -> Change:
    return lambda given: given.update(members)


def without(member: str) -> Change:
    return lambda given: given.pop(member)


def mac(**members: Any) -> Change:
    return lambda given: given["platforms"]["darwin-aarch64"].update(members)


def url(path: str) -> Change:
    return mac(url=f"{CDN}{path}")


def platform(name: str, entry: Any = None) -> Change:
    given = entry or {"url": f"{CDN}/shell/1.2.3/other", "signature": "c2ln"}
    return lambda changed: changed["platforms"].update({name: given})


MAC = "/platforms/darwin-aarch64"
REFUSED: list[tuple[Change, str, str]] = [
    (without("version"), "/version", "required"),
    (with_(version=None), "/version", "required"),
    (with_(version=123), "/version", "invalid_type"),
    (without("channel"), "/channel", "required"),
    (with_(channel="beta"), "/channel", "channel_mismatch"),
    (with_(channel=["stable"]), "/channel", "channel_mismatch"),
    (without("pub_date"), "/pub_date", "required"),
    (with_(pub_date=1763640000), "/pub_date", "invalid_type"),
    (with_(pub_date="2026-11-20T12:00:00"), "/pub_date", "invalid_date"),
    (with_(pub_date="2026-11-20"), "/pub_date", "invalid_date"),
    (with_(pub_date="2026-11-20 12:00:00Z"), "/pub_date", "invalid_date"),
    (with_(pub_date="2026-11-20T12:00:00+0100"), "/pub_date", "invalid_date"),
    (with_(pub_date="2026-11-20T12:00Z"), "/pub_date", "invalid_date"),
    (with_(pub_date="2026-02-30T12:00:00Z"), "/pub_date", "invalid_date"),
    (with_(pub_date="2026-11-20T24:00:00Z"), "/pub_date", "invalid_date"),
    (with_(pub_date="2026-11-20T12:00:00+25:00"), "/pub_date", "invalid_date"),
    (with_(pub_date="2026-11-20T12:00:00+24:00"), "/pub_date", "invalid_date"),
    (with_(pub_date="2026-11-20T12:00:00+05:99"), "/pub_date", "invalid_date"),
    (with_(pub_date="2026-11-20T12:00:00-05:60"), "/pub_date", "invalid_date"),
    (with_(notes=["new"]), "/notes", "invalid_type"),
    (with_(name="1.2.3"), "/name", "not_allowed"),
    (with_(x=10**400), "/x", "out_of_range"),
    (with_(x={"a/b": [0, -(10**309)]}), "/x/a~1b/1", "out_of_range"),
    (with_(x=float("inf")), "/x", "out_of_range"),
    (mac(size=10**400), f"{MAC}/size", "out_of_range"),
    (with_(url="nowhere"), "/url", "not_allowed"),
    (with_(signature=1), "/signature", "not_allowed"),
    (without("platforms"), "/platforms", "required"),
    (with_(platforms=[]), "/platforms", "invalid_type"),
    (platform("darwin-universal"), "/platforms/darwin-universal", "unknown_platform"),
    (platform("a/b~c"), "/platforms/a~1b~0c", "unknown_platform"),
    (
        lambda given: given["platforms"].pop("windows-x86_64"),
        "/platforms/windows-x86_64",
        "required",
    ),
    (platform("linux-x86_64", "text"), "/platforms/linux-x86_64", "invalid_type"),
    (mac(url=None), f"{MAC}/url", "required"),
    (mac(url=""), f"{MAC}/url", "required"),
    (mac(url=["x"]), f"{MAC}/url", "invalid_type"),
    (mac(signature=None), f"{MAC}/signature", "required"),
    (mac(signature=""), f"{MAC}/signature", "required"),
    (mac(signature={"ed25519": ""}), f"{MAC}/signature", "invalid_type"),
    (mac(url="shell.tar.gz"), f"{MAC}/url", "not_an_address"),
    (mac(url="//cdn.shell.test/shell/1.2.3/a"), f"{MAC}/url", "not_an_address"),
    (mac(url="https://[::1/shell/1.2.3/a"), f"{MAC}/url", "not_an_address"),
    (mac(url="file:///shell/1.2.3/a"), f"{MAC}/url", "not_an_address"),
    (mac(url="http://cdn.shell.test/shell/1.2.3/a"), f"{MAC}/url", "insecure"),
    (mac(url="https://evil.test/shell/1.2.3/a"), f"{MAC}/url", "foreign_host"),
    (mac(url="https://cdn.shell.test.evil.test/shell/1.2.3/a"), f"{MAC}/url", "foreign_host"),
    (mac(url="https://cdn.shell.test@evil.test/shell/1.2.3/a"), f"{MAC}/url", "foreign_host"),
    (mac(url="https://cdn.shell.test:8443/shell/1.2.3/a"), f"{MAC}/url", "foreign_host"),
    (mac(url="https://me@cdn.shell.test/shell/1.2.3/a"), f"{MAC}/url", "foreign_host"),
    (url("/other/1.2.3/a"), f"{MAC}/url", "wrong_path"),
    (url("/shell/1.2.4/a"), f"{MAC}/url", "wrong_path"),
    (url("/shell/1.2.30/a"), f"{MAC}/url", "wrong_path"),
    (url("/shell/v1.2.3/a"), f"{MAC}/url", "wrong_path"),
    (url("/shell/windows-x86_64/1.2.3/a"), f"{MAC}/url", "wrong_path"),
    (url("/shell/1.2.3/"), f"{MAC}/url", "wrong_name"),
    (url("/shell/1.2.3//a"), f"{MAC}/url", "wrong_name"),
    (url("/shell/1.2.3/.hidden"), f"{MAC}/url", "wrong_name"),
    (url("/shell/1.2.3/ä"), f"{MAC}/url", "wrong_name"),
    (url("/shell/1.2.3/../../internal/x"), f"{MAC}/url", "dot_segment"),
    (url("/shell/1.2.3/./a"), f"{MAC}/url", "dot_segment"),
    (url("/shell/1.2.3/.."), f"{MAC}/url", "dot_segment"),
    (url("/shell/1.2.3/%2e%2e/x"), f"{MAC}/url", "percent_escape"),
    (url("/shell/1.2.3/a%20b"), f"{MAC}/url", "percent_escape"),
    (url("/shell/1.2.3/..\\x"), f"{MAC}/url", "backslash"),
    (url("/shell/1.2.3/a?x=1"), f"{MAC}/url", "query"),
    (url("/shell/1.2.3/a#x"), f"{MAC}/url", "fragment"),
    (url("/shell/1.2.3/.\t./x"), f"{MAC}/url", "whitespace"),
    (url("/shell/1.2.3/a\n"), f"{MAC}/url", "whitespace"),
    (url("/shell/1.2.3/a b"), f"{MAC}/url", "whitespace"),
]


@pytest.mark.parametrize(("change", "pointer", "code"), REFUSED)
def test_each_fault_has_its_place_and_its_name(change: Change, pointer: str, code: str) -> None:
    changed = document()
    change(changed)
    assert faults(changed) == [(pointer, code)]


@pytest.mark.parametrize(
    "change",
    [
        without("notes"),
        with_(notes=None),
        with_(extra={"anything": [1, None]}),
        with_(extra=[2**64, 10**308, -1.5e308, True]),
        with_(url=None, signature=None),
        with_(pub_date="2026-11-20T12:00:00.123456789+01:00"),
        with_(pub_date="2026-11-20T12:00:00-00:00"),
        with_(pub_date="2026-11-20T12:00:00+23:59"),
        url("/shell/1.2.3/Shell_1.2.3_aarch64-app+x~y.app.tar.gz"),
        url("/shell/1.2.3/deeper/a"),
        url("/shell/darwin-aarch64/1.2.3/a"),
        platform("linux-x86_64-deb"),
        platform(
            "linux-x86_64-deb", {"url": f"{CDN}/shell/linux-x86_64/1.2.3/a", "signature": "x"}
        ),
        platform("linux-x86_64", {"url": f"{CDN}/shell/1.2.3/a", "signature": "x", "with": 1}),
    ],
)
def test_a_manifest_that_shells_accept_is_accepted(change: Change) -> None:
    changed = document()
    change(changed)
    assert isinstance(result(changed), Manifest)


def test_the_manifest_has_its_artifacts_in_a_stable_order() -> None:
    given = document()
    given["platforms"] = dict(reversed(given["platforms"].items()))
    manifest = result(given)
    assert isinstance(manifest, Manifest)
    assert [each.platform for each in manifest.artifacts] == ["darwin-aarch64", "windows-x86_64"]
    assert {each.name for each in manifest.artifacts} == {"shell.tar.gz"}
    assert (manifest.channel, str(manifest.version)) == ("stable", "1.2.3")


def test_all_faults_are_named_at_once() -> None:
    given = {"version": "v1", "channel": "stable", "platforms": {"macos-arm64": {}}}
    assert faults(given) == [
        ("/version", "invalid_version"),
        ("/pub_date", "required"),
        ("/platforms/macos-arm64", "unknown_platform"),
        ("/platforms/darwin-aarch64", "required"),
        ("/platforms/windows-x86_64", "required"),
    ]


def test_the_first_of_very_many_faults_of_a_kind_are_named() -> None:
    name = "k" * 30_000
    given = {**document(), name: [10**400] * 1000}
    assert faults(given) == [(f"/{name[:99]}…/{index}", "out_of_range") for index in range(20)]
    given = {**document(), "platforms": {f"{index}{name}": {} for index in range(50)}}
    found = faults(given)
    assert len(found) == 20
    assert max(len(pointer) for pointer, _ in found) == len("/platforms/") + 100


# Values that a shell cannot read, though RFC 3339 or a file system allows them: the true reason, and the advice.
ADVICE = [
    ("2016-12-31T23:59:60Z", "even a true leap second: write 59"),
    ("2017-01-01T00:59:60.5+01:00", "write 59"),
    ("2026-11-20T12:00:60Z", "write 59"),
    ("2026-11-20t12:00:00Z", "write T and Z"),
    ("2026-11-20T12:00:00z", "write T and Z"),
    ("2016-12-31t23:59:60z", "write T and Z"),
    ("2026-11-20T12:00:00.1234567891Z", "nine digits"),
    ("2026-02-30T12:00:00Z", "no such day"),
    ("2026-11-20T12:00:00", "needs an offset"),
    ("2026-11-20", "Write it like"),
]


@pytest.mark.parametrize(("date", "advice"), ADVICE)
def test_the_reason_for_a_date_is_true(date: str, advice: str) -> None:
    (fault,) = result(document() | {"pub_date": date})  # type: ignore[misc]
    assert advice in fault.detail
    assert ("not RFC 3339" in fault.detail) is (advice in {"needs an offset", "Write it like"})


@pytest.mark.parametrize(
    ("name", "code"),
    [
        # A product's name becomes the file's (gnoviawan/termul#576, Wangnov/Codex-App-Manager#13).
        ("My Shell.app.tar.gz", "whitespace"),
        ("My%20Shell.app.tar.gz", "percent_escape"),
        ("My\u00a0Shell_1.2.3_x64-setup.exe", "whitespace"),
        ("Shell (beta).app.tar.gz", "whitespace"),
        ("Übersicht.app.tar.gz", "wrong_name"),
        ("Shell!.app.tar.gz", "wrong_name"),
    ],
)
def test_a_products_name_that_no_address_may_have_is_told_with_the_way_out(
    name: str, code: str
) -> None:
    changed = document()
    changed["platforms"]["darwin-aarch64"]["url"] = f"{CDN}/shell/1.2.3/{name}"
    (fault,) = result(changed)  # type: ignore[misc]
    assert fault.code == code
    assert "`productName`" in fault.detail
    assert "before it is signed" in fault.detail


def test_a_missing_file_name_is_not_the_products_fault() -> None:
    changed = document()
    changed["platforms"]["darwin-aarch64"]["url"] = f"{CDN}/shell/1.2.3/"
    (fault,) = result(changed)  # type: ignore[misc]
    assert "productName" not in fault.detail


def test_the_near_miss_stands_in_the_detail() -> None:
    changed = document()
    changed["platforms"]["darwin-universal"] = changed["platforms"].pop("darwin-aarch64")
    found = result(changed)
    assert isinstance(found, list)
    assert "darwin-aarch64 was probably meant" in found[0].detail
    assert faults(changed)[1] == ("/platforms/darwin-aarch64", "required")


def test_a_byte_order_mark_is_refused_because_shells_cannot_read_past_it() -> None:
    given = document()
    found = read(b"\xef\xbb\xbf" + json.dumps(given).encode(), given, TERMS)
    assert isinstance(found, list)
    assert [(fault.pointer, fault.code) for fault in found] == [("", "byte_order_mark")]


@pytest.mark.parametrize(
    ("cdn", "taken"),
    [
        ("http://127.0.0.1:9000", True),
        ("http://127.8.8.8/cdn", True),
        ("http://[::1]:9000", True),
        ("http://localhost:9000", True),
        ("http://192.0.2.1", False),
        ("http://cdn.shell.test", False),
        ("http://localhost.evil.test", False),
    ],
)
def test_plain_http_is_for_this_machine_only(cdn: str, taken: bool) -> None:
    given = json.loads(json.dumps(document()).replace(CDN, cdn))
    terms = Terms(channel="stable", cdn_url=cdn, platforms=TERMS.platforms)
    assert isinstance(result(given, terms), Manifest) is taken


def test_a_version_with_build_metadata_has_its_own_folder() -> None:
    text = json.dumps(document()).replace("1.2.3", "1.2.3-rc.1+build.5")
    assert isinstance(result(json.loads(text)), Manifest)
