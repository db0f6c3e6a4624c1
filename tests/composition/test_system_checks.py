"""System checks that apps register as they are loaded."""

import pytest
from django.core.checks.registry import registry


@pytest.mark.parametrize(
    "name",
    ["clients_look_alike", "members_are_named", "models_have_prices", "one_mailbox_is_one_person"],
)
def test_an_app_registers_the_system_check(name: str) -> None:
    assert name in {check.__name__ for check in registry.get_checks(include_deployment_checks=True)}
