"""Faults of a release, each kind sent to the running service: each refused for its own reason.

`tests/releases/manifests/test_manifest.py` has every fault of a document; here is one of each shape.

The service has a release of the channel already. Whatever is refused changes nothing of it, in the database or
in storage, and leaves no more than the record of the refusal.
"""

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import requests

from accounts.models import AuditEvent
from tests.releases.conftest import Release
from tests.releases.issuer import AUDIENCE, REQUIRED, Issuer
from tests.releases.signing import Signer, encoded
from tests.served.conftest import Ground
from tests.served.database import Database
from tests.served.releasing import SECRET, ServedPipeline
from tests.served.service import running_service
from tests.standins.cdn import Answer, cut_off, running_cdn, status, whole

CHANNEL, HAS, NEXT = "corpus", "1.5.0", "2.0.0"
MAC, WINDOWS = "/platforms/darwin-aarch64", "/platforms/windows-x86_64"
SIGNATURE = "/X-Manifest-Signature"
URL, SIG = f"{MAC}/url", f"{MAC}/signature"
FILE = "shell-darwin-aarch64.tar.gz"
PATH = f"/shell/{NEXT}/{FILE}"
MANY = 2**40


@dataclass
class Bench:
    """A pipeline with a published release, and what to get wrong."""

    pipeline: ServedPipeline
    issuer: Issuer
    published: Release

    @property
    def now(self) -> datetime:
        """Returns the time of each token, which is good for minutes."""
        return datetime.now(UTC)

    def document(self) -> dict[str, Any]:
        return self.pipeline.manifest(NEXT)

    def content(self) -> bytes:
        content = self.pipeline.cdn.files[PATH]
        assert isinstance(content, bytes)
        return content


Act = Callable[[Bench], requests.Response]


@dataclass(frozen=True)
class Case:
    """A mistake, and the cause that must be named: pointers and codes, or a word of the sentence."""

    name: str
    act: Act
    status: int
    code: str
    faults: tuple[tuple[str, str], ...] = ()
    says: str = ""


@pytest.fixture(scope="module")
def bench(ground: Ground) -> Iterator[Bench]:
    with running_cdn() as cdn, running_cdn() as host:
        issuer = Issuer(host)
        pipeline = ServedPipeline(Signer(), cdn, ground.folder / "corpus", channel=CHANNEL)
        demanded = ",".join(f"{name}={value}" for name, value in REQUIRED.items())
        environ = {
            **ground.environ,
            **pipeline.environ(),
            "PUBLISH_OIDC_ISSUER": issuer.url,
            "PUBLISH_OIDC_AUDIENCE": AUDIENCE,
            "PUBLISH_OIDC_CLAIMS": demanded,
        }
        with running_service(ground.folder, environ) as service:
            pipeline.url = service.url
            published = pipeline.made(HAS)
            assert pipeline.post(published).status_code == 201
            yield Bench(pipeline, issuer, published)
            assert service.errors() == []


