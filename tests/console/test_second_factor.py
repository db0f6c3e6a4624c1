"""The second factor of operators, as their browser and other operators meet it; test_passkeys.py has real passkeys."""

import re
from base64 import b32decode
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
import time_machine
from django.conf import settings as configured
from django.core.management import CommandError, call_command
from django.urls import reverse
from django.utils import timezone
from django_otp.oath import TOTP
from procrastinate.contrib.django.models import ProcrastinateJob
from pytest_django.fixtures import Settings

from accounts.audit import Actor
from accounts.factors.setting_up import make_set_up_code, reset
from accounts.hashers import plain_hash
from accounts.models import (
    AuditEvent,
    Authenticator,
    ConsoleSession,
    PasswordLink,
    RecoveryCodes,
    Role,
    SetUpCode,
    User,
)
from accounts.people.access import disable
from accounts.people.one_time_passwords import set_one_time_password
from accounts.people.password_links import NoFactor, request_link, send_reset
from accounts.people.roles import change_roles, dismiss_operator
from accounts.sessions.revocation import revoke_all
from config.composition.roles import wants_proof
from config.platform.acts import RIGHTS, Proof
from config.platform.encryption import encrypt
from tests.conftest import PASSWORD, Browser
from tests.console.conftest import World
from tests.console.test_every_act import acts as every_act
from tests.console.test_every_act import arranged, targets

pytestmark = pytest.mark.django_db

PROVE, SET_UP, OWN = (
    "/admin/second-factor/",
    "/admin/second-factor/set-up/",
    "/admin/second-factor/own/",
)
APP, RECOVERY = "/admin/second-factor/authenticator/", "/admin/second-factor/recovery/"


@pytest.fixture(autouse=True)
def _required(settings: Settings) -> None:
    settings.OPERATOR_SECOND_FACTOR = True


@pytest.fixture
def other(db: None) -> User:
    return User.objects.create_superuser("other@shell.test")


@pytest.fixture
def half(stranger: Browser, operator: User) -> Browser:
    """A browser that has given the operator's password and nothing else."""
    given = {"username": operator.email, "password": PASSWORD}
    assert stranger.post("/admin/login/", given).status_code == 302
    return stranger


@pytest.fixture
def whole(half: Browser, operator: User, by: Actor, now: datetime) -> Browser:
    """A browser whose operator has set an app up by a code."""
    code = make_set_up_code(user_id=operator.pk, by=by, now=now)
    assert half.post(SET_UP, {"code": code}).status_code == 302
    half.get(APP)
    answer = half.post(APP, {"name": "Phone", "code": code_of(operator)})
    assert (answer.status_code, answer.url) == (302, RECOVERY)  # type: ignore[attr-defined]
    assert acts()[-2:] == ["operator:factor_added", "operator:signed_in"]
    return half


def code_of(user: User, *, later: int = 0) -> str:
    """Returns the code in the operator's app, now or some steps later."""
    codes = TOTP(Authenticator.objects.get(user=user).unseal("key"))
    codes.time = timezone.now().timestamp() + 30 * later
    return f"{codes.token():06}"


def acts(of: str = "operator:") -> list[str]:
    found = AuditEvent.objects.filter(action__startswith=of).order_by("pk")
    return [each.action for each in found]


def sent(browser: Browser, path: str) -> str:
    answer: Any = browser.get(path)
    assert answer.status_code == 302, answer.content
    return str(answer.url)


def mails_to(user: User) -> list[str]:
    jobs = ProcrastinateJob.objects.filter(task_name="mail.send").order_by("pk")
    return [job.args["text"] for job in jobs if job.args["to"] == [user.email]]


def prove_again(browser: Browser, user: User) -> Any:
    """Another proof; the step before it may have used the code of now."""
    Authenticator.objects.filter(user=user).update(last_step=-1)
    return browser.post(PROVE, {"code": code_of(user)})


def age(browser: Browser, **by: float) -> None:
    """Makes the latest proof in this browser so much older."""
    session = browser.session
    session["factor_proved_at"] -= timedelta(**by).total_seconds()
    session.save()


def test_a_password_alone_opens_the_set_up_page_and_nothing_else(half: Browser) -> None:
    for page in ("/admin/", "/admin/accounts/user/", OWN, RECOVERY, "/admin/password_change/"):
        assert sent(half, page).startswith(SET_UP)
    assert sent(half, APP) == SET_UP
    page = half.get(SET_UP)
    assert b"Ask an owner for a set-up code. It works once, for 30 minutes." in page.content
    assert b"passkey-register-button" not in page.content
    # Neither the pages of its roles nor what needs attention there.
    assert b"/admin/accounts/" not in page.content
    assert b'class="count' not in page.content
    begun = half.post("/admin/passkeys/registration-begin/")
    assert begun.status_code == 403
    assert acts() == ["operator:password_accepted"]
    assert half.post("/admin/logout/").status_code == 200


