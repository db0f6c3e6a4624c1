"""Publishing over HTTP: who may, the exact bytes, and the shape of every answer."""

import base64
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from django.test import Client, RequestFactory
from django.utils import timezone
from pytest_django.fixtures import Settings
from rest_framework.test import APIClient, APIRequestFactory

from accounts.models import AuditEvent
from config.platform.env.secret_files import Secret
from releases.delivery.storage import POINTER_CACHE
from releases.models import ShellChannel, ShellRelease
from releases.views import UpdateViewSet
from tests.releases.conftest import SECRET, Pipeline, Release
from tests.tools.minisign import key_pair

pytestmark = pytest.mark.django_db

PUBLISH = "/v1/internal/manifest/publish"
JSON = "application/json"


def problem(response: Any, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.content
    assert response["Content-Type"] == "application/problem+json"
    body: dict[str, Any] = json.loads(response.content)
    assert (body["code"], body["status"]) == (code, status)
    return body


def test_published_is_201_and_the_same_again_200(pipeline: Pipeline) -> None:
    release = pipeline.release("1.0.0")
    first, again = pipeline.post(release), pipeline.post(release)
    assert (first.status_code, again.status_code) == (201, 200)
    assert (
        first.json()
        == again.json()
        == {
            "channel": "stable",
            "version": "1.0.0",
            "url": f"{pipeline.cdn.url}/shell/stable/latest.json",
            "share": 100,
            "purged": None,
        }
    )


def test_the_document_is_kept_byte_for_byte(pipeline: Pipeline) -> None:
    text = json.dumps(pipeline.document())
    odd = ("\n" + text.replace('"What is new."', '"N\\u0065u: \\/ \u00fc"') + "\r\n\t").encode()
    release = pipeline.signed_bytes(odd)
    assert pipeline.post(release).status_code == 201
    assert pipeline.stored()[0] == odd
    assert bytes(ShellRelease.objects.get().manifest) == odd


def test_publishing_is_not_possible_without_publish_secrets(
    pipeline: Pipeline, settings: Settings
) -> None:
    settings.PUBLISH_SECRETS = Secret("PUBLISH_SECRETS", "")
    problem(pipeline.post(pipeline.release()), 503, "not_configured")


def test_publishing_is_not_possible_without_an_update_key(
    pipeline: Pipeline, settings: Settings
) -> None:
    settings.UPDATE_PUBLIC_KEY = None
    release = pipeline.release()
    problem(pipeline.post(release), 503, "not_configured")
    problem(pipeline.post(release, secret="wrong"), 401, "invalid_access_token")


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (None, "not_authenticated"),
        ("", "not_authenticated"),
        (f"Basic {SECRET}", "not_authenticated"),
        (SECRET, "not_authenticated"),
        ("Bearer", "invalid_access_token"),
        ("Bearer ", "invalid_access_token"),
        ("Bearer wrong", "invalid_access_token"),
        (f"Bearer {SECRET[:-1]}", "invalid_access_token"),
        (f"Bearer {SECRET}x", "invalid_access_token"),
        ("Bearer s\u00e9cret", "invalid_access_token"),
    ],
)
def test_publishing_requires_a_secret(pipeline: Pipeline, header: str | None, code: str) -> None:
    release = pipeline.release()
    headers = {"X-Manifest-Signature": release.signature}
    if header is not None:
        headers["Authorization"] = header
    response = APIClient().post(
        f"{PUBLISH}?ch=stable", data=release.body, content_type=JSON, secure=True, headers=headers
    )
    problem(response, 401, code)
    assert response["WWW-Authenticate"].startswith("Bearer")
    assert SECRET not in response.content.decode()
    assert pipeline.nothing_stored()


def test_an_access_token_does_not_publish(pipeline: Pipeline, signed_in: APIClient) -> None:
    release = pipeline.release()
    response = signed_in.post(
        f"{PUBLISH}?ch=stable", data=release.body, content_type=JSON, secure=True
    )
    problem(response, 401, "invalid_access_token")


