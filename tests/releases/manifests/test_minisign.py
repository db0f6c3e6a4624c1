"""Signatures: what holds, and what does not, each with its own cause."""

import base64
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from releases.manifests.minisign import PublicKey, Signature, SignatureRefused, decoded
from tests.releases.signing import Signer, encoded
from tests.tools.minisign import key_pair

CONTENT = b"what is signed" * 100
COMMENT = "timestamp:1700000000\tfile:app.tar.gz\tversion:1.2.3"


@pytest.fixture(scope="module")
def signer() -> Signer:
    return Signer()


@pytest.fixture(scope="module")
def key(signer: Signer) -> PublicKey:
    return PublicKey.of(signer.public)


def refused(file: bytes, key: PublicKey, content: bytes = CONTENT) -> str | None:
    """The code with which a signature is refused, if it is."""
    try:
        signature = Signature.parse(file)
        signature.claims(key)
        signature.check_bytes(content, key)
    except SignatureRefused as refusal:
        return refusal.code
    return None


@pytest.mark.parametrize("legacy", [False, True])
def test_both_formats_verify_and_return_their_trusted_comment(
    signer: Signer, key: PublicKey, legacy: bool
) -> None:
    file = signer.sign(CONTENT, COMMENT, legacy=legacy)
    assert refused(file, key) is None
    assert Signature.parse(file).claims(key) == {
        "timestamp": "1700000000",
        "file": "app.tar.gz",
        "version": "1.2.3",
    }


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize(
    "written",
    [
        # aead/minisign#7 and #8, jedisct1/zig-minisign#11: minisign takes either end of a line.
        lambda file: file.replace(b"\n", b"\r\n"),
        lambda file: file.replace(b"\n", b"\r\n").removesuffix(b"\n"),
        lambda file: file.replace(b"\n", b"\r\n").removesuffix(b"\r\n"),
        lambda file: file.replace(b"\n", b"\r\n", 1),
        lambda file: file.removesuffix(b"\n"),
    ],
)
def test_lines_may_end_as_on_windows(
    signer: Signer, key: PublicKey, legacy: bool, written: Callable[[bytes], bytes]
) -> None:
    file = written(signer.sign(CONTENT, COMMENT, legacy=legacy))
    assert refused(file, key) is None
    assert Signature.parse(file).claims(key)["version"] == "1.2.3"


@pytest.mark.parametrize("end", [b"\r", b"\r\r\n", b"\n\n", b"\r\n\r\n"])
def test_other_ends_of_lines_are_refused(signer: Signer, key: PublicKey, end: bytes) -> None:
    file = signer.sign(CONTENT, COMMENT).replace(b"\n", end)
    assert refused(file, key) == "signature_unreadable"


def test_the_key_is_named_as_minisign_prints_it(signer: Signer, key: PublicKey) -> None:
    assert key.name == signer.name
    with pytest.raises(ValueError, match="not a minisign public key"):
        PublicKey.of(signer.public[:-1])


def test_altered_bytes_and_a_wrong_key_are_distinguished(signer: Signer, key: PublicKey) -> None:
    file = signer.sign(CONTENT, COMMENT)
    assert refused(file, key, CONTENT + b".") == "signature_mismatch"
    assert refused(file, PublicKey.of(Signer().public)) == "wrong_key"


def test_a_key_that_only_bears_the_same_id_does_not_pass(signer: Signer, key: PublicKey) -> None:
    forger = Signer()
    forger._id = signer._id
    assert refused(forger.sign(CONTENT, COMMENT), key) == "trusted_comment_altered"


def test_a_trusted_comment_of_another_signature_does_not_pass(
    signer: Signer, key: PublicKey
) -> None:
    ours = signer.sign(CONTENT, COMMENT).split(b"\n")
    other = signer.sign(b"other", COMMENT).split(b"\n")
    assert refused(b"\n".join([*ours[:2], *other[2:]]), key) == "trusted_comment_altered"


def test_the_legacy_format_cannot_be_checked_by_its_digest(signer: Signer, key: PublicKey) -> None:
    signature = Signature.parse(signer.sign(CONTENT, COMMENT, legacy=True))
    with pytest.raises(SignatureRefused) as refusal:
        signature.check_digest(bytes(64), key)
    assert refusal.value.code == "legacy_algorithm"


