"""How passwords are hashed: argon2id with OWASP's 19 MiB, t=2, p=1, one at a time per process."""

from argon2 import PasswordHasher, Type
from django.contrib.auth.hashers import Argon2PasswordHasher

from config.off_loop import off_loop


class GatedArgon2Hasher(Argon2PasswordHasher):
    """Django's argon2 hasher with smaller parameters, run through the gate.

    Django's own default (100 MiB, p=8) lets a few addresses saturate a host. These parameters hold from
    the first user on: changing them later would show by time which accounts are dormant.
    """

    time_cost = 2
    memory_cost = 19 * 1024
    parallelism = 1

    def encode(self, password: str, salt: str) -> str:
        return str(off_loop(super().encode, password, salt))

    def verify(self, password: str, encoded: str) -> bool:
        return bool(off_loop(super().verify, password, encoded))


# Refresh tokens are 32 random bytes of which 16 stay secret even to those who see record ids, so work
# adds nothing to guessing them; argon2id is kept for its form and runs cheap (about 0.4 ms).
TOKEN_HASHER = PasswordHasher(
    time_cost=1, memory_cost=1024, parallelism=1, hash_len=32, type=Type.ID
)