def test_a_set_up_code_is_good_once_and_for_thirty_minutes(
    half: Browser, operator: User, by: Actor, now: datetime
) -> None:
    late = make_set_up_code(user_id=operator.pk, by=by, now=now - timedelta(minutes=31))
    assert b"This code is wrong" in half.post(SET_UP, {"code": late}).content
    first = make_set_up_code(user_id=operator.pk, by=by, now=now)
    code = make_set_up_code(user_id=operator.pk, by=by, now=now)
    assert code.replace("-", "") not in SetUpCode.objects.get().secret_hash
    assert b"This code is wrong" in half.post(SET_UP, {"code": first}).content
    assert half.post(SET_UP, {"code": code.lower()}).status_code == 302
    assert not SetUpCode.objects.exists()
    assert b"passkey-register-button" in half.get(SET_UP).content
    another = Browser()
    another.post("/admin/login/", {"username": operator.email, "password": PASSWORD})
    assert b"This code is wrong" in another.post(SET_UP, {"code": code}).content
    assert b"passkey-register-button" not in another.get(SET_UP).content
    assert acts().count("operator:set_up_code_refused") == 3


def test_a_code_for_one_operator_sets_up_no_other(
    half: Browser, other: User, by: Actor, now: datetime
) -> None:
    code = make_set_up_code(user_id=other.pk, by=by, now=now)
    assert b"This code is wrong" in half.post(SET_UP, {"code": code}).content


def test_a_set_up_code_voids_what_an_earlier_one_opened(
    half: Browser, operator: User, by: Actor, now: datetime
) -> None:
    half.post(SET_UP, {"code": make_set_up_code(user_id=operator.pk, by=by, now=now)})
    assert half.get(APP).status_code == 200
    later = Browser()
    later.post("/admin/login/", {"username": operator.email, "password": PASSWORD})
    later.post(SET_UP, {"code": make_set_up_code(user_id=operator.pk, by=by, now=now)})
    assert later.get(APP).status_code == 200
    assert sent(half, APP).startswith("/admin/login/")


def test_the_key_of_an_app_that_nobody_took_into_use_is_not_shown_for_long(
    whole: Browser, operator: User
) -> None:
    def shown() -> Any:
        return re.findall(r'id="key">([A-Z2-7-]+)<', whole.get(APP).content.decode())

    first = shown()
    assert shown() == first
    begun = Authenticator.objects.filter(confirmed=False)
    begun.update(created_at=timezone.now() - timedelta(minutes=31))
    assert shown() != first
    assert Authenticator.objects.filter(user=operator).count() == 2


def test_an_app_is_set_up_its_key_encrypted_and_its_recovery_codes_shown_once(
    whole: Browser, operator: User
) -> None:
    device = Authenticator.objects.get()
    assert (device.name, device.confirmed) == ("Phone", True)
    assert device.unseal("key") not in bytes(device.key)
    page = whole.post(RECOVERY).content.decode()
    codes = re.findall(r"<code>([0-9A-Z]{4}(?:-[0-9A-Z]{4}){3})</code>", page)
    assert len(set(codes)) == 10
    assert codes[0] not in whole.get(RECOVERY).content.decode()
    stored = RecoveryCodes.objects.get().hashes
    assert all(each.startswith("$argon2id$") for each in stored)
    assert whole.get("/admin/").status_code == 200
    said = "\n".join(mails_to(operator))
    assert "The authenticator app Phone was added to your sign-in." in said
    assert "New recovery codes were created" in said
    assert not any(code in said for code in codes)


def test_the_picture_of_a_key_is_an_image_that_the_policy_allows(
    half: Browser, operator: User, by: Actor, now: datetime
) -> None:
    half.post(SET_UP, {"code": make_set_up_code(user_id=operator.pk, by=by, now=now)})
    page = half.get(APP)
    text = page.content.decode()
    assert 'src="data:image/svg+xml' in text
    assert "img-src 'self' data:" in page.headers["Content-Security-Policy"]
    assert "no-store" in page.headers["Cache-Control"]
    (shown,) = re.findall(r'id="key">([A-Z2-7-]+)<', text)
    assert b32decode(shown.replace("-", "")) == Authenticator.objects.get().unseal("key")


def test_a_sign_in_wants_the_code_after_the_password_and_says_both(
    whole: Browser, operator: User
) -> None:
    whole.post("/admin/logout/")
    whole.post("/admin/login/", {"username": operator.email, "password": PASSWORD})
    assert sent(whole, "/admin/accounts/user/?q=a").startswith(f"{PROVE}?next=%2Fadmin%2Faccounts")
    assert b"passkey-register-button" not in whole.get(PROVE).content
    assert whole.post("/admin/passkeys/registration-begin/").status_code == 403
    answer: Any = prove_again(whole, operator)
    assert (answer.status_code, answer.url) == (302, "/admin/")
    assert whole.get("/admin/").status_code == 200
    assert acts()[-2:] == ["operator:password_accepted", "operator:signed_in"]


