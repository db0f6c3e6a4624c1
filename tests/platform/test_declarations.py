import pytest
from django.core.exceptions import ImproperlyConfigured

from config.platform.declarations import Declarations


def test_declarations_keep_the_order_of_the_apps_and_are_found_by_name() -> None:
    declared: Declarations[tuple[str, int]] = Declarations(lambda each: each[0])
    declared.add(("licence", 1), ("client", 2))
    declared.add(("call", 3))
    assert [number for _, number in declared] == [1, 2, 3]
    assert declared["client"] == ("client", 2)


def test_two_declarations_of_one_name_are_refused() -> None:
    declared: Declarations[tuple[str, int]] = Declarations(lambda each: each[0])
    declared.add(("licence", 1))
    with pytest.raises(ImproperlyConfigured, match="licence is declared twice"):
        declared.add(("licence", 2))
    assert list(declared) == [("licence", 1)]
