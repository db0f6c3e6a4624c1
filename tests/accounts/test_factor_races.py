"""One code used by several browsers at once: one of them succeeds."""

from collections.abc import Callable
from datetime import datetime

import pytest
from django.utils import timezone
from django_otp.oath import TOTP

from accounts.audit import Actor
from accounts.factors.proofs import WrongCode, prove_by_code, prove_by_recovery_code
from accounts.factors.setting_up import (
    WrongSetUpCode,
    make_recovery_codes,
    make_set_up_code,
    use_set_up_code,
)
from accounts.models import Authenticator, RecoveryCodes, User
from config.platform.encryption import encrypt
from tests.races import race

pytestmark = pytest.mark.django_db(transaction=True)

AT_ONCE = 6


def winners(use: Callable[[], object], refusal: type[Exception]) -> int:
    ended = race(*[use] * AT_ONCE)
    refused = [each for each in ended if isinstance(each, refusal)]
    assert len([each for each in ended if isinstance(each, Exception)]) == len(refused), ended
    return AT_ONCE - len(refused)


def test_a_set_up_code_lets_one_browser_in(operator: User, by: Actor, now: datetime) -> None:
    code = make_set_up_code(user_id=operator.pk, by=by, now=now)

    def use() -> None:
        use_set_up_code(user=operator, code=code, by=by, now=now)

    assert winners(use, WrongSetUpCode) == 1


def test_a_recovery_code_proves_once(operator: User, by: Actor, now: datetime) -> None:
    codes = make_recovery_codes(user=operator, by=by, now=now)

    def use() -> object:
        return prove_by_recovery_code(user=operator, code=codes[0], sign_in=True, by=by, now=now)

    assert winners(use, WrongCode) == 1
    assert len(RecoveryCodes.objects.get().hashes) == len(codes) - 1


def test_a_code_of_an_app_proves_once(operator: User, by: Actor, now: datetime) -> None:
    app = Authenticator(user=operator, name="Phone")
    app.key = encrypt(b"k" * 20, place=app.place("key"))
    app.save()
    codes = TOTP(b"k" * 20)
    codes.time = timezone.now().timestamp()

    def use() -> object:
        return prove_by_code(
            user=operator, code=f"{codes.token():06}", sign_in=True, by=by, now=now
        )

    assert winners(use, WrongCode) == 1
