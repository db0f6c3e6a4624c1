"""Pages for people, without the shell."""

from django.urls import path, re_path

from accounts.people.pages import OneTimePage, PasswordPage, PasswordSetPage

app_name = "account"

urlpatterns = [
    path("password", OneTimePage.as_view(), name="one-time"),
    path("password/set", PasswordSetPage.as_view(), name="password-set"),
    re_path(r"^password/(?P<secret>[\w-]{43})$", PasswordPage.as_view(), name="password"),
]