def test_the_page_an_operator_was_going_to_comes_next_but_never_another_site(
    whole: Browser, operator: User
) -> None:
    Authenticator.objects.update(last_step=-1)
    there = {"code": code_of(operator), "next": "/admin/accounts/user/"}
    assert whole.post(PROVE, there).headers["Location"] == "/admin/accounts/user/"
    Authenticator.objects.update(last_step=-1)
    away = {"code": code_of(operator), "next": "https://elsewhere.test/admin/"}
    assert whole.post(PROVE, away).headers["Location"] == "/admin/"


def test_a_code_is_good_once_and_a_wrong_one_makes_the_next_wait(
    whole: Browser, operator: User
) -> None:
    device = Authenticator.objects.get()
    codes = TOTP(device.unseal("key"))
    # The code of now may be the next one by now.
    codes.time = 30 * device.last_step
    code = f"{codes.token():06}"
    assert b"This code was used before" in whole.post(PROVE, {"code": code}).content
    device.refresh_from_db()
    assert device.throttling_failure_count == 1
    # Right, but too early after the wrong one: it waits for a second, which a slow machine outlasts.
    late = timezone.now() + timedelta(seconds=60)
    Authenticator.objects.update(last_step=-1, throttling_failure_timestamp=late)
    early = whole.post(PROVE, {"code": code_of(operator)}).content
    wait = re.search(rb"Wait (\d+) seconds?, then enter the current code\.", early)
    assert wait is not None
    assert 1 <= int(wait[1]) <= 61
    assert b"wrong" not in early.partition(wait[0])[2].partition(b"</form>")[0]
    ended = timezone.now() - timedelta(seconds=2)
    Authenticator.objects.update(throttling_failure_timestamp=ended)
    assert whole.post(PROVE, {"code": code_of(operator)}).status_code == 302
    assert acts().count("operator:factor_refused") == 2


@pytest.mark.parametrize(
    "wrong",
    [["12345"], ["abcdef", "1234567"], ["12345"] * 9],
    ids=["one", "two other ones", "as many as the limit lets through"],
)
def test_a_right_first_code_is_taken_straight_after_wrong_ones(
    half: Browser, operator: User, by: Actor, now: datetime, wrong: list[str]
) -> None:
    """The page shows the key itself, so that a wait would keep nobody from the code."""
    half.post(SET_UP, {"code": make_set_up_code(user_id=operator.pk, by=by, now=now)})
    with time_machine.travel(timezone.now(), tick=False):
        half.get(APP)
        for code in wrong:
            told = half.post(APP, {"name": "Phone", "code": code})
            assert b"not the code that the app shows now" in told.content
        answer: Any = half.post(APP, {"name": "Phone", "code": code_of(operator)})
    assert answer.status_code == 302
    assert answer.url == RECOVERY
    device = Authenticator.objects.get()
    assert (device.confirmed, device.throttling_failure_count) == (True, 0)


def test_an_app_in_use_makes_the_next_code_wait_whatever_its_set_up_saw(
    half: Browser, operator: User, by: Actor, now: datetime
) -> None:
    half.post(SET_UP, {"code": make_set_up_code(user_id=operator.pk, by=by, now=now)})
    with time_machine.travel(timezone.now(), tick=False):
        half.get(APP)
        for code in ("12345", code_of(operator)):
            half.post(APP, {"name": "Phone", "code": code})
        assert b"This code is wrong" in half.post(PROVE, {"code": "12345"}).content
        Authenticator.objects.update(last_step=-1)
        early = half.post(PROVE, {"code": code_of(operator)})
    assert b"Wait 1 second, then enter the current code." in early.content


def test_ten_wrong_first_codes_in_a_minute_are_enough(
    half: Browser, operator: User, by: Actor, now: datetime
) -> None:
    half.post(SET_UP, {"code": make_set_up_code(user_id=operator.pk, by=by, now=now)})
    with time_machine.travel(timezone.now(), tick=False):
        half.get(APP)
        for _ in range(10):
            assert half.post(APP, {"name": "Phone", "code": "12345"}).status_code == 200
        answer = half.post(APP, {"name": "Phone", "code": code_of(operator)})
        assert answer.status_code == 429
    assert not Authenticator.objects.filter(confirmed=True).exists()


def test_the_codes_of_one_app_make_no_other_app_wait(whole: Browser, operator: User) -> None:
    phone = Authenticator.objects.get()
    tablet = Authenticator(user=operator, name="Tablet")
    tablet.key = encrypt(b"k" * 20, place=tablet.place("key"))
    tablet.save()
    for device in (tablet, tablet, tablet, phone):
        Authenticator.objects.update(last_step=-1)
        codes = TOTP(device.unseal("key"))
        codes.time = timezone.now().timestamp()
        assert whole.post(PROVE, {"code": f"{codes.token():06}"}).status_code == 302


def test_ten_wrong_codes_in_a_minute_are_enough(whole: Browser, operator: User) -> None:
    assert b"This code is wrong" in whole.post(PROVE, {"code": "000000"}).content
    for _ in range(9):
        # A slow machine outlasts the first waits.
        told = whole.post(PROVE, {"code": "000000"}).content
        assert b"then enter the current code" in told or b"This code is wrong" in told
    assert whole.post(PROVE, {"code": "000000"}).status_code == 429


