"""The devices that an operator can prove a second factor by."""

from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import Exists, Model, OuterRef, QuerySet
from django_otp.models import Device
from django_otp_webauthn.models import WebAuthnCredential, WebAuthnUserHandle

from accounts.models import Authenticator, RecoveryCodes, SetUpCode, User

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


def with_factors(people: QuerySet[Any]) -> QuerySet[Any]:
    """The people with ``has_passkey`` and ``has_app``."""
    keys = WebAuthnCredential.objects.filter(user=OuterRef("pk"))
    apps = Authenticator.objects.filter(user=OuterRef("pk"), confirmed=True)
    found: QuerySet[Any] = people.annotate(has_passkey=Exists(keys), has_app=Exists(apps))
    return found


def lacks_factor(user: User) -> bool:
    """Returns whether a mailed link alone would admit this operator: one who has set up no factor yet, or has
    never signed in where none is asked for.
    """
    if not user.is_staff:
        return False
    return not has_factor(user.pk) if settings.OPERATOR_SECOND_FACTOR else user.last_login is None


def forget_devices(user_id: UUID) -> int:
    """Removes every device, the recovery codes and an open set-up code; returns the number of passkeys and apps."""
    number = len(devices(user_id))
    for rows in rows_of(user_id).values():
        rows.delete()
    return number


def rows_of(user_id: UUID) -> dict[str, QuerySet[Any]]:
    """All that is kept of a person's factors, apps that are not in use yet included."""
    known: dict[str, type[Model]] = {f"{kind}s": model for model, kind in KINDS.items()}
    known |= {"set-up codes": SetUpCode, "handles of passkeys": WebAuthnUserHandle}
    return {name: QuerySet(model).filter(user=user_id) for name, model in known.items()}
