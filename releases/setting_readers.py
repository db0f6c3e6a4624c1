"""Readers of the settings of publishing: its secrets, keys, claims and the purge of the CDN."""

from base64 import b64decode

from environs import ValidationError, validate

from config.platform.env.reading import parser
from config.platform.env.values import pairs, words
from releases.manifests.minisign import PublicKey

# As 24 random bytes in base64.
SECRET_LENGTH = 32
CDN_PURGE_FORM = validate.Regexp(
    r"(|purge|cloudfront:[A-Za-z0-9]+)\Z", error="Must be cloudfront:<distribution> or purge."
)


def publish_secrets(value: str) -> None:
    """Checks that no publish secret can be guessed."""
    if any(len(each) < SECRET_LENGTH for each in words(value)):
        raise ValidationError(f"Each secret must have at least {SECRET_LENGTH} characters.")


@parser
def claims(value: str) -> dict[str, str]:
    """Parses ``repository=owner/project,…``: the required value of each claim of an identity token."""
    given = list(pairs(value))
    if len(dict(given)) < len(given) or not all(name and wanted for name, wanted in given):
        raise ValidationError("Each claim is name=value, once, such as ref=refs/heads/main.")
    return dict(given)


@parser
def minisign_key(value: str) -> bytes | None:
    """The 42 bytes of a minisign public key: its line, its two-line file, or that file in base64; empty is None."""
    if not value:
        return None
    lines = value.splitlines()
    if len(lines) == 1:
        lines = _unwrapped(value)
    try:
        raw = b64decode(lines[-1], validate=True)
        PublicKey.of(raw)
    except ValueError:
        raise ValidationError(
            "Not a minisign public key: give the .pub file or the key line."
        ) from None
    return raw


def _unwrapped(value: str) -> list[str]:
    """Returns the lines of a file in base64, as Tauri writes a key; any other value stays as it is."""
    try:
        text = b64decode(value, validate=True).decode()
    except ValueError:
        return [value]
    return text.splitlines() if text.startswith("untrusted comment:") else [value]
