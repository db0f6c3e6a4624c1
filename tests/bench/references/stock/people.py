"""Makes people of the stock project, with tokens: ``python -m tests.bench.references.stock.people NUMBER PREFIX``.

Prints a line of JSON for each: ``{"username", "access", "refresh"}``. With a number of 0 only the tables are made.
"""

import json
import sys

import django

# That of all callers.
PASSWORD = "correct horse battery staple"


def main(number: int, prefix: str) -> None:
    django.setup()
    from django.contrib.auth.hashers import make_password
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from rest_framework_simplejwt.tokens import RefreshToken

    from tests.bench.references.stock.models import Licence

    call_command("migrate", verbosity=0)
    # Of an app without migrations, whose row names one of those.
    call_command("migrate", verbosity=0, run_syncdb=True)
    password = make_password(PASSWORD)
    for each in range(number):
        user = User.objects.create(username=f"{prefix}-{each}", password=password)
        Licence.objects.create(user=user, entitlements=["notes"])
        refresh = RefreshToken.for_user(user)
        pair = {"access": str(refresh.access_token), "refresh": str(refresh)}
        print(json.dumps({"username": user.username, **pair}))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
