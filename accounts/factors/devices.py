"""The devices that an operator can prove a second factor by."""

from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import QuerySet
from django_otp.models import Device
from django_otp_webauthn.models import WebAuthnCredential

from accounts.models import Authenticator, RecoveryCodes, User

KINDS: dict[type[Device], str] = {
    Authenticator: "authenticator app",
    WebAuthnCredential: "passkey",
    RecoveryCodes: "recovery code",
}


def kind_of(device: Device) -> str:
    return KINDS[type(device)]


def passkeys(user_id: UUID) -> QuerySet[WebAuthnCredential]:
    found: QuerySet[WebAuthnCredential] = WebAuthnCredential.objects.filter(user=user_id)
    return found.order_by("pk")


def authenticators(user_id: UUID) -> QuerySet[Authenticator]:
    """The apps whose first code was right."""
    return Authenticator.objects.filter(user=user_id, confirmed=True)


def recovery_codes(user_id: UUID) -> RecoveryCodes | None:
    return RecoveryCodes.objects.filter(user=user_id).first()


def devices(user_id: UUID) -> list[Device]:
    """The passkeys and apps; recovery codes alone are no factor."""
    return [*passkeys(user_id), *authenticators(user_id)]


def has_factor(user_id: UUID) -> bool:
    keys = passkeys(user_id).order_by().values("pk")
    return keys.union(authenticators(user_id).order_by().values("pk")).exists()


def lacks_factor(user: User) -> bool:
    """Whether the person is an operator who has still to set a factor up."""
    needs = settings.OPERATOR_SECOND_FACTOR and user.is_staff
    return needs and not has_factor(user.pk)


def forget_devices(user_id: UUID) -> int:
    """Removes every device and the recovery codes; returns the number of passkeys and apps."""
    number = len(devices(user_id))
    for rows in devices_by_kind(user_id).values():
        rows.delete()
    return number


def devices_by_kind(user_id: UUID) -> dict[str, QuerySet[Any]]:
    """All rows of a person's devices, apps that are not in use yet included."""
    return {
        f"{kind}s": QuerySet(model).filter(user=user_id).order_by("pk")
        for model, kind in KINDS.items()
    }
