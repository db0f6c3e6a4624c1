"""Settings of providers, read again when they change."""

import json
from pathlib import Path
from typing import Any

import pytest

from accounts.connections.providers import ProviderNotConfigured, configured, find
from config.platform.env.secret_files import Secret

ONE = {
    "client_id": "c",
    "authorization_endpoint": "https://a.test/authorize",
    "token_endpoint": "https://a.test/token",
}


def test_a_file_that_changes_is_read_again_and_a_bad_one_changes_nothing(
    tmp_path: Path, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "providers"
    file.write_text(json.dumps({"a": ONE}))
    settings.OAUTH_PROVIDERS = Secret("OAUTH_PROVIDERS", file.read_text(), str(file))
    assert find("a").client_id == "c"
    with pytest.raises(ProviderNotConfigured):
        find("b")
    file.write_text(json.dumps({"a": ONE, "b": ONE}))
    assert sorted(configured()) == ["a", "b"]
    file.write_text('{"b": {"client_secret": "canary"}}')
    assert sorted(configured()) == ["a", "b"]
    assert "secret_file_not_usable" in caplog.text
    assert "canary" not in caplog.text
