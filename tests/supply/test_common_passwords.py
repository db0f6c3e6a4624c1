"""The shipped list of common passwords."""

import gzip

from django.conf import settings
from django.contrib.auth.password_validation import CommonPasswordValidator
from zxcvbn.frequency_lists import FREQUENCY_LISTS

from tests.supply.common_passwords import LIST, SHORTEST, written


def listed() -> list[str]:
    return gzip.decompress(LIST.read_bytes()).decode().splitlines()


def test_the_list_has_thousands_that_are_long_enough() -> None:
    # ASVS 6.2.4 asks for 3,000 that fit the policy.
    assert len({each for each in listed() if len(each) >= SHORTEST}) > 15_000


def test_the_list_has_those_of_django_and_of_zxcvbn() -> None:
    known = {*FREQUENCY_LISTS["passwords"], *CommonPasswordValidator().passwords}
    assert {each for each in known if len(each) >= SHORTEST} <= {*listed()}


def test_the_list_is_as_the_tool_writes_it() -> None:
    assert gzip.decompress(written([*listed(), "short", "CHICKENWING101 "])) == gzip.decompress(
        LIST.read_bytes()
    )


def test_new_passwords_are_looked_up_in_it() -> None:
    options = [each.get("OPTIONS", {}) for each in settings.AUTH_PASSWORD_VALIDATORS]
    assert {"password_list_path": LIST} in options
