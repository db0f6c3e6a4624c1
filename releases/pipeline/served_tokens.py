"""Limits an identity token to one document, which its pipeline may send again after a lost answer."""

from datetime import datetime, timedelta

from django.db import transaction

from config.platform.problems.problem import Fault
from releases.models import ServedToken
from releases.pipeline.identity_tokens import IdentityTokenRefused, OneTime

# Hosts' clocks differ, so a row outlives the token a little.
REMEMBERED_BEYOND = timedelta(minutes=1)


class TokenServed(IdentityTokenRefused):
    default_detail = (
        "This identity token has published another document. Request a new one for each publish."
    )

    def __init__(self) -> None:
        super().__init__(
            errors=[Fault("/jti", "served", "The token was already used with different bytes.")]
        )


def serve(token: OneTime, *, body_sha256: str, now: datetime, keep: bool = True) -> None:
    """Binds the token to this body; raises ``TokenServed`` if it has served another. Only checks if not ``keep``."""
    with transaction.atomic():
        if keep:
            ServedToken.objects.filter(forget_at__lt=now).delete()
            forget_at = token.ends + REMEMBERED_BEYOND
            row = ServedToken(
                id_sha256=token.id_sha256, body_sha256=body_sha256, forget_at=forget_at
            )
            # A second body at the same time waits here for the first one's transaction.
            ServedToken.objects.bulk_create([row], ignore_conflicts=True)
        served = ServedToken.objects.filter(pk=token.id_sha256).first()
        if served is not None and served.body_sha256 != body_sha256:
            raise TokenServed
