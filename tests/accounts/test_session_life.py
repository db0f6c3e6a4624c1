"""The life of sessions and their tokens, in any order of events, against a small model of what the contract says.

The model knows neither rows nor locks: a chain of tokens with moments, and what presenting one must do.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import jwt
import pytest
from django.db import transaction
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from accounts.audit import Actor
from accounts.models import AuditEvent, RefreshToken, Session, User
from accounts.people.access import disable, enable
from accounts.people.users import change_password
from accounts.sessions.refresh_tokens import RefreshSecret
from accounts.sessions.retries import wipe_expired
from accounts.sessions.revocation import end_session, revoke_all, sign_out
from accounts.sessions.rotation import InvalidRefreshToken, rotate
from accounts.sessions.sign_in import Device, InvalidCredentials, TokenPair, sign_in
from accounts.worker.pruning import prune_refresh_tokens
from licensing.callers import load_caller
from tests.conftest import PASSWORD

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
KEYS = [None, "a" * 22, "b" * 22]
DEVICES = ["", "desk", "phone"]


@dataclass(eq=False)
class Chain:
    """A session. ``pruned`` once nobody may ask for it any more."""

    id: UUID
    started: datetime
    end: datetime | None
    tokens: list["Held"] = field(default_factory=list)
    ended: datetime | None = None
    why: str = ""
    evidence_at: datetime | None = None
    pruned: bool = False

    def finish(self, now: datetime, why: str) -> None:
        if self.ended is None:
            self.ended, self.why = now, why

    def is_over_since(self, at: datetime) -> bool:
        if self.ended is not None:
            return self.ended < at
        return self.started < at and all(token.ends < at for token in self.tokens)


@dataclass(eq=False)
class Held:
    """A token that was given out. ``asked`` is the key and device of the call that replaced it."""

    text: str
    chain: Chain
    ends: datetime
    replaced: datetime | None = None
    successor: "Held | None" = None
    asked: tuple[str | None, str] = (None, "")

    def is_live(self, now: datetime) -> bool:
        return self.chain.ended is None and self.replaced is None and now < self.ends

    def may_be_retried(self, now: datetime) -> bool:
        """Returns whether a right retry would get the successor again."""
        return (
            self.chain.ended is None
            and self.replaced is not None
            and self.successor is not None
            and self.asked[0] is not None
            and self.successor.is_live(now)
            and now < self.replaced + DAY
        )


class Life(RuleBasedStateMachine):
    """One person, who can sign in as often as they like; everything that may happen to their tokens."""

    tokens = Bundle("tokens")

    def __init__(self, user: User, session_days: int | None, now: datetime) -> None:
        super().__init__()
        self.user = user
        self.session_time = timedelta(days=session_days) if session_days else None
        self.now = now
        self.by = Actor(name="operator@shell.test")
        self.password = PASSWORD
        self.chains: list[Chain] = []
        self.kinds: list[str] = []
        self.example = transaction.atomic()
        self.example.__enter__()

    def teardown(self) -> None:
        transaction.set_rollback(True)
        self.example.__exit__(None, None, None)

    # Events.

    @initialize(target=tokens, device=st.sampled_from(DEVICES))
    def first_login(self, device: str) -> Held:
        return self.login(device)

    @rule(target=tokens, device=st.sampled_from(DEVICES))
    def login(self, device: str) -> Held:
        pair = self._login(device)
        end = self.now + self.session_time if self.session_time else None
        chain = Chain(UUID(claims_of(pair)["sid"]), self.now, end)
        self.chains.append(chain)
        return self._given(chain, pair)

    def _login(self, device: str) -> TokenPair:
        return sign_in(
            email=self.user.email,
            password=self.password,
            device=Device(fingerprint=device),
            now=self.now,
        )

    @rule(
        target=tokens,
        token=tokens,
        key=st.sampled_from(KEYS),
        device=st.sampled_from(DEVICES),
    )
    def present(self, token: Held, key: str | None, device: str) -> Held:
        """Any token there ever was, by anybody."""
        return self._presented(token, key, device)

    def _presented(self, token: Held, key: str | None, device: str) -> Held:
        """Returns the successor of a token, or the token itself where it was refused."""
        if token.is_live(self.now):
            fresh = self._given(token.chain, self._rotate(token, key, device))
            token.replaced, token.successor, token.asked = self.now, fresh, (key, device)
            return fresh
        if token.may_be_retried(self.now) and token.asked == (key, device):
            assert token.successor is not None
            pair = self._rotate(token, key, device)
            assert pair.refresh == token.successor.text
            self._check_access(token.chain, pair)
            return token.successor
        with pytest.raises(InvalidRefreshToken):
            self._rotate(token, key, device)
        self._reused(token)
        return token

    @precondition(lambda self: self._newest() is not None)
    @rule(
        target=tokens,
        key=st.sampled_from(KEYS),
        device=st.sampled_from(DEVICES),
        late=st.booleans(),
    )
    def refresh(self, key: str | None, device: str, late: bool) -> Held:
        """The honest shell: the newest token of a session that goes on, or is about to end."""
        newest = self._newest()
        assert newest is not None
        if late and newest.chain.end is not None:
            self.now = max(self.now, newest.chain.end - HOUR / 6)
        return self._presented(newest, key, device)

    @precondition(lambda self: self._newest() is not None)
    @rule(
        target=tokens,
        key=st.sampled_from(KEYS[1:]),
        device=st.sampled_from(DEVICES),
        asleep=st.sampled_from([timedelta(seconds=5), DAY - HOUR / 6, DAY, DAY + HOUR]),
    )
    def refresh_fall_asleep_and_retry(self, key: str, device: str, asleep: timedelta) -> Held:
        """The honest shell whose answer was lost, on a laptop that was closed."""
        newest = self._newest()
        assert newest is not None
        self._presented(newest, key, device)
        self.now += asleep
        return self._presented(newest, key, device)

    @precondition(lambda self: self._lost() is not None)
    @rule(target=tokens)
    def retry(self) -> Held:
        """The same after whatever has happened meanwhile."""
        lost = self._lost()
        assert lost is not None
        return self._presented(lost, *lost.asked)

    @rule(token=tokens)
    def forge(self, token: Held) -> None:
        """The id is right and the secret half is not: nothing happens, whatever the token is."""
        secret = RefreshSecret.parse(token.text)
        assert secret is not None
        forged = Held(RefreshSecret(secret.raw[:16] + bytes(16)).text(), token.chain, token.ends)
        with pytest.raises(InvalidRefreshToken):
            self._rotate(forged, None, "")
        sign_out(presented=forged.text, by_address=None, request_id="", now=self.now)

    @rule(token=tokens, signed_out=st.booleans())
    def end_one(self, token: Held, signed_out: bool) -> None:
        if signed_out:
            sign_out(presented=token.text, by_address=None, request_id="", now=self.now)
        elif session := Session.objects.filter(pk=token.chain.id).first():
            end_session(session=session, why=Session.Ended.REVOKED, by=self.by, now=self.now)
        if not token.chain.pruned:
            token.chain.finish(self.now, "logout" if signed_out else "revoked")

    @rule(how=st.sampled_from(["revoked", "password", "disabled"]))
    def end_all(self, how: str) -> None:
        newest, user_id = self._newest(), self.user.pk
        if how == "revoked":
            ended = revoke_all(user_id=user_id, by=self.by, reason="test", now=self.now)
        elif how == "password":
            new = PASSWORD + " again" if self.password == PASSWORD else PASSWORD
            ended = change_password(
                user_id=user_id, current=self.password, new=new, by=self.by, now=self.now
            )
            self.password = new
        else:
            ended = disable(user_id=user_id, reason="test", by=self.by, now=self.now)
        self._all_ended(ended, how)
        if how == "disabled":
            with pytest.raises(InvalidCredentials):
                self._login("")
            if newest is not None:
                self._presented(newest, None, "")
            enable(user_id=user_id, reason="test", by=self.by, now=self.now)

    @rule(time=st.sampled_from([timedelta(seconds=5), HOUR, DAY - HOUR / 6, 10 * DAY, 30 * DAY]))
    def time_passes(self, time: timedelta) -> None:
        self.now += time

    @rule()
    def jobs_run(self) -> None:
        wipe_expired(now=self.now)
        boxes = RefreshToken.objects.filter(retry_box__isnull=False)
        assert not boxes.filter(replaced_at__lte=self.now - DAY).exists()
        prune_refresh_tokens(now=self.now)
        for chain in self.chains:
            chain.pruned = chain.pruned or chain.is_over_since(self.now - 30 * DAY)
        kept = set(Session.objects.values_list("pk", flat=True))
        assert kept == {chain.id for chain in self.chains if not chain.pruned}

    # Invariants.

    @invariant()
    def the_live_tokens_are_those_of_the_model(self) -> None:
        live = set(RefreshToken.objects.live(at=self.now).values_list("pk", flat=True))
        assert live == {id_of(token) for token in self._all() if token.is_live(self.now)}
        assert len(live) == sum(self._has_live(chain) for chain in self.chains)

    @invariant()
    def nothing_lives_in_an_ended_session(self) -> None:
        dead = RefreshToken.objects.filter(session__ended_at__isnull=False)
        assert not dead.unrevoked().exists()
        assert not dead.filter(retry_box__isnull=False).exists()
        ended = dict(Session.objects.values_list("pk", "ended_by"))
        assert ended == {chain.id: chain.why for chain in self.chains if not chain.pruned}

    @invariant()
    def a_box_is_kept_for_what_may_be_retried_and_for_nothing_that_was_used(self) -> None:
        boxes = RefreshToken.objects.filter(retry_box__isnull=False)
        assert not boxes.exclude(replaced_by__replaced_at=None).exists()
        kept = set(boxes.values_list("pk", flat=True))
        assert kept >= {id_of(token) for token in self._all() if token.may_be_retried(self.now)}

    @invariant()
    def access_is_taken_at_once_and_only_from_whom_it_was_to_be(self) -> None:
        epoch = User.objects.values_list("epoch", flat=True).get(pk=self.user.pk)
        for chain in self.chains:
            caller = load_caller(user_id=self.user.pk, session_id=chain.id)
            may_call = caller is not None and caller.may_call and caller.epoch == epoch
            assert may_call == (chain.ended is None and not chain.pruned)

    @invariant()
    def every_reuse_left_its_evidence(self) -> None:
        events = AuditEvent.objects.filter(action="session:token_reused").order_by("id")
        assert [event.after["kind"] for event in events if event.after] == self.kinds

    # The model's side.

    def _rotate(self, token: Held, key: str | None, device: str) -> TokenPair:
        device_ = Device(fingerprint=device)
        return rotate(presented=token.text, device=device_, retry_key=key, now=self.now)

    def _given(self, chain: Chain, pair: TokenPair) -> Held:
        ends = min(self.now + 30 * DAY, chain.end or datetime.max.replace(tzinfo=self.now.tzinfo))
        token = Held(pair.refresh, chain, ends)
        chain.tokens.append(token)
        self._check_access(chain, pair)
        return token

    def _check_access(self, chain: Chain, pair: TokenPair) -> None:
        """It is of this session, and neither outlives it nor lasts longer than an hour."""
        claims = claims_of(pair)
        ends = self.now + HOUR if chain.end is None else min(self.now + HOUR, chain.end)
        assert UUID(claims["sid"]) == chain.id
        assert claims["exp"] == int(ends.timestamp())
        assert pair.expires_in == claims["exp"] - claims["iat"]

    def _reused(self, token: Held) -> None:
        chain = token.chain
        if token.replaced is None or chain.pruned:
            return
        if chain.ended is None:
            assert token.successor is not None
            soon = self.now - token.replaced <= timedelta(seconds=10)
            unused = token.successor.replaced is None
            self.kinds.append("concurrent" if soon and unused else "stale")
            chain.finish(self.now, "reuse")
        elif chain.evidence_at is not None and self.now - chain.evidence_at < HOUR:
            return
        else:
            self.kinds.append("revoked")
        chain.evidence_at = self.now

    def _all_ended(self, number: int, why: str) -> None:
        going_on = [each for each in self.chains if each.ended is None and not each.pruned]
        assert number == len(going_on)
        for chain in going_on:
            chain.finish(self.now, why)

    def _all(self) -> Iterator[Held]:
        return (token for each in self.chains if not each.pruned for token in each.tokens)

    def _has_live(self, chain: Chain) -> bool:
        return any(token.is_live(self.now) for token in chain.tokens)

    def _newest(self) -> Held | None:
        return next((each for each in reversed([*self._all()]) if each.is_live(self.now)), None)

    def _lost(self) -> Held | None:
        """Returns the tokens that a shell would repeat without having seen the successor, however late."""
        for each in reversed([*self._all()]):
            unused = each.successor is not None and each.successor.replaced is None
            if unused and each.asked[0] is not None and each.chain.ended is None:
                return each
        return None


@pytest.mark.django_db
@pytest.mark.parametrize("session_days", [None, pytest.param(1, marks=pytest.mark.full)])
@pytest.mark.usefixtures("signing_key")
def test_tokens_do_what_the_model_says_whatever_happens(
    user: User, now: datetime, session_days: int | None, settings: Any
) -> None:
    settings.SESSION_DAYS = session_days
    # Passwords are not what is tried here; a cheap hash of them leaves the time to tokens.
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    user.set_password(PASSWORD)
    user.save()
    run_state_machine_as_test(partial(Life, user, session_days, now), settings=EFFORT)


EFFORT = settings(
    max_examples=10,
    stateful_step_count=30,
    deadline=None,
    # A failure is shown as it was found: to shorten it takes minutes.
    phases=(Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def claims_of(pair: TokenPair) -> dict[str, Any]:
    """Unverified: the clock here is ahead of everybody else's."""
    claims: dict[str, Any] = jwt.decode(pair.access, options={"verify_signature": False})
    return claims


def id_of(token: Held) -> UUID:
    secret = RefreshSecret.parse(token.text)
    assert secret is not None
    return secret.id