def test_the_wait_after_wrong_codes_ends_at_seventeen_minutes(
    whole: Browser, operator: User
) -> None:
    now = timezone.now()
    failed = {"throttling_failure_count": 40}
    Authenticator.objects.update(last_step=-1, throttling_failure_timestamp=now, **failed)
    assert whole.post(PROVE, {"code": code_of(operator)}).status_code == 200
    for minutes, status in ((16, 200), (18, 302)):
        at = timezone.now() - timedelta(minutes=minutes)
        Authenticator.objects.update(last_step=-1, throttling_failure_timestamp=at, **failed)
        assert whole.post(PROVE, {"code": code_of(operator)}).status_code == status


def test_an_operator_is_mailed_once_about_wrong_codes_after_the_password(
    whole: Browser, operator: User
) -> None:
    def guess(times: int) -> int:
        for _ in range(times):
            # The wait is over.
            Authenticator.objects.update(
                throttling_failure_timestamp=timezone.now() - timedelta(hours=1)
            )
            whole.post(PROVE, {"code": "000000"})
        return "\n".join(mails_to(operator)).count("then 5 wrong codes")

    assert [guess(4), guess(1), guess(4)] == [0, 1, 1]
    assert Browser.address in mails_to(operator)[-1]


def test_a_recovery_code_signs_in_once_and_the_operator_is_mailed(
    whole: Browser, operator: User
) -> None:
    page = whole.post(RECOVERY).content.decode()
    code = re.findall(r"<code>([0-9A-Z-]{19})</code>", page)[0]
    whole.post("/admin/logout/")
    for expected in (302, 200):
        whole.post("/admin/login/", {"username": operator.email, "password": PASSWORD})
        answer = whole.post(f"{PROVE}?recovery", {"code": code.lower().replace("-", " ")})
        assert answer.status_code == expected
        if expected == 302:
            front = whole.get("/admin/")
            assert b"A recovery code was used; 9 left." in front.content
            assert OWN in front.content.decode()
            whole.post("/admin/logout/")
    assert "A recovery code was used; 9 left." in "\n".join(mails_to(operator))


def test_every_act_asks_for_a_fresh_proof_whose_right_declares_it(
    whole: Browser, operator: User, world: World, by: Actor, now: datetime, rf: Any, settings: Any
) -> None:
    settings.CDN_PURGE = "purge"
    arranged(world, by, now)
    User.objects.create_user("away@shell.test", is_staff=True, is_active=False)
    request = rf.get("/admin/")
    request.user = operator
    age(whole, minutes=11)
    wrong, newest = [], AuditEvent.objects.latest("pk").pk
    for console, act in every_act():
        right = f"{console.opts.label_lower}_{act.name}"
        adds = act is console.add_action
        rows = [None] if adds else list(targets(console, act, request))
        assert rows, f"no row of this world allows {right}: arrange one"
        for row in rows:
            person = console.owner(row)
            for_operators = person is not None and person.is_staff
            proof = RIGHTS[right].proof
            grave = proof == Proof.GRAVE or (proof == Proof.GRAVE_FOR_OPERATORS and for_operators)
            address = reverse(f"admin:{right.replace('.', '_')}", args=[] if adds else [row.pk])
            answers: list[Any] = [whole.get(address)]
            if grave:
                answers.append(whole.post(address, {"reason": "x", "once": "1"}))
            asked = {each.status_code == 302 and each.url.startswith(PROVE) for each in answers}
            wrong += [f"{right} of {row}"] if asked != {grave} else []
    assert wrong == []
    assert not AuditEvent.objects.filter(pk__gt=newest).exists()


@pytest.mark.parametrize(
    "right",
    [
        "releases.microapp_promote",
        "releases.apppin_unpin",
        "releases.shellchannel_resume",
        "an.act_that_nobody_decided",
    ],
)
def test_actions_that_ship_code_or_that_nobody_decided_want_a_fresh_proof(right: str) -> None:
    assert wants_proof(right, people=[])


def test_an_operator_among_several_people_is_not_disabled_without_a_fresh_proof(
    whole: Browser, operator: User, other: User, user: User
) -> None:
    age(whole, minutes=11)
    address = reverse("admin:accounts_user_disable_several")
    given = {"target": [str(user.pk), str(other.pk)], "reason": "Gone."}
    answer: Any = whole.post(address, {**given, "once": "1"})
    assert answer.url.startswith(PROVE)
    assert acts("user:disabled") == []
    assert whole.post(address, {**given, "target": [str(user.pk)], "once": "2"}).status_code == 302
    prove_again(whole, operator)
    assert whole.post(address, {**given, "once": "3"}).status_code == 302
    assert acts("user:disabled") == ["user:disabled"] * 2