def test_either_of_two_secrets_publishes_and_the_audit_log_names_it(
    pipeline: Pipeline, settings: Settings
) -> None:
    settings.PUBLISH_SECRETS = Secret("PUBLISH_SECRETS", " the-new-one , the-old-one ")
    assert pipeline.post(pipeline.release("1.0.0"), secret="the-new-one").status_code == 201
    assert pipeline.post(pipeline.release("1.1.0"), secret="the-old-one").status_code == 201
    problem(pipeline.post(pipeline.release("1.2.0")), 401, "invalid_access_token")
    actors = AuditEvent.objects.order_by("id").values_list("actor", flat=True)
    assert list(actors) == ["release pipeline (secret 1)", "release pipeline (secret 2)", ""]
    for event in AuditEvent.objects.all():
        assert "one" not in json.dumps([event.before, event.after, event.reason, event.target])


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("", "/ch"),
        ("ch=", "/ch"),
        ("ch=../stable", "/ch"),
        ("ch=Stable", "/ch"),
        ("ch=-a", "/ch"),
        (f"ch={'a' * 41}", "/ch"),
        ("ch=stable&rollback=perhaps", "/rollback"),
        ("ch=stable&dry_run=2", "/dry_run"),
    ],
)
def test_a_query_that_says_nothing_clear_is_refused(
    pipeline: Pipeline, query: str, pointer: str
) -> None:
    body = problem(pipeline.post(pipeline.release(), query), 400, "invalid_request")
    assert [each["pointer"] for each in body["errors"]] == [pointer]
    assert pipeline.nothing_stored()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "malformed_request"),
        (b"[]", "malformed_request"),
        (b"{", "malformed_request"),
        (b'{"version": "1.0.0", "version": "2.0.0"}', "malformed_request"),
        (b"\xff{}", "malformed_request"),
        (b'{"version": NaN}', "malformed_request"),
        (b'{"a":' * 100 + b"1" + b"}" * 100, "malformed_request"),
        (b'{"version": "1.0.0\\u0000"}', "invalid_request"),
        (b"{}", "invalid_request"),
    ],
)
def test_a_body_that_is_no_manifest_is_refused(pipeline: Pipeline, body: bytes, code: str) -> None:
    problem(pipeline.post(pipeline.signed_bytes(body)), 400, code)
    assert pipeline.nothing_stored()


def test_a_body_of_another_kind_or_size_is_refused(pipeline: Pipeline) -> None:
    headers = {"Authorization": f"Bearer {SECRET}"}
    text = APIClient().post(
        f"{PUBLISH}?ch=stable", data=b"{}", content_type="text/plain", secure=True, headers=headers
    )
    problem(text, 415, "unsupported_media_type")
    large = pipeline.signed({**pipeline.document(), "notes": "x" * 2**20})
    problem(pipeline.post(large), 413, "request_too_large")


def test_every_conflict_is_a_409_with_its_code(pipeline: Pipeline) -> None:
    pipeline.post(pipeline.release("1.1.0"))
    other = pipeline.signed({**pipeline.document("1.1.0"), "notes": "Changed."})
    problem(pipeline.post(other), 409, "version_conflict")
    older = pipeline.release("1.0.0")
    problem(pipeline.post(older), 409, "downgrade_refused")
    assert pipeline.post(older, "ch=stable&rollback=true").status_code == 201


def test_an_artifact_is_named_with_its_cause(pipeline: Pipeline) -> None:
    release = pipeline.release("1.0.0")
    del pipeline.cdn.files["/shell/1.0.0/shell-darwin-aarch64.tar.gz"]
    body = problem(pipeline.post(release), 422, "artifact_rejected")
    assert [(each["pointer"], each["code"]) for each in body["errors"]] == [
        ("/platforms/darwin-aarch64/url", "not_found")
    ]


def test_a_dry_run_is_200_and_changes_nothing(pipeline: Pipeline) -> None:
    response = pipeline.post(pipeline.release("1.0.0"), "ch=stable&dry_run=true")
    assert response.status_code == 200
    assert response.json()["version"] == "1.0.0"
    assert pipeline.nothing_stored()


def test_publishing_is_limited_by_address(pipeline: Pipeline, settings: Settings) -> None:
    settings.RATE_LIMITS = {"publish.ip": "2/d"}
    release = pipeline.release()
    codes = [pipeline.post(release, secret="wrong").status_code for _ in range(3)]
    assert codes == [401, 401, 429]


@pytest.mark.wire
def test_a_release_signed_by_minisign_verifies_as_served(
    pipeline: Pipeline, settings: Settings, tmp_path: Path
) -> None:
    line = key_pair(tmp_path, "update")
    settings.UPDATE_PUBLIC_KEY = base64.b64decode(line)
    document = pipeline.document("1.0.0")
    for entry in document["platforms"].values():
        path = entry["url"].removeprefix(pipeline.cdn.url)
        file = tmp_path / path.rpartition("/")[2]
        file.write_bytes(pipeline.cdn.files[path])
        comment = f"timestamp:1700000000\tfile:{file.name}\tversion:1.0.0"
        entry["signature"] = _signed_by_minisign(file, tmp_path / "update.key", "-t", comment)
    manifest = tmp_path / "latest.json"
    manifest.write_text(json.dumps(document))
    signature = _signed_by_minisign(manifest, tmp_path / "update.key")
    assert pipeline.post(Release(manifest.read_bytes(), signature)).status_code == 201
    served = pipeline.files / "shell" / "stable" / "latest.json"
    verify = [_minisign(), "-V", "-m", str(served), "-P", line]
    subprocess.run(verify, check=True, capture_output=True)


