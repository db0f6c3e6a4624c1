"""Fills its empty database: tables, a person, and this project's service as a client."""

import sys

import django
from django.core.management import call_command

if __name__ == "__main__":
    django.setup()
    call_command("migrate", "--no-input", verbosity=0)
    from django.contrib.auth.models import User
    from oauth2_provider.models import Application

    client_id, client_secret, redirect, name, password = sys.argv[1:]
    User.objects.create_user(name, password=password)
    Application.objects.create(
        name="Shell",
        client_id=client_id,
        client_secret=client_secret,
        client_type=Application.CLIENT_CONFIDENTIAL,
        authorization_grant_type=Application.GRANT_AUTHORIZATION_CODE,
        redirect_uris=redirect,
    )