def test_grave_acts_ask_again_after_ten_minutes_and_others_do_not(
    whole: Browser, operator: User, other: User, user: User
) -> None:
    page = reverse("admin:accounts_user_revoke", args=[user.pk])
    plain = reverse("admin:accounts_user_disable", args=[user.pk])
    assert whole.get(page).status_code == 200
    age(whole, minutes=9)
    assert whole.get(page).status_code == 200
    age(whole, minutes=1)
    assert sent(whole, page).startswith(f"{PROVE}?next=%2Fadmin%2Faccounts")
    assert b"more than 10 minutes ago" in whole.get(PROVE).content
    answer = whole.post(page, {"reason": "Lost in <Berlin>.", "once": "0"})
    assert answer.status_code == 302
    assert b"What you typed is kept." in whole.get(PROVE).content
    assert acts("user:tokens_revoked") == []
    assert whole.get(plain).status_code == 200
    assert sent(whole, RECOVERY).startswith(PROVE)
    assert prove_again(whole, operator).status_code == 302
    assert acts()[-1] == "operator:factor_proved"
    # Shown again with what was typed, once; nothing is done before it is sent.
    kept = whole.get(page).content.decode()
    assert "Lost in &lt;Berlin&gt;." in kept
    assert "Nothing has been done yet" in kept
    assert acts("user:tokens_revoked") == []
    assert "Berlin" not in whole.get(page).content.decode()
    assert whole.post(page, {"reason": "Lost.", "once": "1"}).status_code == 302
    assert acts("user:tokens_revoked") == ["user:tokens_revoked"]


def test_a_grave_act_on_several_rows_asks_too(whole: Browser, operator: User, user: User) -> None:
    age(whole, minutes=11)
    chosen = {"action": "revoke", "_selected_action": [str(user.pk)], "index": "0"}
    answer: Any = whole.post(reverse("admin:accounts_user_changelist"), chosen)
    page = reverse("admin:accounts_user_revoke_several")
    assert answer.url == f"{PROVE}?{urlencode({'next': page})}"
    several = {"target": [str(user.pk)], "reason": "Lost twice.", "once": "1"}
    assert whole.post(page, several).status_code == 302
    assert acts("user:tokens_revoked") == []
    assert prove_again(whole, operator).status_code == 302
    kept = whole.get(page).content.decode()
    assert ("Lost twice." in kept, str(user.pk) in kept, user.email in kept) == (True, True, True)
    assert whole.post(page, {**several, "once": "2"}).status_code == 302
    assert acts("user:tokens_revoked") == ["user:tokens_revoked"]


def test_a_kept_form_is_forgotten_after_ten_minutes_and_by_every_other_page(
    whole: Browser, operator: User, user: User
) -> None:
    page = reverse("admin:accounts_user_revoke", args=[user.pk])
    age(whole, minutes=11)
    whole.post(page, {"reason": "Lost in Berlin."})
    prove_again(whole, operator)
    other = reverse("admin:accounts_user_disable", args=[user.pk])
    assert b"Berlin" not in whole.get(other).content
    session = whole.session
    session["kept_form"]["until"] -= 601
    session.save()
    assert b"Berlin" not in whole.get(page).content
    assert "kept_form" not in whole.session


def test_a_rows_own_choice_is_kept_while_the_list_asks(
    whole: Browser, operator: User, user: User
) -> None:
    age(whole, minutes=11)
    chosen = {"action": "revoke", "_selected_action": [str(user.pk)], "index": "0"}
    whole.post(reverse("admin:accounts_user_changelist"), chosen)
    prove_again(whole, operator)
    assert user.email in whole.get(reverse("admin:accounts_user_revoke_several")).content.decode()


def test_a_grave_act_that_adds_a_row_asks_too(whole: Browser, operator: User) -> None:
    page = reverse("admin:llmproxy_provider_add")
    given = {"name": "theirs", "dialect": "openai", "base_url": "https://models.example/v1"}
    given |= {"members": "listed", "fetches": "no", "limit_name": "address"}
    given |= {"api_key": "sk-theirs", "once": "1"}
    assert whole.get(page).status_code == 200
    age(whole, minutes=11)
    assert sent(whole, page).startswith(f"{PROVE}?next=%2Fadmin%2Fllmproxy%2Fprovider%2Fadd")
    answer: Any = whole.post(page, given)
    assert answer.url.startswith(PROVE)
    assert acts("provider:added") == []
    assert "sk-theirs" not in str(dict(whole.session.items()))
    assert prove_again(whole, operator).status_code == 302
    kept = whole.get(page).content.decode()
    assert "https://models.example/v1" in kept
    assert "This was not kept: enter it again." in kept
    assert "sk-theirs" not in kept
    assert whole.post(page, given).status_code == 302
    assert acts("provider:added") == ["provider:added"]


