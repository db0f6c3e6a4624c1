"""Forms of operators' sign-in to the console, and of the change of their own password."""

import logging
from typing import Any

from django import forms
from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import PasswordChangeForm, UsernameField
from django.contrib.auth.password_validation import password_validators_help_text_html
from django.contrib.auth.views import PasswordChangeView, redirect_to_login
from django.core.exceptions import ValidationError
from django.http import HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone

from accounts.models import User
from accounts.people.operators import actor_of
from accounts.people.pages import password_field
from accounts.people.users import WrongPassword, change_password
from accounts.sessions.known_places import limits_of_holder, limits_of_operator
from config.platform.edge.ratelimits.failed_logins import attempt
from config.platform.problems.problem import InvalidRequest
from config.platform.request.client_address import address_of
from config.platform.text.forms import password_form

log = logging.getLogger(__name__)


class TypedEmailField(UsernameField):
    """Django's field without NFKC, which could turn an email into another person's."""

    def to_python(self, value: Any) -> str:
        return str(forms.CharField.to_python(self, value))


class OperatorSignIn(AdminAuthenticationForm):
    """The sign-in form. Failures count towards the API's limits and look the same."""

    error_messages: dict[str, Any] = {
        **AdminAuthenticationForm.error_messages,
        "invalid_login": "Wrong email or password.",
    }
    username = TypedEmailField(widget=forms.TextInput(attrs={"autofocus": True}))
    password = password_field("Password", "current-password")

    def clean(self) -> dict[str, Any]:
        assert self.request is not None
        limits = limits_of_operator(
            email=str(self.cleaned_data.get("username", "")), address=address_of(self.request)
        )
        try:
            with attempt(*limits, failing=ValidationError, now=timezone.now()):
                return super().clean()
        except ValidationError:
            log.warning("operator_sign_in_refused")
            raise


class OwnPasswordForm(PasswordChangeForm):
    required_css_class = "required"
    old_password = password_field("Old password", "current-password", autofocus=True)
    new_password1 = password_field(
        "New password", "new-password", help_text=password_validators_help_text_html
    )
    new_password2 = password_field("New password confirmation", "new-password")

    def clean_new_password1(self) -> str:
        return password_form(self.cleaned_data["new_password1"])

    def clean_new_password2(self) -> str:
        return password_form(self.cleaned_data["new_password2"])

    def clean_old_password(self) -> str:
        """Leaves the check to the rule, which applies its rate limit."""
        return str(self.cleaned_data["old_password"])


class OwnPassword(PasswordChangeView):
    """Changes an operator's own password by its rule: this browser stays signed in, every other session ends.

    An operator who has been deleted meanwhile is redirected to the sign-in, as at any other request.
    """

    form_class = OwnPasswordForm
    template_name = "registration/password_change_form.html"

    def form_valid(self, form: Any) -> HttpResponse:
        user_id, now = form.user.pk, timezone.now()
        try:
            with attempt(*limits_of_holder(user_id=user_id), failing=WrongPassword, now=now):
                change_password(
                    user_id=user_id,
                    current=form.cleaned_data["old_password"],
                    new=form.cleaned_data["new_password1"],
                    by=actor_of(self.request),
                    now=now,
                )
            form.user.refresh_from_db()
        except User.DoesNotExist:
            return redirect_to_login(self.request.get_full_path(), reverse("admin:login"))
        except InvalidRequest as refusal:
            fields = {"/current": "old_password", "/new": "new_password1"}
            for fault in refusal.errors:
                form.add_error(fields.get(fault.pointer), fault.detail)
            return self.form_invalid(form)
        update_session_auth_hash(self.request, form.user)
        return HttpResponseRedirect(self.get_success_url())
