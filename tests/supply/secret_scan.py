"""Looks for secrets in every file that is or could be committed: ``python -m tests.supply.secret_scan``.

detect-secrets finds them. Tokens and keys of known forms are looked for everywhere; a value beside a word such as
"password", and a string as random as a key, only outside the tests, which are full of both.
"""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from detect_secrets import SecretsCollection
from detect_secrets.plugins.aws import AWSKeyDetector
from detect_secrets.plugins.basic_auth import BasicAuthDetector
from detect_secrets.plugins.github_token import GitHubTokenDetector
from detect_secrets.plugins.gitlab_token import GitLabTokenDetector
from detect_secrets.plugins.jwt import JwtTokenDetector
from detect_secrets.plugins.openai import OpenAIDetector
from detect_secrets.plugins.private_key import PrivateKeyDetector
from detect_secrets.plugins.pypi_token import PypiTokenDetector
from detect_secrets.plugins.sendgrid import SendGridDetector
from detect_secrets.plugins.slack import SlackDetector
from detect_secrets.plugins.stripe import StripeDetector
from detect_secrets.settings import transient_settings

from tests.tools.folders import ROOT

FORMS = (
    AWSKeyDetector(),
    BasicAuthDetector(),
    GitHubTokenDetector(),
    GitLabTokenDetector(),
    JwtTokenDetector(),
    OpenAIDetector(),
    PrivateKeyDetector(),
    PypiTokenDetector(),
    SendGridDetector(),
    SlackDetector(),
    StripeDetector(),
)
GUESSES = {
    "plugins_used": [
        {"name": "KeywordDetector"},
        {"name": "Base64HighEntropyString", "limit": 4.5},
        {"name": "HexHighEntropyString", "limit": 3.0},
    ],
    # A comment that silences a line is not among them: what is justified stands here.
    "filters_used": [
        {"path": f"detect_secrets.filters.heuristic.{name}"}
        for name in ("is_not_alphanumeric_string", "is_templated_secret")
    ],
}
# Hashes of packages.
NOT_READ = ".lock"

# Findings that are no secrets: file, kind, how many of them, and why.
ADDRESS, JWT, WORD = "Basic Auth Credentials", "JSON Web Token", "Secret Keyword"
UPGRADES = tuple(f"tests/served/upgrade/{each}.json" for each in ("1f2697d", "213cb5a1"))
SCRUBBED = "tests/telemetry/test_scrubbing.py"
CLEANED = "tests/llmproxy/test_cleaning.py"
REMOVED = ("AWS Access Key", ADDRESS, "GitHub Token", "GitLab Token", "Private Key", "Slack Token")
JUSTIFIED: dict[tuple[str, str], tuple[int, str]] = {
    ("README.md", ADDRESS): (2, "the forms of addresses"),
    ("config/platform/env/addresses.py", ADDRESS): (1, "the form of a mail server's address"),
    ("docs/strings.txt", ADDRESS): (1, "the form of a mail server's address"),
    ("config/composition/configured.py", WORD): (1, "names of passwords"),
    ("tests/platform/observability/test_database_causes.py", ADDRESS): (
        3,
        "made up, to be kept out of logs",
    ),
    ("tests/platform/env/test_wrong_values.py", ADDRESS): (
        6,
        "made up, to be kept out of refusals",
    ),
    ("tests/platform/env/wrong_values.ndjson", ADDRESS): (
        35,
        "made up, to be kept out of refusals",
    ),
    ("docs/examples/compose/owner.env", ADDRESS): (1, "an address whose password is an ellipsis"),
    ("docs/examples/compose/service.env", ADDRESS): (1, "an address whose password is an ellipsis"),
    ("docs/examples/kubernetes/overlays/example/ingress.yaml", WORD): (1, "the name of a Secret"),
    ("accounts/models/sessions.py", WORD): (1, "the reason why a session ended"),
    ("accounts/factors/console_sessions.py", WORD): (1, "the reason why a session ended"),
    ("accounts/migrations/0001_squashed_0026_second_factors.py", WORD): (
        1,
        "the mark of no password",
    ),
    ("accounts/typed_codes.py", "Base64 High Entropy String"): (1, "an alphabet"),
    ("config/platform/observability/scrubbing.py", WORD): (1, "names of passwords"),
    ("tests/console/test_settings_page.py", ADDRESS): (1, "made up, to be kept off the page"),
    ("tests/accounts/connections/test_authorisation.py", ADDRESS): (1, "a hostile address"),
    ("tests/platform/observability/test_logs.py", JWT): (1, "made up, to be kept out of logs"),
    ("tests/platform/observability/test_reports.py", JWT): (
        1,
        "made up, to be kept out of reports",
    ),
    ("tests/platform/env/test_env.py", ADDRESS): (6, "made up, to be kept out of refusals"),
    ("tests/platform/http/test_exchange.py", ADDRESS): (3, "made up, to be kept out of errors"),
    ("tests/llmproxy/test_image_addresses.py", ADDRESS): (1, "a hostile address"),
    ("tests/local/test_environment.py", ADDRESS): (3, "made up, for an environment file"),
    ("tests/platform/env/test_plain_connections.py", ADDRESS): (
        3,
        "made up, for addresses of servers",
    ),
    ("tests/releases/pipeline/test_identity_tokens.py", JWT): (1, "a token without a signature"),
    ("tests/usage/test_refusal_log.py", JWT): (1, "made up, to be kept out of rows"),
    **{(each, JWT): (1, "of a database that was thrown away") for each in UPGRADES},
    **{(CLEANED, each): (1, "made up, to be removed") for each in REMOVED},
    (CLEANED, JWT): (2, "made up, to be removed"),
    (SCRUBBED, "AWS Access Key"): (1, "made up, to be scrubbed"),
    (SCRUBBED, ADDRESS): (1, "made up, to be scrubbed"),
    (SCRUBBED, "GitHub Token"): (1, "made up, to be scrubbed"),
    (SCRUBBED, JWT): (1, "made up, to be scrubbed"),
    (SCRUBBED, "Private Key"): (3, "the first lines of keys, to be scrubbed"),
    (SCRUBBED, "Slack Token"): (1, "made up, to be scrubbed"),
}


def main() -> int:
    """0 if every finding is justified and every justification is needed, else 1."""
    found = Counter(findings(ROOT, committed()))
    known = Counter({place: many for place, (many, _) in JUSTIFIED.items()})
    for (file, kind), many in sorted((found - known).items()):
        print(f"{file}: {kind}, {many} more than is justified")
    for (file, kind), many in sorted((known - found).items()):
        print(f"{file}: {kind}, {many} fewer than is justified")
    return 0 if found == known else 1


def committed() -> Iterator[str]:
    """Files under version control, and those that the next ``git add`` would put there."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    for name in listed.stdout.splitlines():
        if not name.endswith(NOT_READ) and (ROOT / name).is_file():
            yield name


def findings(root: Path, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """File and kind of each secret that is found, once for each place."""
    with transient_settings(GUESSES):
        guesses = SecretsCollection(root=str(root))
        for name in names:
            # By whole files, which takes a tenth of the library's way by lines.
            text = (root / name).read_text(errors="replace")
            for form in FORMS:
                yield from ((name, form.secret_type) for _ in form.analyze_string(text))
            if not name.startswith("tests/"):
                guesses.scan_file(name)
    yield from ((name, secret.type) for name, secret in guesses)


if __name__ == "__main__":
    sys.exit(main())
