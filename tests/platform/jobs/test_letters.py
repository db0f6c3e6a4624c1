"""Mails: both parts of one text."""

import re
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from config.platform.jobs.letters import PRODUCT, letter

WRITTEN = """Acme <GmbH> invites you

Hello,

Choose a
password to start.

[Choose a password] https://shell.test/account/password/x

Works once. Then sign in:
https://shell.test/admin/

---

You did not expect this? Ignore it.
"""
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _address(settings: Settings) -> None:
    settings.BASE_URL = "https://shell.test"


def test_a_mail_has_a_subject_and_two_parts_that_say_the_same() -> None:
    mail = letter(WRITTEN)
    assert mail.subject == "Acme <GmbH> invites you"
    assert mail.text == (
        "Hello,\n\nChoose a\npassword to start.\n\nChoose a password:\n\nhttps://shell.test/account/password/x\n\n"
        "Works once. Then sign in:\nhttps://shell.test/admin/\n\nYou did not expect this? Ignore it.\n\nShell backend\n"
    )
    words = re.sub(r"<style.*?</style>|<[^>]+>", " ", mail.html, flags=re.DOTALL)
    for line in mail.text.replace("Choose a password:", "Choose a password").splitlines():
        assert line in words, line
    assert PRODUCT in mail.html
    assert "<h1>Acme &lt;GmbH&gt; invites you</h1>" in mail.html


def test_a_mail_has_its_button_as_a_link_and_in_words() -> None:
    mail = letter(WRITTEN)
    address = "https://shell.test/account/password/x"
    assert mail.html.count(f'href="{address}"') == 2
    assert f">{address}</a>" in mail.html
    assert '<a href="https://shell.test/admin/">' in mail.html


@pytest.mark.parametrize(
    "paragraph",
    [
        "[Sign in] https://evil.test/",
        "[Sign in] https://shell.test.evil.test/",
        "[Sign in] javascript:alert(1)",
        "https://evil.test/",
        "[a\nb] https://shell.test/x",
    ],
)
def test_no_name_in_a_mail_becomes_a_link_to_elsewhere(paragraph: str) -> None:
    assert "href" not in letter(f"Hello\n\n{paragraph}").html


def test_every_mail_of_a_person_says_what_to_do_if_it_is_unexpected() -> None:
    templates = sorted((ROOT / "templates/account/mail").iterdir())
    assert len(templates) == 12
    for template in templates:
        subject, greeting, *_, rule, last = template.read_text().strip().split("\n\n")
        assert (greeting, rule, "?" in last) == ("Hello,", "---", True), template
        assert "\n" not in subject
