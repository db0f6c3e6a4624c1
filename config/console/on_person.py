"""What all acts on a person have in common."""

from typing import cast

from django.http import HttpRequest

from accounts.acts import Act
from accounts.models import User

ENDS = (
    "Every session ends at once: tokens are refused from the next request on, "
    "and running streams end within 15 seconds."
)


class OnPerson(Act):
    """Operators are touched only by those who may make operators, nobody locks himself out, and the erased rest."""

    locks_out = False

    def offered(self, target: User, *, by: HttpRequest) -> bool:
        operator = cast("User", by.user)
        if target.erased_at is not None or (self.locks_out and target.pk == operator.pk):
            return False
        return operator.is_superuser or not (target.is_staff or target.is_superuser)
