"""Artifacts: fetched from the CDN and verified as a shell would; each refusal names the file and the cause."""

import threading
from collections.abc import Callable
from hashlib import sha256
from http.server import BaseHTTPRequestHandler

import pytest

from config.platform.text.versions import Version
from releases.delivery import fetching
from releases.manifests import artifacts
from releases.manifests.artifacts import ArtifactRejected, Found, verify
from releases.manifests.manifest import Artifact, Manifest
from releases.manifests.minisign import PublicKey
from tests.releases.signing import Signer, encoded
from tests.standins.cdn import IMMUTABLE, Answer, Cdn, cut_off, in_chunks, status, trickle, whole

CONTENT = b"an installer" * 5000
NAME = "shell.tar.gz"
PATH = f"/shell/1.2.3/{NAME}"
MAC = "/platforms/darwin-aarch64"


@pytest.fixture
def signer() -> Signer:
    return Signer()


class Judge:
    """One release of one version at the CDN."""

    def __init__(self, cdn: Cdn, signer: Signer) -> None:
        self.cdn = cdn
        self.signer = signer
        cdn.files[PATH] = CONTENT

    def artifact(self, signature: str | None = None, platform: str = "darwin-aarch64") -> Artifact:
        good = self.signer.artifact(CONTENT, file=NAME, version="1.2.3")
        return Artifact(platform, f"{self.cdn.url}{PATH}", signature or good)

    def verify(self, *given: Artifact, alive: Callable[[], None] = lambda: None) -> list[Found]:
        manifest = Manifest("stable", Version.parse("1.2.3"), given or (self.artifact(),))
        return verify(manifest, key=PublicKey.of(self.signer.public), alive=alive)

    def faults(self, *given: Artifact) -> list[tuple[str, str]]:
        with pytest.raises(ArtifactRejected) as refusal:
            self.verify(*given)
        return [(fault.pointer, fault.code) for fault in refusal.value.errors]


@pytest.fixture
def judge(cdn: Cdn, signer: Signer) -> Judge:
    return Judge(cdn, signer)


def test_a_good_artifact_is_kept_with_its_sum_size_and_cache_header(judge: Judge) -> None:
    (found,) = judge.verify()
    assert found.size == len(CONTENT)
    assert found.sha256 == sha256(CONTENT).hexdigest()
    assert found.cache_control == IMMUTABLE


def test_a_file_without_a_known_length_is_read_to_its_end(judge: Judge) -> None:
    judge.cdn.files[PATH] = in_chunks(CONTENT[:100], CONTENT[100:])
    (found,) = judge.verify()
    assert (found.size, found.cache_control) == (len(CONTENT), "")


def test_a_file_of_two_platforms_is_read_once(judge: Judge) -> None:
    both = (judge.artifact(), judge.artifact(platform="darwin-x86_64"))
    # The same signature, or it would be another file to a shell.
    both = (both[0], Artifact("darwin-x86_64", both[0].url, both[0].signature))
    assert [each.artifact.platform for each in judge.verify(*both)] == [
        "darwin-aarch64",
        "darwin-x86_64",
    ]
    assert judge.cdn.asked == [PATH]
    judge.cdn.files[PATH] = CONTENT + b"."
    assert judge.faults(*both) == [
        (f"{MAC}/signature", "signature_mismatch"),
        ("/platforms/darwin-x86_64/signature", "signature_mismatch"),
    ]


SIGNATURES: list[tuple[Callable[[Signer], str], str]] = [
    (lambda signer: Signer().artifact(CONTENT, file=NAME, version="1.2.3"), "wrong_key"),
    (lambda signer: signer.artifact(CONTENT, file="other", version="1.2.3"), "wrong_file"),
    (lambda signer: signer.artifact(CONTENT, file=NAME, version="1.2.2"), "wrong_version"),
    (lambda signer: encoded(signer.sign(CONTENT, "timestamp:1\tversion:1.2.3")), "wrong_file"),
    (
        lambda signer: encoded(signer.sign(CONTENT, f"timestamp:1\tfile:{NAME}")),
        "version_not_signed",
    ),
    (
        lambda signer: encoded(signer.sign(CONTENT, f"file:{NAME}\tversion:1.2.3", legacy=True)),
        "legacy_algorithm",
    ),
    (
        lambda signer: encoded(
            signer.sign(CONTENT, f"file:{NAME}\tversion:1.2.2").replace(b"1.2.2", b"1.2.3")
        ),
        "trusted_comment_altered",
    ),
    (
        lambda signer: signer.artifact(CONTENT, file=NAME, version="1.2.3") + "\n",
        "signature_not_base64",
    ),
    (
        lambda signer: " " + signer.artifact(CONTENT, file=NAME, version="1.2.3"),
        "signature_not_base64",
    ),
    (lambda signer: f"{NAME}.sig", "signature_not_base64"),
    (lambda signer: encoded(b"RWSomething"), "signature_unreadable"),
    (
        lambda signer: signer.artifact(CONTENT, file=NAME, version="1.2.3")[:200],
        "signature_unreadable",
    ),
]