def _signed_by_minisign(file: Path, key: Path, *options: str) -> str:
    command = [_minisign(), "-S", "-s", str(key), "-m", str(file), *options]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    return base64.b64encode(file.with_name(f"{file.name}.minisig").read_bytes()).decode()


def _minisign() -> str:
    found = shutil.which("minisign")
    assert found, "minisign is not installed"
    return found


def ask(query: str, **headers: str) -> Any:
    request = APIRequestFactory().get(f"/v1/updates/manifest?{query}", headers=headers)
    response = UpdateViewSet.as_view({"get": "manifest"})(request)
    return response.render() if hasattr(response, "render") else response


@pytest.fixture
def served(pipeline: Pipeline) -> Release:
    release = pipeline.release("1.2.3")
    pipeline.publish(release)
    return release


@pytest.mark.parametrize(
    "query",
    [
        "ch=stable&os=darwin",
        "ch=stable&os=darwin&arch=aarch64",
        "ch=stable&os=windows&arch=x86_64&current_version=1.2.2",
        "ch=stable&os=windows&current_version=1.2.3-rc.1",
        "ch=stable&os=darwin&current_version=1.2.2%2Bbuild.9&later=member",
    ],
)
def test_a_shell_gets_the_manifest_as_it_was_published(served: Release, query: str) -> None:
    response = ask(query)
    assert response.status_code == 200
    assert response.content == served.body
    assert response["X-Manifest-Signature"] == served.signature
    assert response["Cache-Control"] == POINTER_CACHE
    assert response["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    "current", ["1.2.3", "1.2.3%2Bbuild", "1.2.3+build", "1.2.4-rc.1", "2.0.0"]
)
def test_a_shell_that_has_it_gets_an_empty_204(served: Release, current: str) -> None:
    response = ask(f"ch=stable&os=darwin&current_version={current}")
    assert (response.status_code, response.content) == (204, b"")
    assert "Content-Type" not in response
    assert response["Cache-Control"] == POINTER_CACHE


@pytest.mark.parametrize(
    "query",
    [
        "ch=beta&os=darwin",
        "ch=STABLE&os=darwin",
        "ch=stable&os=linux",
        "ch=stable&os=beos",
        "ch=stable&os=darwin-aarch64",
        "ch=stable&os=darwin&arch=x86_64",
        "ch=stable&os=darwin&arch=x86_64&current_version=9.9.9",
        "ch=stable&os=darwin&arch=aarch64-app",
    ],
)
def test_an_unknown_release_is_a_404_that_caches_may_keep_for_a_minute(
    served: Release, query: str
) -> None:
    response = ask(query)
    problem(response, 404, "not_found")
    assert response["Cache-Control"] == POINTER_CACHE


@pytest.mark.parametrize(
    ("query", "meant"),
    [
        ("os=macos&arch=x64", "darwin-x86_64 (os=darwin&arch=x86_64)"),
        ("os=macos&arch=aarch64", "darwin-aarch64 (os=darwin&arch=aarch64)"),
        ("os=macos", "darwin-aarch64 (os=darwin&arch=aarch64)"),
        ("os=darwin&arch=arm64", "darwin-aarch64 (os=darwin&arch=aarch64)"),
        ("os=darwin-aarch64", "darwin-aarch64 (os=darwin&arch=aarch64)"),
        ("os=linux-x86_64&arch=deb", "linux-x86_64 (os=linux&arch=x86_64)"),
        ("os=win32&arch=x64", "windows-x86_64 (os=windows&arch=x86_64)"),
        ("os=windows&arch=amd64", "windows-x86_64 (os=windows&arch=x86_64)"),
        ("os=Linux&arch=X86_64", "linux-x86_64 (os=linux&arch=x86_64)"),
        ("os=darwin-aarch64&arch=aarch64", "darwin-aarch64 (os=darwin&arch=aarch64)"),
        ("os=beos&arch=m68k", None),
        ("os=linux&arch=x86_64", None),
        ("os=linux", None),
    ],
)
def test_a_shell_with_another_tools_names_is_told_the_id(
    served: Release, query: str, meant: str | None
) -> None:
    for version in ("", "&current_version=1.0.0"):
        response = ask(f"ch=stable&{query}{version}")
        detail = problem(response, 404, "not_found")["detail"]
        hint = f"; {meant} was probably meant" if meant else ""
        assert detail == f"There is no release for this channel and platform{hint}."
        assert response["Cache-Control"] == POINTER_CACHE


