"""The addresses of the second factor's pages, below /admin/, and those that the passkeys' library looks up."""

from typing import Any

from django.contrib import admin
from django.urls import path
from django.views.i18n import JavaScriptCatalog

from accounts.admin.second_factor import pages, passkeys

site: Any = admin.site

app_name = "second_factor"
urlpatterns = [
    path("", site.half_way(pages.prove), name="prove"),
    path("set-up/", site.half_way(pages.set_up), name="set_up"),
    path("authenticator/", site.half_way(pages.authenticator), name="authenticator"),
    path("added/", site.admin_view(pages.added), name="added"),
    path("recovery/", site.admin_view(pages.recovery), name="recovery"),
    path("own/", site.admin_view(pages.own), name="own"),
]
_ceremonies = {
    "registration-begin": passkeys.BeginRegistration,
    "registration-complete": passkeys.CompleteRegistration,
    "authentication-begin": passkeys.BeginAuthentication,
    "authentication-complete": passkeys.CompleteAuthentication,
}
passkey_urls = (
    [
        *(
            path(f"{name}/", site.half_way(view.as_view()), name=f"credential-{name}")
            for name, view in _ceremonies.items()
        ),
        path(
            "texts/",
            JavaScriptCatalog.as_view(packages=["django_otp_webauthn"]),
            name="js-i18n-catalog",
        ),
    ],
    "otp_webauthn",
)