def test_another_operator_makes_a_code_and_resets_a_lost_factor(
    whole: Browser, operator: User, other: User
) -> None:
    making = reverse("admin:accounts_user_set_up_code", args=[other.pk])
    page = whole.post(making, {"reason": "First day.", "once": "1"}).content.decode()
    (code,) = re.findall(r"<code>([0-9A-Z-]{28})</code>", page)
    browser = Browser()
    browser.force_login(other)
    assert browser.post(SET_UP, {"code": code}).status_code == 302
    browser.get(APP)
    browser.post(APP, {"name": "Phone", "code": code_of(other)})
    assert browser.get("/admin/").status_code == 200
    assert whole.get(making).status_code == 302
    resetting = reverse("admin:accounts_user_reset_factor", args=[other.pk])
    assert whole.post(resetting, {"reason": "Lost.", "once": "2"}).status_code == 302
    assert not Authenticator.objects.filter(user=other).exists()
    assert sent(browser, "/admin/").startswith("/admin/login/")
    assert "Your second factor was reset." in "\n".join(mails_to(other))
    event = AuditEvent.objects.filter(action="operator:factor_reset")[:1].get()
    assert (event.actor, event.reason) == (operator.email, "Lost.")


def test_one_act_makes_an_operator_who_begins_with_one_code_that_no_mail_holds(
    whole: Browser, operator: User
) -> None:
    page = reverse("admin:accounts_operator_add")
    given = {"email": "Nora@shell.test", "roles": ["support"], "reason": "Joins us."}
    shown = whole.post(page, {**given, "once": "1"}).content.decode()
    assert "nora@shell.test is an operator" in shown
    code = re.findall(r"<code>([0-9A-Z-]{20,})</code>", shown)[0]
    nora = User.objects.get(email="nora@shell.test")
    assert (nora.is_staff, nora.roles, nora.client_id) == (True, {"support"}, None)
    # A double click: the browser shows the second answer, whose code is the one that is good.
    earlier, shown = code, whole.post(page, {**given, "once": "1"}).content.decode()
    [code] = re.findall(r"<code>([0-9A-Z-]{20,})</code>", shown)
    assert code != earlier
    assert User.objects.filter(email="nora@shell.test").count() == 1
    for other in ({"roles": ["auditor"]}, {"reason": "Another."}):
        said = whole.post(page, {**given, **other, "once": "2"}).content.decode()
        assert "This email is taken." in said
    events = AuditEvent.objects.filter(target_id=str(nora.pk)).order_by("pk")
    told = [(each.action, each.reason) for each in events]
    assert told == [
        ("operator:added", "Joins us."), ("operator:set_up_code_made", "Joins us."),
        ("operator:set_up_code_made", "Joins us."),
    ]  # fmt: skip
    (mail,) = mails_to(nora)
    assert f"{operator.email} made nora@shell.test an operator (support)." in mail
    assert reverse("account:one-time") in mail
    plain = code.replace("-", "")
    for job in ProcrastinateJob.objects.all():
        assert code not in str(job.args)
        assert plain not in str(job.args)

    new = "a passphrase for the console"
    # The mail names the page that asks for the code.
    [begin] = re.findall(r"https://\S+?(/account/password\S*)", mail)
    assert f"{configured.BASE_URL}{begin}</code>" in shown
    asked = Browser().get(begin).content.decode()
    wrong = Browser().post(
        begin, {"email": nora.email, "one_time": "0", "password": new, "again": new}
    )
    assert (
        "The email or the set-up code is wrong, or the code has expired." in wrong.content.decode()
    )
    for page_shown in (asked, wrong.content.decode()):
        assert "Set-up code" in page_shown
        assert "one-time password" not in page_shown.lower()

    # Neither the email alone nor the mail lets anybody in.
    stranger, begin = Browser(), reverse("account:one-time")
    assert nora.has_usable_password() is False
    stranger.post(begin, {"email": nora.email, "one_time": earlier, "password": new, "again": new})
    nora.refresh_from_db()
    assert nora.has_usable_password() is False
    stranger.post(begin, {"email": nora.email, "one_time": code, "password": new, "again": new})
    nora.refresh_from_db()
    assert nora.has_usable_password()
    stranger.post("/admin/login/", {"username": nora.email, "password": new})
    assert sent(stranger, "/admin/").startswith(SET_UP)
    assert re.search(r"<label[^>]*>\s*Set-up code", stranger.get(SET_UP).content.decode())
    assert stranger.post(SET_UP, {"code": code}).status_code == 302
    assert b"authenticator app" in stranger.get(SET_UP).content
    again = whole.post(page, {**given, "once": "2"}).content.decode()
    assert "This email is taken." in again


def test_only_owners_add_operators_and_ineligible_people_are_not_offered(
    whole: Browser, operator: User, user: User
) -> None:
    page = reverse("admin:accounts_operator_add")
    assert page in whole.get(reverse("admin:accounts_operator_changelist")).content.decode()
    fresh = User.objects.create_user("fresh@shell.test")
    make = reverse("admin:accounts_user_operator", args=[fresh.pk])
    person = reverse("admin:accounts_user_change", args=[fresh.pk])
    assert make not in whole.get(person).content.decode()
    fresh.set_password(PASSWORD)
    fresh.save()
    assert make in whole.get(person).content.decode()
    User.objects.filter(pk=fresh.pk).update(is_active=False)
    assert make not in whole.get(person).content.decode()
    other = User.objects.create_superuser("owner-2@shell.test")
    operator.put_roles({Role.SUPPORT})
    assert other.is_owner
    assert whole.get(page).status_code == 403
    shown = whole.get(OWN).content.decode()
    assert "Your roles: support." in shown