@pytest.mark.parametrize("share", ["", "%20", "0", "101", "half"])
def test_a_share_is_a_number_where_it_is_given(pipeline: Pipeline, share: str) -> None:
    release = pipeline.release("1.0.0")
    headers = {"Authorization": f"Bearer {SECRET}", "X-Manifest-Signature": release.signature}
    response = Client().post(
        f"{PUBLISH}?ch=stable&share={share}",
        data=release.body,
        content_type=JSON,
        secure=True,
        headers=headers,
    )
    body = problem(response, 400, "invalid_request")
    assert [each["pointer"] for each in body["errors"]] == ["/share"]
    assert not ShellRelease.objects.exists()


def test_a_channel_without_a_release_has_no_update_for_a_shell() -> None:
    """Else a shell would report an error to its person until the first publish."""
    ShellChannel.objects.create(name="beta")
    for channel in ("stable", "beta"):
        response = ask(f"ch={channel}&os=linux&arch=riscv64&current_version=1.0.0")
        assert (response.status_code, response.content) == (204, b"")
        assert response["Cache-Control"] == POINTER_CACHE
        problem(ask(f"ch={channel}&os=linux"), 404, "not_found")
        assert ask(f"ch={channel}&os=linux&current_version=v1").status_code == 400
    problem(ask("ch=nowhere&os=linux&current_version=1.0.0"), 404, "not_found")


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("os=darwin", "/ch"),
        ("ch=stable", "/os"),
        ("ch=stable&os=", "/os"),
        ("ch=stable&os=darwin&current_version=v1", "/current_version"),
    ],
)
def test_a_shell_that_asks_for_nothing_clear_is_told_so(
    served: Release, query: str, pointer: str
) -> None:
    body = problem(ask(query), 400, "invalid_request")
    assert [each["pointer"] for each in body["errors"]] == [pointer]


@pytest.mark.parametrize("accept", ["application/octet-stream", "text/html", "image/png;q=0"])
def test_a_shell_may_accept_what_it_likes(served: Release, accept: str) -> None:
    response = ask("ch=stable&os=darwin", Accept=accept)
    assert (response.status_code, response["Content-Type"]) == (200, "application/json")


def test_a_known_etag_spares_the_body(served: Release, pipeline: Pipeline) -> None:
    etag = ask("ch=stable&os=darwin")["ETag"]
    unchanged = ask("ch=stable&os=darwin", **{"If-None-Match": etag})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert unchanged["Cache-Control"] == POINTER_CACHE
    pipeline.publish(pipeline.signed_bytes(served.body))
    assert ask("ch=stable&os=darwin", **{"If-None-Match": etag}).status_code == 200


def test_a_release_that_storage_has_not_got_is_not_offered(
    served: Release, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise Killed

    monkeypatch.setattr("releases.delivery.storage_sync.write", die)
    with pytest.raises(Killed):
        pipeline.publish(pipeline.release("2.0.0"))
    assert ask("ch=stable&os=darwin").content == served.body


def test_an_update_check_is_one_query(
    served: Release, django_assert_num_queries: Any, rf: RequestFactory
) -> None:
    assert ask("ch=stable&os=darwin").status_code == 200
    with django_assert_num_queries(1) as asked:
        assert ask("ch=stable&os=darwin&arch=aarch64&current_version=1.0.0").status_code == 200
    # The documents are read once in each process.
    assert "manifest" not in asked[0]["sql"]


def test_a_shell_may_ask_for_the_headers_alone(served: Release, client: Client) -> None:
    address = "/v1/updates/manifest?ch=stable&os=darwin"
    whole, head = (ask(address, secure=True) for ask in (client.get, client.head))
    assert (head.status_code, head.content) == (200, b"")
    for name in ("ETag", "Cache-Control", "X-Manifest-Signature", "Content-Type"):
        assert head[name] == whole[name]
    gone = client.head("/v1/updates/manifest?ch=none&os=darwin", secure=True)
    assert (gone.status_code, gone["Cache-Control"]) == (404, POINTER_CACHE)


def test_a_halted_channel_offers_nothing_to_anybody(served: Release) -> None:
    ShellChannel.objects.update(halted_at=timezone.now())
    for query in ("ch=stable&os=darwin", "ch=stable&os=darwin&current_version=1.0.0"):
        response = ask(query)
        assert (response.status_code, response.content) == (204, b"")
        assert response["Cache-Control"] == POINTER_CACHE
    problem(ask("ch=stable&os=linux"), 404, "not_found")
    ShellChannel.objects.update(halted_at=None)
    assert ask("ch=stable&os=darwin").content == served.body
