"""An identity token serves one body: that may be sent again after a lost answer, another may not."""

from datetime import datetime, timedelta

from django.db import transaction

from config.api.problems import Fault
from releases.models import ServedToken
from releases.pipeline.identity_tokens import IdentityTokenRefused, OneTime

# Hosts' clocks differ: what was served is remembered a little longer than any of them takes the token.
REMEMBERED_BEYOND = timedelta(minutes=1)


class TokenServed(IdentityTokenRefused):
    default_detail = (
        "This identity token has served another document already. Each publish asks for one anew."
    )

    def __init__(self) -> None:
        super().__init__(errors=[Fault("/jti", "served", "It was used with other bytes.")])


def serve(token: OneTime, *, body_sha256: str, now: datetime, keep: bool = True) -> None:
    """The token serves this body and no other from now on; raises ``TokenServed`` where it has served another.

    With ``keep`` False it is only asked whether it could.
    """
    with transaction.atomic():
        if keep:
            _keep(token, body_sha256, now)
        served = ServedToken.objects.filter(pk=token.id_sha256).first()
        if served is not None and served.body_sha256 != body_sha256:
            raise TokenServed


def _keep(token: OneTime, body_sha256: str, now: datetime) -> None:
    ServedToken.objects.filter(forget_at__lt=now).delete()
    # Of two bodies at once the second waits here, until it is known whether the first was kept.
    row = ServedToken(
        id_sha256=token.id_sha256,
        body_sha256=body_sha256,
        forget_at=token.ends + REMEMBERED_BEYOND,
    )
    ServedToken.objects.bulk_create([row], ignore_conflicts=True)