def test_the_list_of_operators_tells_roles_factors_and_the_last_sign_in(
    whole: Browser, operator: User, other: User
) -> None:
    rows = (
        whole.get(reverse("admin:accounts_operator_changelist")).content.decode().split("<tr")[1:]
    )
    mine = next(row for row in rows if operator.email in row)
    theirs = next(row for row in rows if other.email in row)
    assert ">Owner</span>" in mine
    assert ">Authenticator app<" in mine
    assert '<span class="chip chip-watch">None</span>' in theirs


def test_a_session_is_named_as_a_device_with_the_raw_text_behind_and_a_new_network_marked(
    whole: Browser, operator: User, now: datetime
) -> None:
    windows = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/131.0.0.0 Safari/537.36"
    began = {"user": operator, "epoch": operator.epoch, "last_used_at": timezone.now()}
    for agent, address in ((windows, Browser.address), ("<b>", "203.0.113.9")):
        ConsoleSession.objects.create(
            **began, browser=agent, started_from=address, started_at=timezone.now()
        )
    shown = whole.get(OWN).content.decode()
    assert "<summary>Chrome on Windows</summary>" in shown
    assert "Windows NT 10.0" in shown
    assert ("&lt;b&gt;" in shown, "<b>" in shown) == (True, False)
    assert "<summary>Unknown browser</summary>" in shown
    known = ConsoleSession.objects.filter(started_from=Browser.address)
    # The very first sign-in came from a network that was new then.
    assert shown.count("new network") == 2
    assert known.count() == 2


def test_nobody_resets_their_own_factor_or_makes_a_code_for_themselves(
    whole: Browser, operator: User
) -> None:
    for name in ("reset_factor", "set_up_code"):
        address = reverse(f"admin:accounts_user_{name}", args=[operator.pk])
        assert whole.post(address, {"reason": "Lost.", "once": "1"}).status_code == 302
    assert Authenticator.objects.filter(user=operator).exists()


def test_commands_make_a_code_and_reset_a_factor(
    half: Browser, operator: User, user: User, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("operator_setup_code", operator.email)
    code = capsys.readouterr().out.strip()
    assert half.post(SET_UP, {"code": code}).status_code == 302
    half.get(APP)
    half.post(APP, {"name": "Phone", "code": code_of(operator)})
    with pytest.raises(CommandError, match="reset it first"):
        call_command("operator_setup_code", operator.email)
    call_command("reset_second_factor", operator.email)
    assert not Authenticator.objects.exists()
    for command in ("operator_setup_code", "reset_second_factor"):
        with pytest.raises(CommandError, match="Only operators"):
            call_command(command, user.email)


def test_no_password_mail_goes_to_an_operator_without_a_factor(
    operator: User, by: Actor, now: datetime
) -> None:
    assert not send_reset(email=operator.email, address=None, request_id="", now=now)
    with pytest.raises(NoFactor):
        request_link(user_id=operator.pk, kind=PasswordLink.Kind.RESET, by=by, now=now)
    assert not PasswordLink.objects.exists()


def test_a_mailed_reset_sets_the_password_and_leaves_the_factor(
    whole: Browser, operator: User, now: datetime, django_capture_on_commit_callbacks: Any
) -> None:
    assert send_reset(email=operator.email, address=None, request_id="", now=now)
    link = PasswordLink.objects.get()
    PasswordLink.objects.update(secret_hash=plain_hash("k" * 43))
    assert link.kind == PasswordLink.Kind.RESET
    new = "another good horse battery"
    fresh = Browser()
    answer = fresh.post(
        reverse("account:password", args=["k" * 43]), {"password": new, "again": new}
    )
    assert answer.status_code == 302
    assert sent(fresh, "/admin/").startswith("/admin/login/")
    fresh.post("/admin/login/", {"username": operator.email, "password": new})
    assert sent(fresh, "/admin/").startswith(PROVE)
    assert Authenticator.objects.get().name == "Phone"


def test_a_session_ends_after_thirty_idle_minutes_and_twelve_hours(whole: Browser) -> None:
    whole.get("/admin/")
    sessions = ConsoleSession.objects.filter(ended_at=None)
    now = timezone.now()
    sessions.update(last_used_at=now - timedelta(minutes=29))
    assert whole.get("/admin/").status_code == 200
    assert sessions.filter(last_used_at__gt=now - timedelta(minutes=1)).exists()
    sessions.update(last_used_at=now - timedelta(minutes=31))
    assert sent(whole, "/admin/").startswith("/admin/login/?next=/admin/")
    assert b"30 minutes without use" in whole.get("/admin/login/").content


def test_a_session_in_use_ends_after_twelve_hours(whole: Browser) -> None:
    whole.get("/admin/")
    ConsoleSession.objects.update(started_at=timezone.now() - timedelta(hours=12, seconds=1))
    assert sent(whole, "/admin/").startswith("/admin/login/")
    assert b"a session ends after 12 hours" in whole.get("/admin/login/").content


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        (revoke_all, "other@shell.test ended all your sessions."),
        (disable, "other@shell.test disabled your account."),
        (reset, "other@shell.test reset your second factor."),
        (dismiss_operator, "other@shell.test removed your operator access."),
        (set_one_time_password, "other@shell.test set a one-time password for you."),
    ],
)
def test_a_signed_out_operator_sees_who_ended_the_session(
    whole: Browser, operator: User, other: User, now: datetime, ends: Any, told: str
) -> None:
    assert whole.get("/admin/").status_code == 200
    by = Actor(name=other.email, id=other.pk)
    ends(user_id=operator.pk, reason="A stolen laptop.", by=by, now=timezone.now())
    assert sent(whole, "/admin/").startswith("/admin/login/?next=/admin/")
    assert f"You were signed out: {told}" in whole.get("/admin/login/").content.decode()
    # Nobody is told twice, nor whoever was never signed in.
    assert b"signed out" not in whole.get("/admin/login/").content
    assert sent(whole, "/admin/").startswith("/admin/login/?next=/admin/")
    assert b"signed out" not in whole.get("/admin/login/").content


