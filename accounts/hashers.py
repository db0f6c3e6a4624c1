"""How passwords are hashed: argon2id with OWASP's 19 MiB, t=2, p=1, one at a time per process."""

from argon2 import PasswordHasher, Type
from django.contrib.auth.hashers import Argon2PasswordHasher

from config.greenlets import run_exclusively

# The least that argon2 takes for one lane, in KiB.
LEAST_MEMORY = 8


class GatedArgon2Hasher(Argon2PasswordHasher):
    """Django's argon2 hasher with smaller parameters, run through the gate.

    Django's own default (100 MiB, p=8) lets a few addresses saturate a host. These parameters hold from the
    first user on; they may be raised, and never lowered, because a check cannot be made shorter than its hash asks.
    """

    time_cost = 2
    memory_cost = 19 * 1024
    parallelism = 1

    def encode(self, password: str, salt: str) -> str:
        return str(run_exclusively(super().encode, password, salt))

    def verify(self, password: str, encoded: str) -> bool:
        return bool(run_exclusively(super().verify, password, encoded))

    def harden_runtime(self, password: str, encoded: str) -> None:
        """Does the rest of today's work where a hash asks for less, so that time does not tell whose hash is old."""
        old = self.decode(encoded)
        rest = self.memory_cost * self.time_cost - old["memory_cost"] * old["time_cost"]
        if rest > 0:
            memory = max(rest // self.time_cost, LEAST_MEMORY)
            run_exclusively(PasswordHasher(self.time_cost, memory, self.parallelism).hash, password)


# Refresh tokens are 32 random bytes of which 16 stay secret even to those who see record ids, so work
# adds nothing to guessing them; argon2id is kept for its form and runs cheap (about 0.4 ms).
TOKEN_HASHER = PasswordHasher(
    time_cost=1, memory_cost=1024, parallelism=1, hash_len=32, type=Type.ID
)
