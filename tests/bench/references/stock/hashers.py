"""Django's argon2 hasher with the parameters of the service."""

from django.contrib.auth.hashers import Argon2PasswordHasher


class SmallArgon2Hasher(Argon2PasswordHasher):
    time_cost = 2
    memory_cost = 19 * 1024
    parallelism = 1
