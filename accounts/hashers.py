"""Password hashing: argon2id with OWASP's 19 MiB, t=2, p=1, one hash at a time per process."""

from collections.abc import Callable
from hashlib import sha256

from argon2 import PasswordHasher, Type
from argon2.exceptions import InvalidHashError, VerificationError
from django.contrib.auth import hashers as django
from django.contrib.auth.hashers import Argon2PasswordHasher

from config.platform.concurrency.greenlets import run_exclusively
from config.platform.text.forms import password_tries

# The minimum of argon2 for one lane, in KiB.
LEAST_MEMORY = 8


class GatedArgon2Hasher(Argon2PasswordHasher):
    """Django's argon2 hasher with smaller parameters, one hash at a time.

    Django's default (100 MiB, p=8) lets a few addresses saturate a host. These parameters may be raised and never
    lowered, because the parameters in an existing hash determine the time of its check.
    """

    time_cost = 2
    memory_cost = 19 * 1024
    parallelism = 1

    def encode(self, password: str, salt: str) -> str:
        return str(run_exclusively(super().encode, password, salt))

    def verify(self, password: str, encoded: str) -> bool:
        return bool(run_exclusively(super().verify, password, encoded))

    def harden_runtime(self, password: str, encoded: str) -> None:
        """Does the missing work for a hash with smaller parameters, so that the time does not reveal an old hash."""
        old = self.decode(encoded)
        rest = self.memory_cost * self.time_cost - old["memory_cost"] * old["time_cost"]
        if rest > 0:
            memory = max(rest // self.time_cost, LEAST_MEMORY)
            run_exclusively(PasswordHasher(self.time_cost, memory, self.parallelism).hash, password)


def check_password(
    password: str, encoded: str, setter: Callable[[str], object] | None = None
) -> bool:
    """Returns whether a hash is of this password, in its form of today or in one that releases before hashed.

    Every form is tried, also after one was right: the work depends on the typed text alone, or it would reveal that a
    disabled person's password was right. ``setter`` gets the text that was right if its hash has smaller parameters;
    the new hash is of the same text, for processes of the release before check passwords as they are typed.
    """
    tried = [django.check_password(each, encoded, setter) for each in password_tries(password)]
    return any(tried)


# 16 of the 32 random bytes of a refresh token are secret even if its record id is known, so a slow hash adds no
# protection; these parameters take about 0.4 ms.
TOKEN_HASHER = PasswordHasher(
    time_cost=1, memory_cost=1024, parallelism=1, hash_len=32, type=Type.ID
)


def token_matches(stored: str, presented: bytes | str) -> bool:
    """Returns whether a hash of ``TOKEN_HASHER`` is of this token."""
    try:
        return TOKEN_HASHER.verify(stored, presented)
    except (VerificationError, InvalidHashError):
        return False


def plain_hash(secret: str) -> str:
    """The SHA-256 of a secret with enough random bits of its own."""
    return sha256(secret.encode("utf-8", "replace")).hexdigest()