@pytest.mark.parametrize(("sign", "code"), SIGNATURES)
def test_a_signature_that_a_shell_would_refuse_is_refused_before_anything_is_fetched(
    judge: Judge, signer: Signer, sign: Callable[[Signer], str], code: str
) -> None:
    assert judge.faults(judge.artifact(sign(signer))) == [(f"{MAC}/signature", code)]
    assert judge.cdn.asked == []


ANSWERS: list[tuple[Answer | bytes, str, str]] = [
    (CONTENT + b".", "signature", "signature_mismatch"),
    (CONTENT[:-1], "signature", "signature_mismatch"),
    (status(404), "url", "not_found"),
    (status(403), "url", "not_found"),
    (status(302, Location="/shell/1.2.3/elsewhere"), "url", "redirected"),
    (status(304), "url", "redirected"),
    (status(500), "url", "unreachable"),
    (status(204), "url", "unreachable"),
    (whole(b""), "url", "empty"),
    (whole(CONTENT, Content_Encoding="gzip"), "url", "encoded"),
    (cut_off(CONTENT[:100], promised=len(CONTENT)), "url", "truncated"),
    (in_chunks(CONTENT[:100], complete=False), "url", "truncated"),
]


@pytest.mark.parametrize(("answer", "member", "code"), ANSWERS)
def test_the_file_of_the_cdn_must_match_the_signature(
    judge: Judge, answer: Answer | bytes, member: str, code: str
) -> None:
    judge.cdn.files[PATH] = answer
    assert judge.faults() == [(f"{MAC}/{member}", code)]
    assert judge.cdn.asked == [PATH]


def test_a_cdn_that_is_not_there_is_a_fault_of_the_address(judge: Judge) -> None:
    gone = Artifact("darwin-aarch64", f"http://127.0.0.1:9{PATH}", judge.artifact().signature)
    assert judge.faults(gone) == [(f"{MAC}/url", "unreachable")]


@pytest.mark.parametrize("chunked", [False, True])
def test_a_file_over_the_limit_is_not_read_to_its_end(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, chunked: bool
) -> None:
    monkeypatch.setattr(artifacts, "LIMIT_BYTES", len(CONTENT) - 1)
    judge.cdn.files[PATH] = in_chunks(CONTENT) if chunked else CONTENT
    assert judge.faults() == [(f"{MAC}/url", "too_large")]


@pytest.mark.parametrize("head", [False, True])
def test_a_server_that_sends_a_little_for_ever_is_cut_off_in_time(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, stop: threading.Event, head: bool
) -> None:
    monkeypatch.setattr(artifacts, "TOTAL_SECONDS", 0.5)
    judge.cdn.files[PATH] = trickle(stop, head=head)
    # It comes back, though the answer never ends.
    assert judge.faults() == [(f"{MAC}/url", "too_slow")]


def test_a_server_that_says_nothing_is_left(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, stop: threading.Event
) -> None:
    monkeypatch.setattr(fetching, "SILENCE_SECONDS", 0.3)

    def silent(request: BaseHTTPRequestHandler) -> None:
        stop.wait(60)

    judge.cdn.files[PATH] = silent
    assert judge.faults() == [(f"{MAC}/url", "too_slow")]


def test_the_time_is_one_for_all_artifacts(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, stop: threading.Event
) -> None:
    # Long enough for the first to be asked.
    monkeypatch.setattr(artifacts, "TOTAL_SECONDS", 2.0)
    judge.cdn.files[PATH] = trickle(stop)
    other = Artifact(
        "windows-x86_64",
        f"{judge.cdn.url}/shell/1.2.3/other",
        judge.signer.artifact(CONTENT, file="other", version="1.2.3"),
    )
    assert judge.faults(judge.artifact(), other) == [
        (f"{MAC}/url", "too_slow"),
        ("/platforms/windows-x86_64/url", "too_slow"),
    ]
    assert judge.cdn.asked == [PATH]


def test_a_wait_calls_alive_which_can_stop_it(judge: Judge) -> None:
    class Stopped(Exception):
        pass

    calls = 0

    def alive() -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise Stopped

    with pytest.raises(Stopped):
        judge.verify(alive=alive)
