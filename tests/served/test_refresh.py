"""Refresh tokens under fire, over real HTTP."""

from collections import Counter

from accounts.models import RefreshToken, Session
from tests.served.conftest import Ground
from tests.served.crowd import all_at_once
from tests.served.database import Database
from tests.served.people import Person
from tests.served.service import Service, is_worked_off, working_off
from tests.served.shell import Shell
from tests.waiting import eventually

REFRESHES = 20


def test_one_of_twenty_refreshes_with_one_token_succeeds_and_the_session_ends(
    service: Service, database: Database, ground: Ground, person: Person, shell: Shell
) -> None:
    shells = [Shell(service.url) for _ in range(REFRESHES)]
    answers = all_at_once(REFRESHES, lambda number: shells[number].refresh(shell.refresh_token))
    codes = Counter((each.status_code, each.json().get("code")) for each in answers)
    assert codes == {(200, None): 1, (401, "invalid_refresh_token"): REFRESHES - 1}

    (winner,) = (each for each in shells if each.access)
    for each in (shell, winner):
        assert each.get("/v1/auth/me").json()["code"] == "access_revoked"
        assert each.refresh().json()["code"] == "invalid_refresh_token"
    with database.rows():
        (session,) = Session.objects.filter(user_id=person.id)
        assert session.ended_by == Session.Ended.REUSE
        assert not RefreshToken.objects.filter(user_id=person.id, revoked_at=None).exists()

    # The first reuse told operators; the others found the session ended.
    with working_off(service):
        eventually(lambda: is_worked_off(database), seconds=120)
    mails = [path.read_text() for path in (ground.folder / "mail").iterdir()]
    assert sum(f"/admin/accounts/session/{session.pk}/" in mail for mail in mails) == 1


def test_refreshing_goes_on_for_as_long_as_a_person_works(shell: Shell) -> None:
    seen = {shell.refresh_token}
    for _ in range(10):
        assert shell.refresh().status_code == 200
        assert shell.get("/v1/auth/me").status_code == 200
        seen.add(shell.refresh_token)
    assert len(seen) == 11


def test_a_text_that_is_no_refresh_token_is_refused_alike(service: Service) -> None:
    shell = Shell(service.url)
    bodies = []
    for token in ("A" * 43, "x", "é" * 43, "A" * 200):
        response = shell.refresh(token)
        assert response.status_code == 401
        bodies.append({**response.json(), "request_id": ""})
    assert all(body == bodies[0] for body in bodies)
