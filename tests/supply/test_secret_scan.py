"""The scan for secrets that were committed."""

from pathlib import Path

from tests.supply.secret_scan import findings

# In pieces, so that this file holds none itself.
AWS = "AKIA" + "Z7T4XQ2MNB5RWE3K"
PRIVATE = "-----BEGIN RSA " + "PRIVATE KEY-----"


def found(root: Path, name: str, text: str) -> list[str]:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)
    return sorted(kind for _, kind in findings(root, [name]))


def test_a_credential_of_a_known_form_is_found_in_any_file(tmp_path: Path) -> None:
    for name in ("config/settings.py", "tests/any.py", "docs/page.md", "deploy.yaml"):
        assert "AWS Access Key" in found(tmp_path, name, f"first\nkey: {AWS}\n")
        assert "Private Key" in found(tmp_path, name, f"first\n{PRIVATE}\n")


def test_a_value_beside_a_telling_word_is_found_outside_the_tests(tmp_path: Path) -> None:
    line = "pass" + 'word = "correct-horse-battery-1"\n'
    assert found(tmp_path, "config/settings.py", line) == ["Secret Keyword"]
    assert found(tmp_path, "tests/test_any.py", line) == []


def test_no_comment_silences_the_scan(tmp_path: Path) -> None:
    line = "pass" + 'word = "correct-horse-battery-1"  # pragma: allowlist secret\n'
    assert found(tmp_path, "config/settings.py", line) == ["Secret Keyword"]


def test_plain_code_is_no_finding(tmp_path: Path) -> None:
    text = "pass" + 'word = form.cleaned_data["password"]\nclient_secret = secret("NAME")\n'
    assert found(tmp_path, "config/settings.py", text) == []
