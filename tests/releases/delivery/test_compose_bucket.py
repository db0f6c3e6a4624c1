"""docs/examples/compose/bucket.py gives the service a user that writes to one bucket. No MinIO ran it."""

import importlib.util
import json
from hashlib import sha256
from types import ModuleType, SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from argon2.low_level import Type, hash_secret_raw
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.tools.folders import ROOT


class Answers:
    """MinIO's doors for administration, as far as the requests show; another server has none."""

    def __init__(self, status: int) -> None:
        self.status, self.asked = status, list[tuple[str, dict[str, list[str]], bytes]]()

    def put(self, url: str, *, data: bytes, headers: dict[str, str], timeout: float) -> Any:
        parts = urlsplit(url)
        assert "Credential=root/" in headers["Authorization"]
        assert headers["X-Amz-Content-SHA256"] == sha256(data).hexdigest()
        self.asked.append((parts.path.rpartition("/")[2], parse_qs(parts.query), data))
        return SimpleNamespace(status_code=self.status, ok=self.status == 200)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """bucket.py, before a server that takes everything of S3."""
    path = ROOT / "docs" / "examples" / "compose" / "bucket.py"
    spec = importlib.util.spec_from_file_location("bucket", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, value in {
        "STORAGE_URL": "s3://releases?endpoint=https://cdn.example.com&region=us-east-1",
        "MINIO_ROOT_USER": "root",
        "MINIO_ROOT_PASSWORD": "root-password",
        "AWS_ACCESS_KEY_ID": "service",
        "AWS_SECRET_ACCESS_KEY": "service-password",
    }.items():
        monkeypatch.setenv(name, value)
    s3 = SimpleNamespace(
        list_buckets=lambda: {"Buckets": [{"Name": "releases"}]}, put_bucket_policy=lambda **_: None
    )
    monkeypatch.setattr(module.boto3, "client", lambda *_, **__: s3)
    return module


def test_the_service_gets_a_user_that_writes_to_one_bucket(
    bucket: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    minio = Answers(200)
    monkeypatch.setattr(bucket, "requests", minio)
    bucket.main()
    (policy, named, written), (add, who, sealed), (give, given, _) = minio.asked
    assert (policy, add, give) == ("add-canned-policy", "add-user", "set-user-or-group-policy")
    assert (named, who) == ({"name": ["writes-releases"]}, {"accessKey": ["service"]})
    assert given == {
        "userOrGroup": ["service"], "isGroup": ["false"], "policyName": ["writes-releases"],
    }  # fmt: skip
    resources = {each for one in json.loads(written)["Statement"] for each in one["Resource"]}
    assert resources == {"arn:aws:s3:::releases", "arn:aws:s3:::releases/*"}
    assert b"service-password" not in sealed
    assert json.loads(_opened(sealed, "root-password")) == {
        "status": "enabled",
        "secretKey": "service-password",
    }


def _opened(sealed: bytes, password: str) -> bytes:
    """As MinIO reads it: 32 bytes of salt, the cipher, 8 of the nonce, and one last piece."""
    salt, cipher, nonce, piece = sealed[:32], sealed[32], sealed[33:41], sealed[41:]
    assert cipher == 0
    key = hash_secret_raw(
        password.encode(), salt, time_cost=1, memory_cost=65536, parallelism=4, hash_len=32,
        type=Type.ID,
    )  # fmt: skip
    aes = AESGCM(key)
    mark = b"\x80" + aes.encrypt(nonce + bytes(4), b"", b"")
    return aes.decrypt(nonce + b"\1\0\0\0", piece, mark)


def test_a_server_other_than_minio_is_not_configured(
    bucket: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bucket, "requests", Answers(404))
    bucket.main()
    assert "no MinIO" in capsys.readouterr().out
    monkeypatch.setattr(bucket, "requests", Answers(403))
    with pytest.raises(SystemExit, match="refused add-canned-policy: 403"):
        bucket.main()


def test_the_root_user_is_no_user_of_the_service(
    bucket: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "root")
    with pytest.raises(SystemExit, match="a key of its own"):
        bucket.main()
