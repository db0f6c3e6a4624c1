"""The rule for emails, and every place where somebody is added or renamed."""

from collections.abc import Callable
from datetime import datetime

import pytest

from accounts.audit import Actor
from accounts.models import Client, User
from accounts.people.emails import is_email
from accounts.people.importing import preview
from accounts.people.invitations import Fate, Named, judge
from accounts.people.users import NOT_AN_EMAIL, add_operator, add_user, change_email
from config.platform.problems.problem import InvalidRequest

UNSEEN = {
    "right-to-left override": "x@y\u202ex.test",
    "isolate": "x@\u2066yx.test",
    "no width": "x@y\u200bx.test",
    "soft hyphen": "x@y\u00adx.test",
    "mark of order": "x@y\ufeffx.test",
    "private use": "x@y\ue000x.test",
    "control": "x@y\u0085x.test",
    "control in quotes": '"a\x01b"@yx.test',
    "separator": "x@y\u2028x.test",
}


@pytest.mark.parametrize("email", UNSEEN.values(), ids=UNSEEN)
def test_an_invisible_character_is_no_part_of_an_email(email: str) -> None:
    assert not is_email(email)


@pytest.mark.parametrize(
    "email", ["ada@acme.test", "o'hara+x@mail.acme.test", "ada@bücher.test", "ada@例え.test"]
)
def test_emails_as_people_have_them_are_taken(email: str) -> None:
    assert is_email(email)


@pytest.mark.django_db
def test_nobody_is_invited_or_imported_by_such_an_email(organisation: Client) -> None:
    email = UNSEEN["right-to-left override"]
    assert [each.fate for each in judge([Named(1, email)], client=organisation)] == [Fate.FAULTY]
    verdicts, _ = preview(text=f"email\n{email}\n", client=organisation)
    assert [each.fate for each in verdicts] == [Fate.FAULTY]


@pytest.mark.django_db
@pytest.mark.parametrize("email", [UNSEEN["right-to-left override"], "no email"])
def test_nobody_is_added_or_renamed_to_what_is_no_email(
    user: User, by: Actor, now: datetime, email: str
) -> None:
    ways: tuple[Callable[[], object], ...] = (
        lambda: add_user(email=email, client=user.client, by=by, now=now),
        lambda: add_operator(email=email, password=None, by=by, now=now),
        lambda: change_email(user_id=user.pk, email=email, reason="x", by=by, now=now),
    )
    for way in ways:
        with pytest.raises(InvalidRequest) as refused:
            way()
        assert list(refused.value.errors) == [NOT_AN_EMAIL]
    assert [each.email for each in User.objects.all()] == [user.email]