def raw(body: bytes, **headers: str) -> Act:
    """Bytes as they are, signed."""

    def act(bench: Bench) -> requests.Response:
        signed = bench.pipeline.signed_bytes(body)
        given = {
            "Authorization": f"Bearer {SECRET}",
            "Content-Type": "application/json",
            "X-Manifest-Signature": signed.signature,
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        return bench.pipeline.send(body, f"ch={CHANNEL}", given)

    return act


def asked(query: str) -> Act:
    return lambda bench: bench.pipeline.post(bench.pipeline.signed(bench.document()), query)


def as_(secret: Callable[[Bench], str]) -> Act:
    def act(bench: Bench) -> requests.Response:
        return bench.pipeline.post(bench.pipeline.signed(bench.document()), secret=secret(bench))

    return act


def run(**claims: Any) -> Act:
    """With an identity token whose claims are others."""
    return as_(lambda bench: bench.issuer.token(bench.now, **claims))


def replayed(bench: Bench) -> requests.Response:
    """A token that was refused with one document, and then comes with another."""
    token, query = bench.issuer.token(bench.now), f"ch={CHANNEL}"
    assert bench.pipeline.post(bench.pipeline.made("1.4.0"), query, token).status_code == 409
    return bench.pipeline.post(bench.pipeline.signed(bench.document()), query, token)


def signed_as(sign: Callable[[Bench, bytes], str]) -> Act:
    """With another signature of the manifest."""

    def act(bench: Bench) -> requests.Response:
        body = json.dumps(bench.document()).encode()
        return bench.pipeline.post(Release(body, sign(bench, body)))

    return act


def signature(comment: str = "timestamp:1763630000", **how: bool) -> Callable[[Bench, bytes], str]:
    return lambda bench, body: encoded(bench.pipeline.signer.sign(body, comment, **how))


def edited(change: Callable[[bytes], bytes]) -> Callable[[Bench, bytes], str]:
    """A good signature file of the manifest, changed."""
    return lambda bench, body: encoded(
        change(base64.b64decode(bench.pipeline.signed_bytes(body).signature))
    )


def changed(change: Callable[[dict[str, Any]], Any]) -> Act:
    """A document with a fault, signed as it is."""

    def act(bench: Bench) -> requests.Response:
        document = bench.document()
        change(document)
        return bench.pipeline.post(bench.pipeline.signed(document))

    return act


def with_(**members: Any) -> Act:
    return changed(lambda document: document.update(members))


def without(member: str) -> Act:
    return changed(lambda document: document.pop(member))


def mac(**members: Any) -> Act:
    return changed(lambda document: document["platforms"]["darwin-aarch64"].update(members))


def at(address: str) -> Act:
    """The artifact is at another address; `{cdn}` stands for the CDN's."""

    def act(bench: Bench) -> requests.Response:
        return mac(url=address.replace("{cdn}", bench.pipeline.cdn.url))(bench)

    return act


def renamed(document: dict[str, Any]) -> None:
    document["platforms"]["darwin-universal"] = document["platforms"].pop("darwin-aarch64")


def artifact_signed(sign: Callable[[Bench], str]) -> Act:
    """The artifact with another signature."""

    def act(bench: Bench) -> requests.Response:
        document = bench.document()
        document["platforms"]["darwin-aarch64"]["signature"] = sign(bench)
        return bench.pipeline.post(bench.pipeline.signed(document))

    return act


def stamped(comment: str, **how: bool) -> Act:
    return artifact_signed(
        lambda bench: encoded(bench.pipeline.signer.sign(bench.content(), comment, **how))
    )


def swapped_lines(bench: Bench) -> str:
    """The signature of one file with the trusted comment of another."""
    ours = bench.pipeline.signer.sign(bench.content(), f"file:{FILE}\tversion:{NEXT}")
    other = bench.pipeline.signer.sign(b"other", f"file:{FILE}\tversion:{NEXT}")
    return encoded(b"\n".join([*ours.split(b"\n")[:2], *other.split(b"\n")[2:]]))


def found(answer: Answer | bytes) -> Act:
    """The CDN has something else at the artifact's address."""

    def act(bench: Bench) -> requests.Response:
        release = bench.pipeline.signed(bench.document())
        bench.pipeline.cdn.files[PATH] = answer
        return bench.pipeline.post(release)

    return act


def swapped_files(bench: Bench) -> requests.Response:
    release = bench.pipeline.signed(bench.document())
    files = bench.pipeline.cdn.files
    other = PATH.replace("darwin-aarch64", "windows-x86_64")
    files[PATH], files[other] = files[other], files[PATH]
    return bench.pipeline.post(release)


def gone(bench: Bench) -> requests.Response:
    release = bench.pipeline.signed(bench.document())
    del bench.pipeline.cdn.files[PATH]
    return bench.pipeline.post(release)


def promising(length: int) -> Answer:
    return cut_off(b"x", promised=length)


def version(text: Any) -> Act:
    return changed(lambda document: document.update(version=text))


def older(query: str) -> Act:
    return lambda bench: bench.pipeline.post(bench.pipeline.made("1.4.0"), query)


def conflicting(bench: Bench) -> requests.Response:
    return bench.pipeline.post(bench.pipeline.signed({**bench.pipeline.manifest(HAS), "notes": ""}))


def signed_before(bench: Bench) -> requests.Response:
    release = bench.pipeline.signed(bench.document(), at=1_700_000_000)
    return bench.pipeline.post(release, f"ch={CHANNEL}&rollback=true")


def invalid(name: str, act: Act, *faults: tuple[str, str]) -> Case:
    return Case(name, act, 400, "invalid_request", faults)


def rejected(name: str, act: Act, *faults: tuple[str, str]) -> Case:
    return Case(name, act, 422, "artifact_rejected", faults)


def malformed(name: str, body: bytes, says: str) -> Case:
    return Case(name, raw(body), 400, "malformed_request", says=says)


def refused(name: str, act: Act, *faults: tuple[str, str]) -> Case:
    return Case(name, act, 401, "invalid_access_token", faults)


OF_WHO = [
    Case("no secret", raw(b"{}", Authorization=""), 401, "not_authenticated"),
    refused("a wrong secret", as_(lambda bench: f"{SECRET}x")),
    refused("an expired token", run(exp=1_700_000_600, iat=1_700_000_000), ("/exp", "expired")),
    refused("another audience", run(aud="https://pypi.test"), ("/aud", "wrong_audience")),
    refused(
        "two audiences",
        run(aud=[AUDIENCE, "x"], jti=None),
        ("/aud", "wrong_audience"),
        ("/jti", "required"),
    ),
    refused("another issuer", run(iss="https://issuer.test"), ("/iss", "wrong_issuer")),
    refused("a fork", run(repository="evil/shell"), ("/repository", "wrong_claim")),
    refused(
        "an owner of the same name",
        run(repository_owner_id="666"),
        ("/repository_owner_id", "wrong_claim"),
    ),
    refused(
        "a pull request", run(event_name="pull_request_target"), ("/event_name", "strangers_event")
    ),
    refused("a token with other bytes again", replayed, ("/jti", "served")),
]
OF_FORM = [
    invalid("no channel", asked("rollback=false"), ("/ch", "required")),
    invalid("a channel that climbs", asked("ch=../stable"), ("/ch", "invalid")),
    invalid(
        "neither yes nor no", asked(f"ch={CHANNEL}&rollback=perhaps"), ("/rollback", "invalid")
    ),
    malformed("half a document", b'{"version": "2.0.0"', "not JSON"),
    malformed("a member twice", b'{"version": "1.0.0", "version": "2.0.0"}', "twice"),
    Case("too long", raw(b"{" + b" " * 2**20 + b"}"), 413, "request_too_large"),
    Case("another type", raw(b"{}", Content_Type="text/plain"), 415, "unsupported_media_type"),
    invalid(
        "a byte order mark",
        lambda bench: raw(b"\xef\xbb\xbf" + json.dumps(bench.document()).encode())(bench),
        ("", "byte_order_mark"),
    ),
]
OF_SIGNATURE = [
    invalid("no signature", signed_as(lambda bench, body: ""), (SIGNATURE, "required")),
    invalid(
        "a space in base64",
        signed_as(lambda bench, body: signature()(bench, body).replace("dW50", "dW5 0", 1)),
        (SIGNATURE, "signature_not_base64"),
    ),
    invalid("half a signature", signed_as(edited(lambda file: file[:90])), (SIGNATURE, "signature_unreadable")),
    invalid(
        "a stolen secret with a key of its own",
        signed_as(lambda bench, body: Signer().manifest(body, 1_763_630_000)),
        (SIGNATURE, "wrong_key"),
    ),
    invalid(
        "a signature of other bytes",
        signed_as(lambda bench, body: signature()(bench, body + b"\n")),
        (SIGNATURE, "signature_mismatch"),
    ),
    invalid(
        "an edited trusted comment",
        signed_as(edited(lambda file: file.replace(b"timestamp:1", b"timestamp:2"))),
        (SIGNATURE, "trusted_comment_altered"),
    ),
    invalid("no time", signed_as(signature("file:latest.json")), (SIGNATURE, "no_timestamp")),
    invalid("a time to come", signed_as(signature("timestamp:9999999999")), (SIGNATURE, "timestamp_ahead")),
    Case("an old signature", signed_before, 409, "downgrade_refused", ((SIGNATURE, "signature_not_newer"),)),
]  # fmt: skip
OF_DOCUMENT = [
    invalid("no version", without("version"), ("/version", "required")),
    invalid("a number as version", version(2), ("/version", "invalid_type")),
    invalid("another channel", with_(channel="stable"), ("/channel", "channel_mismatch")),
    invalid(
        "a platform missing",
        changed(lambda document: document["platforms"].pop("windows-x86_64")),
        (WINDOWS, "required"),
    ),
    invalid(
        "an id that no shell asks for",
        changed(renamed),
        ("/platforms/darwin-universal", "unknown_platform"),
        (MAC, "required"),
    ),
    invalid("a whole number that no shell holds", with_(x=10**399), ("/x", "out_of_range")),
    invalid("a foreign host", at(f"http://127.0.0.1.evil.test/shell/{NEXT}/a"), (URL, "foreign_host")),
    invalid("two dots", at(f"{{cdn}}/shell/{NEXT}/../../internal/x"), (URL, "dot_segment")),
]  # fmt: skip
GOOD_COMMENT = f"timestamp:1700000000\tfile:{FILE}\tversion:{NEXT}"
OF_ARTIFACTS = [
    rejected(
        "a line break after base64",
        artifact_signed(
            lambda bench: encoded(bench.pipeline.signer.sign(bench.content(), GOOD_COMMENT)) + "\n"
        ),
        (SIG, "signature_not_base64"),
    ),
    rejected(
        "a public key as signature",
        artifact_signed(lambda bench: encoded(bench.pipeline.signer.public)),
        (SIG, "signature_unreadable"),
    ),
    rejected(
        "another key",
        artifact_signed(
            lambda bench: encoded(Signer().sign(bench.content(), GOOD_COMMENT)),
        ),
        (SIG, "wrong_key"),
    ),
    rejected("the legacy algorithm", stamped(GOOD_COMMENT, legacy=True), (SIG, "legacy_algorithm")),
    rejected("lines of two signatures", artifact_signed(swapped_lines), (SIG, "trusted_comment_altered")),
    rejected("two versions in one", stamped(f"{GOOD_COMMENT}\tversion:9.9.9"), (SIG, "trusted_comment_unreadable")),
    rejected("another file's name", stamped(f"file:other\tversion:{NEXT}"), (SIG, "wrong_file")),
    rejected("no version signed", stamped(f"file:{FILE}"), (SIG, "version_not_signed")),
    rejected("another version signed", stamped(f"file:{FILE}\tversion:{HAS}"), (SIG, "wrong_version")),
    rejected("one byte more", found(b"another build"), (SIG, "signature_mismatch")),
    rejected(
        "files that were swapped",
        swapped_files,
        (SIG, "signature_mismatch"),
        (f"{WINDOWS}/signature", "signature_mismatch"),
    ),
    rejected("nothing there", gone, (URL, "not_found")),
    rejected("a redirect", found(status(302, Location="/elsewhere")), (URL, "redirected")),
    rejected("a broken CDN", found(status(500)), (URL, "unreachable")),
    rejected("an empty file", found(whole(b"")), (URL, "empty")),
    rejected("half a file", found(cut_off(b"x" * 99, promised=100)), (URL, "truncated")),
    rejected("a huge file", found(promising(MANY)), (URL, "too_large")),
    rejected("a content encoding", found(whole(b"x", Content_Encoding="gzip")), (URL, "encoded")),
]  # fmt: skip
OF_PRECEDENCE = [
    Case("known with other bytes", conflicting, 409, "version_conflict", (("/version", "known"),)),
    Case("older", older(""), 409, "downgrade_refused", (("/version", "older"),)),
]
CASES = [*OF_WHO, *OF_FORM, *OF_SIGNATURE, *OF_DOCUMENT, *OF_ARTIFACTS, *OF_PRECEDENCE]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_fault_is_refused_for_its_own_reason_and_changes_nothing(
    bench: Bench, database: Database, case: Case
) -> None:
    pipeline = bench.pipeline
    before = pipeline.rows(database), pipeline.objects()
    last = last_event(database)
    response = case.act(bench)
    assert response.headers["Content-Type"] == "application/problem+json"
    problem = response.json()
    assert (response.status_code, problem["code"]) == (case.status, case.code), problem
    faults = tuple((each["pointer"], each["code"]) for each in problem.get("errors", []))
    assert faults == case.faults
    assert all(each["detail"] for each in problem.get("errors", []))
    assert case.says in problem["detail"]
    assert (pipeline.rows(database), pipeline.objects()) == before
    assert pipeline.offered().content == bench.published.body
    with database.rows():
        events = list(AuditEvent.objects.filter(pk__gt=last, action__startswith="release:"))
    # A token that comes twice is refused twice.
    assert {event.action for event in events} <= {"release:refused", "release:credential_refused"}
    assert len(events) <= 1 + (case.act is replayed)


def test_each_reason_is_given_once_and_there_are_many() -> None:
    causes = [(each.status, each.code, each.faults, each.says) for each in CASES]
    assert len(set(causes)) == len(causes) > 50
    assert len({each.name for each in CASES}) == len(CASES)


def test_a_near_miss_is_suggested_over_the_wire(bench: Bench) -> None:
    (unknown, _) = changed(renamed)(bench).json()["errors"]
    assert "darwin-aarch64 was probably meant" in unknown["detail"]


def test_a_release_without_any_of_these_faults_is_published(
    bench: Bench, database: Database
) -> None:
    """On a channel of its own, so that the others go on about theirs."""
    now = datetime.now(UTC) + timedelta(seconds=1)
    release = bench.pipeline.signed(bench.pipeline.document(NEXT, "flawless"))
    token = bench.issuer.token(now)
    tried = bench.pipeline.post(release, "ch=flawless&dry_run=true", secret=token)
    assert (tried.status_code, bench.pipeline.offered("flawless").status_code) == (200, 404)
    assert bench.pipeline.post(release, "ch=flawless", secret=token).status_code == 201
    assert bench.pipeline.offered("flawless").content == release.body


def last_event(database: Database) -> int:
    with database.rows():
        newest = AuditEvent.objects.order_by("pk").last()
    return newest.pk if newest is not None else 0
