"""Pages for people, without the shell."""

from django.urls import path, re_path

from accounts.people.pages import ForgottenPage, OneTimePage, PasswordPage, PasswordSetPage

app_name = "account"

urlpatterns = [
    path("forgotten", ForgottenPage.as_view(), name="forgotten"),
    path("password", OneTimePage.as_view(), name="one-time"),
    path("password/set", PasswordSetPage.as_view(), name="password-set"),
    # Also a link that was copied with something more or less: the page says what to do.
    re_path(r"^password/(?P<secret>[\s\S]+)\Z", PasswordPage.as_view(), name="password"),
]