def test_a_change_of_roles_is_not_shown_as_the_end_of_a_session(
    whole: Browser, operator: User, other: User
) -> None:
    assert whole.get("/admin/").status_code == 200
    by = Actor(name=other.email, id=other.pk)
    reset(user_id=operator.pk, reason="A lost phone.", by=by, now=timezone.now())
    change_roles(user_id=operator.pk, roles={"support"}, reason="Less.", by=by, now=timezone.now())
    assert sent(whole, "/admin/").startswith("/admin/login/?next=/admin/")
    told = whole.get("/admin/login/").content.decode()
    assert "You were signed out: other@shell.test reset your second factor." in told


def test_operators_list_and_end_their_own_sessions(
    whole: Browser, operator: User, other: User, by: Actor, now: datetime
) -> None:
    second = Browser(HTTP_USER_AGENT="Firefox on a train")
    second.force_login(operator)
    session = second.session
    session.update({name: whole.session[name] for name in ("otp_device_id", "factor_proved_at")})
    session.save()
    assert second.get("/admin/").status_code == 200
    strangers = ConsoleSession.objects.create(
        user=other, epoch=other.epoch, browser="Someone's", started_at=now, last_used_at=now
    )
    page = whole.get(OWN).content.decode()
    assert "Firefox on a train" in page
    assert "Someone&#x27;s" not in page
    theirs = ConsoleSession.objects.get(browser="Firefox on a train")
    age(whole, minutes=11)
    asked = whole.post(OWN, {"end": str(theirs.pk)})
    assert asked.url.startswith(PROVE)  # type: ignore[attr-defined]
    theirs.refresh_from_db()
    assert theirs.ended_at is None
    prove_again(whole, operator)
    for each in (theirs.pk, strangers.pk, "nonsense"):
        assert whole.post(OWN, {"end": str(each)}).status_code == 302
    assert sent(second, "/admin/").startswith("/admin/login/")
    assert b"You were signed out: you ended this session." in second.get("/admin/login/").content
    assert b"This session had already ended." in whole.get("/admin/").content
    strangers.refresh_from_db()
    assert strangers.ended_at is None
    assert acts()[-1] == "operator:session_ended"


def test_a_session_that_was_left_is_not_listed(whole: Browser) -> None:
    whole.get("/admin/")
    whole.post("/admin/logout/")
    assert not ConsoleSession.objects.filter(ended_at=None).exists()


def test_a_ceremony_that_nobody_began_is_refused_and_written_down(
    whole: Browser, operator: User
) -> None:
    for ceremony in ("registration", "authentication"):
        address = f"/admin/passkeys/{ceremony}-complete/"
        answer = whole.post(address, {"id": "x"}, content_type="application/json")
        assert answer.status_code == 400, answer.content
    assert acts()[-2:] == ["operator:factor_refused"] * 2


def test_factors_are_renamed_and_removed_but_not_the_last(whole: Browser, operator: User) -> None:
    device = Authenticator.objects.get()
    whole.post(OWN, {"rename": device.persistent_id, "name": "Old phone"})
    device.refresh_from_db()
    assert device.name == "Old phone"
    whole.post(OWN, {"remove": device.persistent_id})
    assert b"your only factor" in whole.get(OWN).content.replace(b"Your", b"your")
    device.pk, device.name = None, "New phone"
    device.save()
    whole.post(OWN, {"remove": device.persistent_id})
    assert Authenticator.objects.get().name == "Old phone"
    assert acts()[-2:] == ["operator:factor_renamed", "operator:factor_removed"]


def test_nothing_is_asked_where_it_is_off(half: Browser, settings: Settings) -> None:
    settings.OPERATOR_SECOND_FACTOR = False
    assert half.get("/admin/").status_code == 200
    assert sent(half, PROVE) == "/admin/"
    assert sent(half, SET_UP) == OWN
    assert b"OPERATOR_SECOND_FACTOR=off" in half.get(OWN).content