def _line(number: int, change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    def changed(file: bytes) -> bytes:
        lines = file.split(b"\n")
        lines[number] = change(lines[number])
        return b"\n".join(lines)

    return changed


def _raw(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    return lambda line: base64.b64encode(change(base64.b64decode(line)))


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda file: b"", "signature_unreadable"),
        (lambda file: file[: len(file) // 2], "signature_unreadable"),
        (lambda file: file + b"one more\n", "signature_unreadable"),
        (lambda file: b"\n" + file, "signature_unreadable"),
        (_line(0, lambda line: b"comment"), "signature_unreadable"),
        (_line(1, lambda line: line[:-4]), "signature_unreadable"),
        (_line(1, lambda line: line + b" "), "signature_unreadable"),
        (_line(1, _raw(lambda raw: raw + b"x")), "signature_unreadable"),
        (_line(1, _raw(lambda raw: b"EX" + raw[2:])), "signature_algorithm"),
        (_line(1, _raw(lambda raw: raw[:2] + bytes(8) + raw[10:])), "wrong_key"),
        (_line(1, _raw(lambda raw: raw[:-1] + b"x")), "trusted_comment_altered"),
        (_line(1, _raw(lambda raw: b"Ed" + raw[2:])), "signature_mismatch"),
        (_line(2, lambda line: line.replace(b"1.2.3", b"9.9.9")), "trusted_comment_altered"),
        (_line(2, lambda line: line + b" "), "trusted_comment_altered"),
        (_line(2, lambda line: b"comment: none"), "signature_unreadable"),
        (_line(3, lambda line: b""), "signature_unreadable"),
        (_line(3, _raw(lambda raw: bytes(64))), "trusted_comment_altered"),
    ],
)
def test_a_damaged_signature_is_refused_for_its_own_reason(
    signer: Signer, key: PublicKey, damage: Callable[[bytes], bytes], code: str
) -> None:
    assert refused(damage(signer.sign(CONTENT, COMMENT)), key) == code


@pytest.mark.parametrize("comment", ["file:a\tfile:b", "version:1.0.0\tversion:2.0.0"])
def test_a_trusted_comment_that_says_two_things_is_refused(
    signer: Signer, key: PublicKey, comment: str
) -> None:
    assert refused(signer.sign(CONTENT, comment), key) == "trusted_comment_unreadable"


def test_base64_has_one_form_only(signer: Signer) -> None:
    file = signer.sign(CONTENT, COMMENT)
    text = encoded(file)
    assert decoded(text) == file
    spare = encoded(b"ab")
    assert spare == "YWI="
    for wrong in (
        "",
        f"{text}\n",
        f" {text}",
        f"{text[:8]} {text[8:]}",
        "YWJ=",
        "YWI",
        "Y-I=",
        "ä",
    ):
        with pytest.raises(SignatureRefused) as refusal:
            decoded(wrong)
        assert refusal.value.code == "signature_not_base64"


# tauri-apps/plugins-workspace#3139, tauri-apps/tauri#5142
@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (
            lambda text: "https://cdn.test/shell/1.2.3/app.tar.gz.sig",
            "Put the file's contents here",
        ),
        (lambda text: "target/release/bundle/macos/App.app.tar.gz.sig", "Put the file's contents"),
        (lambda text: "App_1.2.3_x64-setup.exe.minisig", "Put the file's contents"),
        (lambda text: "https://cdn.test/signature", "Put the file's contents"),
        (lambda text: text.rstrip("="), "cut off"),
        (lambda text: text[:-5], "cut off"),
        (lambda text: text[:70], "cut off"),
        (lambda text: text.replace("d", "-"), "not canonical base64"),
    ],
)
def test_a_signature_in_another_form_is_told_what_it_is(
    signer: Signer, spoil: Callable[[str], str], says: str
) -> None:
    text = encoded(signer.sign(CONTENT, COMMENT))
    with pytest.raises(SignatureRefused) as refusal:
        decoded(spoil(text))
    assert refusal.value.code == "signature_not_base64"
    assert says in refusal.value.detail


@pytest.mark.wire
def test_minisign_agrees_with_the_signer_of_these_tests(signer: Signer, tmp_path: Path) -> None:
    line = base64.b64encode(signer.public).decode()
    file, signature = tmp_path / "app.tar.gz", tmp_path / "app.tar.gz.minisig"
    file.write_bytes(CONTENT)
    verify = [_minisign(), "-V", "-m", str(file), "-P", line]
    for legacy in (False, True):
        signature.write_bytes(signer.sign(CONTENT, COMMENT, legacy=legacy))
        done = subprocess.run(verify, check=True, capture_output=True)
        assert COMMENT.encode() in done.stdout
    signature.write_bytes(signer.sign(CONTENT, COMMENT).replace(b"1.2.3", b"9.9.9"))
    assert subprocess.run(verify, check=False, capture_output=True).returncode != 0


@pytest.mark.wire
@pytest.mark.parametrize("flags", [[], ["-l"]])
def test_signatures_by_minisign_verify(tmp_path: Path, flags: list[str]) -> None:
    key = PublicKey.of(base64.b64decode(key_pair(tmp_path, "update")))
    file = tmp_path / "app.tar.gz"
    file.write_bytes(CONTENT)
    command = [_minisign(), "-S", "-s", str(tmp_path / "update.key"), "-m", str(file)]
    subprocess.run(
        [*command, "-t", COMMENT, *flags], check=True, stdin=subprocess.DEVNULL, capture_output=True
    )
    signed = (tmp_path / "app.tar.gz.minisig").read_bytes()
    assert refused(signed, key) is None
    assert Signature.parse(signed).claims(key)["version"] == "1.2.3"
    assert refused(signed, key, CONTENT + b".") == "signature_mismatch"
    assert refused(signed, PublicKey.of(Signer().public)) == "wrong_key"


def _minisign() -> str:
    found = shutil.which("minisign")
    assert found, "minisign is not installed"
    return found
