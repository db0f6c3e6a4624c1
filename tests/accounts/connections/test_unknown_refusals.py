"""A provider that refuses in words that nobody knows: asked ever more seldom, and after six hours the person too."""

from datetime import datetime, timedelta

import pytest

from accounts.audit import Actor
from accounts.connections.disconnecting import tokens_of
from accounts.connections.grants import ReauthorisationNeeded
from accounts.models import AuditEvent, Connection, User
from config.platform.problems.problem import Problem, ProviderError, ProviderUnavailable
from tests.accounts.connections.party import Party, Said, says, tokens
from tests.accounts.connections.test_grants import asked, the_only
from tests.conftest import Browser

pytestmark = pytest.mark.django_db
REFUSED = says(400, error="bad_moon_rising")
HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


@pytest.fixture
def pacing(party: Party, connection: Connection, user: User, by: Actor, now: datetime) -> "Pacing":
    party.answers = [REFUSED]
    return Pacing(party, user, by, now)


class Pacing:
    """Asks whenever the provider may be asked."""

    def __init__(self, party: Party, user: User, by: Actor, now: datetime) -> None:
        self.party, self.user, self.by = party, user, by
        self.began = self.at = now

    def ask(self, *, at: datetime | None = None) -> Problem:
        """The refusal of a token now, or at an instant."""
        if at is not None:
            self.at = at
        with pytest.raises(Problem) as raised:
            asked(self.user, self.by, self.at)
        return raised.value

    def ask_until(self, end: timedelta) -> list[timedelta]:
        """Asks as often as the row allows until the series has lasted so long; returns the pauses."""
        pauses = []
        while self.at - self.began < end:
            self.ask()
            row = the_only()
            assert row.ask_again_at is not None
            assert row.failed_at is not None
            pauses.append(row.ask_again_at - row.failed_at)
            self.at = row.ask_again_at + SECOND
        return pauses


def test_retries_of_a_refresh_slow_down_from_seconds_to_an_hour(pacing: Pacing) -> None:
    pauses = pacing.ask_until(5 * HOUR)
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (timedelta(seconds=5), HOUR)
    assert len(pauses) < 20
    assert the_only().state(at=pacing.at) == "unavailable"


def test_no_request_is_sent_within_the_pause_and_the_caller_gets_its_length(pacing: Pacing) -> None:
    pacing.ask_until(2 * HOUR)
    pacing.ask()
    forms = len(pacing.party.forms)
    problem = pacing.ask()
    assert isinstance(problem, ProviderError)
    assert int(problem.headers["Retry-After"]) > 600
    assert len(pacing.party.forms) == forms


def test_the_first_answer_has_the_length_of_the_pause(pacing: Pacing) -> None:
    pacing.ask()
    problem = pacing.ask(at=pacing.began + HOUR)
    assert int(problem.headers["Retry-After"]) >= 3590


def test_the_person_is_asked_after_six_hours_and_the_tokens_stay(pacing: Pacing) -> None:
    pacing.ask_until(timedelta(hours=5, minutes=59))
    last = pacing.ask(at=pacing.began + 7 * HOUR)
    assert isinstance(last, ReauthorisationNeeded)
    row = the_only()
    assert (row.lapse, row.state(at=pacing.at)) == ("unexplained", "reauthorisation_needed")
    assert tokens_of(row) == ["refresh-1", "access-1"]
    assert row.leased_until is None
    event = AuditEvent.objects.get(action="connection:reauthorisation_needed")
    assert event.after == {"provider": "sheets", "why": "unexplained"}


def test_the_provider_is_asked_each_hour_beside_the_person_and_a_success_heals(
    pacing: Pacing, user: User, by: Actor
) -> None:
    pacing.ask()
    pacing.ask(at=pacing.began + 7 * HOUR)
    forms = len(pacing.party.forms)
    assert isinstance(pacing.ask(at=pacing.began + 7.5 * HOUR), ReauthorisationNeeded)
    assert len(pacing.party.forms) == forms
    assert isinstance(pacing.ask(at=pacing.began + 9 * HOUR), ReauthorisationNeeded)
    assert len(pacing.party.forms) == forms + 1
    assert AuditEvent.objects.filter(action="connection:reauthorisation_needed").count() == 1
    pacing.party.answers = [tokens(2)]
    assert asked(user, by, pacing.began + 11 * HOUR).access_token == "access-2"
    healed = the_only()
    assert (healed.lapse, healed.refused_since, healed.state(at=healed.refreshed_at)) == (
        "",
        None,
        "healthy",
    )


@pytest.mark.parametrize(
    "other", [says(503), says(500), Said(401), says(400, error="invalid_request")]
)
def test_any_other_answer_restarts_the_six_hours(pacing: Pacing, other: Said) -> None:
    pacing.ask()
    pacing.party.answers = [other]
    pacing.ask(at=pacing.began + 4 * HOUR)
    pacing.party.answers = [REFUSED]
    assert not isinstance(pacing.ask(at=pacing.began + 7 * HOUR), ReauthorisationNeeded)
    assert not isinstance(pacing.ask(at=pacing.began + 12 * HOUR), ReauthorisationNeeded)
    assert isinstance(pacing.ask(at=pacing.began + 14 * HOUR), ReauthorisationNeeded)


def test_an_outage_after_the_person_was_asked_takes_nothing_back(pacing: Pacing) -> None:
    pacing.ask()
    pacing.ask(at=pacing.began + 7 * HOUR)
    pacing.party.answers = [says(503)]
    assert isinstance(pacing.ask(at=pacing.began + 9 * HOUR), ReauthorisationNeeded)
    pacing.party.answers = [REFUSED]
    assert isinstance(pacing.ask(at=pacing.began + 11 * HOUR), ReauthorisationNeeded)


def test_a_known_refusal_ends_the_retries(pacing: Pacing) -> None:
    pacing.ask()
    pacing.ask(at=pacing.began + 7 * HOUR)
    pacing.party.answers = [says(400, error="invalid_grant")]
    for hours in (9, 11):
        assert isinstance(pacing.ask(at=pacing.began + hours * HOUR), ReauthorisationNeeded)
    assert the_only().lapse == "refused"
    assert len(pacing.party.forms) == 4


def test_an_outage_of_many_hours_asks_nobody(pacing: Pacing) -> None:
    pacing.party.answers = [says(503)]
    for hours in range(12):
        assert isinstance(pacing.ask(at=pacing.began + hours * HOUR), ProviderUnavailable)
    assert the_only().state(at=pacing.at) == "unavailable"


def test_tokens_of_a_process_of_the_release_before_end_the_series(pacing: Pacing) -> None:
    """It knows nothing of the column, and leaves it as it was."""
    pacing.ask()
    renewed_at = pacing.began + HOUR
    Connection.objects.update(
        refreshed_at=renewed_at, expires_at=renewed_at + HOUR, failure="", failed_at=None, ask_again_at=None
    )  # fmt: skip
    pacing.ask(at=pacing.began + 8 * HOUR)
    assert the_only().lapsed_at is None
    assert the_only().refused_since is not None


def test_operators_see_why_the_person_is_asked(
    pacing: Pacing, console: Browser, connection: Connection
) -> None:
    pacing.ask()
    pacing.ask(at=pacing.began + 7 * HOUR)
    base = "/admin/accounts/connection"
    assert connection.user.email in console.get(f"{base}/?state=lapsed").content.decode()
    page = console.get(f"{base}/{connection.pk}/change/").content.decode()
    assert "refused for hours with an error that is not known here" in page
    assert "refused in unknown words since" in page.lower()
