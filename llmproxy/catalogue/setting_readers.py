"""Checks of the settings of the provider called default."""

import re

from environs import validate

from llmproxy.dialects.names import NAMES

API_KEY = validate.Regexp(
    r"(?i:(?!bearer\s))[ -~]+\Z",
    error="Must be the key alone, in printable ASCII, without the word Bearer before it.",
)
DIALECT = validate.OneOf(NAMES, error=f"Must be {' or '.join(NAMES)}.")
FETCHES = validate.OneOf(("", "yes", "no"), error="Must be yes or no.")
LIMIT_NAME = validate.OneOf(
    ("", "max_tokens", "max_completion_tokens"),
    error="Must be max_tokens or max_completion_tokens.",
)
MEMBERS = validate.Regexp(
    r"(\s*[A-Za-z_][\w.-]{0,99}\s*(,|\Z))*\Z",
    flags=re.ASCII,
    error="Must be names of members, separated by commas.",
)
