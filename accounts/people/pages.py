"""The pages where a person sets a password, by a mailed link or a one-time password, without script or cookie."""

from datetime import datetime
from typing import Any

from django import forms
from django.core.validators import RegexValidator
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt

from accounts.mails import SET_UP
from accounts.models import PasswordLink
from accounts.people.one_time_passwords import find_one_time
from accounts.people.password_links import LinkSpent, find_link, request_reset, signs_of, use_link
from accounts.sessions.sign_in import MAX_PASSWORD
from config.console.actions import show_refusal
from config.platform.problems.problem import InvalidRequest
from config.platform.request.client_address import address_of
from config.platform.request.request_id import current as request_id
from config.platform.text.forms import password_form

PAGE_POLICY = "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

ONE_TIME_SPENT = "The email or the {} is wrong, or the {} has expired. Ask for a new one."


def password_field(
    label: str, autocomplete: str, help_text: Any = "", **attributes: Any
) -> forms.CharField:
    return forms.CharField(
        label=label,
        strip=False,
        max_length=MAX_PASSWORD,
        widget=forms.PasswordInput(attrs={"autocomplete": autocomplete, **attributes}),
        help_text=help_text,
    )


class PasswordForm(forms.Form):
    password = password_field(
        "New password",
        "new-password",
        "At least 12 characters. Several unrelated words make a good password.",
    )
    again = password_field("Repeat the password", "new-password")
    use_required_attribute = False

    def clean_password(self) -> str:
        return password_form(self.cleaned_data["password"])

    def clean_again(self) -> str:
        return password_form(self.cleaned_data["again"])

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        if "again" in given and given.get("password") not in {None, given["again"]}:
            self.add_error("again", "The two passwords do not match.")
        return given

    def focus(self) -> None:
        """Puts the cursor in the first field with a fault, or else in the first field."""
        name = next((name for name in self.fields if name in self.errors), next(iter(self.fields)))
        self.fields[name].widget.attrs["autofocus"] = True


def email_field(**attributes: Any) -> forms.CharField:
    """An email that is looked up and not judged: browsers refuse addresses beyond ASCII, which no mail may reach."""
    plain = {"autocapitalize": "none", "inputmode": "email", "spellcheck": "false"}
    widget = forms.TextInput(attrs={"autocomplete": "username", **plain, **attributes})
    valid = RegexValidator(r".@.", "Enter a valid email address.")
    return forms.CharField(label="Email", max_length=254, validators=[valid], widget=widget)


class ForgottenForm(forms.Form):
    email = email_field(autofocus=True)
    use_required_attribute = False


class OneTimeForm(PasswordForm):
    email = email_field()
    one_time = forms.CharField(
        max_length=100,
        widget=forms.TextInput(
            attrs={
                "autocomplete": "one-time-code",
                "autocapitalize": "characters",
                "spellcheck": "false",
            }
        ),
        help_text="23 letters and digits. Dashes and spaces do not matter.",
    )
    field_order = ("email", "one_time", "password", "again")

    def __init__(self, *args: Any, word: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.word = word
        self.fields["one_time"].label = word.capitalize()


class AccountPage(View):
    """The headers that keep these pages out of caches, search engines, frames and Referer headers."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response = super().dispatch(request, *args, **kwargs)
        response.headers["Cache-Control"] = "no-store"
        response.headers["Content-Security-Policy"] = PAGE_POLICY
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["X-Robots-Tag"] = "noindex"
        return response


# The secret is in the address and no cookie is used, so another site cannot forge this form. With the referrer policy
# `no-referrer`, browsers send `Origin: null`, which the CSRF check would refuse.
@method_decorator(csrf_exempt, name="dispatch")
class PasswordPage(AccountPage):
    """The page of a mailed link. GET consumes nothing, so programs that follow links in mails do no harm."""

    http_method_names = ["get", "head", "post"]

    def get(self, request: HttpRequest, secret: str) -> HttpResponse:
        try:
            link = find_link(signs_of(secret), now=timezone.now())
        except LinkSpent:
            return _spent(request)
        return _page(request, link, PasswordForm())

    def post(self, request: HttpRequest, secret: str) -> HttpResponse:
        now = timezone.now()
        form = PasswordForm(request.POST)
        secret = signs_of(secret)
        try:
            link = find_link(secret, now=now)
            return _set_password(request, form, secret, now=now) or _page(request, link, form)
        except LinkSpent:
            return _spent(request)


@method_decorator(csrf_exempt, name="dispatch")
class OneTimePage(AccountPage):
    """The page where a one-time password, or a new operator's set-up code, is replaced by a new password."""

    http_method_names = ["get", "head", "post"]

    def get(self, request: HttpRequest) -> HttpResponse:
        return _one_time_page(request, OneTimeForm(word=_given_word(request)))

    def post(self, request: HttpRequest) -> HttpResponse:
        now = timezone.now()
        form = OneTimeForm(request.POST, word=_given_word(request))
        done: HttpResponse | None = None
        try:
            if form.is_valid():
                email, password = form.cleaned_data["email"], form.cleaned_data["one_time"]
                secret = find_one_time(email=email, password=password, now=now)
                done = _set_password(request, form, secret, now=now)
        except LinkSpent:
            said = ONE_TIME_SPENT.format(form.word, form.word.rpartition(" ")[2])
            form.add_error("one_time", said)
        return done or _one_time_page(request, form)


# As the API's reset, which anybody may request for any email, and as rarely.
@method_decorator(csrf_exempt, name="dispatch")
class ForgottenPage(AccountPage):
    """The page that mails a link to set a new password; its answer does not tell whether an email has an account."""

    http_method_names = ["get", "head", "post"]

    def get(self, request: HttpRequest) -> HttpResponse:
        shown = {"form": ForgottenForm(), "sent": "sent" in request.GET}
        return render(request, "account/forgotten.html", shown)

    def post(self, request: HttpRequest) -> HttpResponse:
        form = ForgottenForm(request.POST)
        if not form.is_valid():
            return render(request, "account/forgotten.html", {"form": form})
        email = form.cleaned_data["email"]
        request_reset(email=email, address=address_of(request), request_id=request_id())
        return HttpResponseRedirect(f"{reverse('account:forgotten')}?sent")


class PasswordSetPage(AccountPage):
    http_method_names = ["get", "head"]

    def get(self, request: HttpRequest) -> HttpResponse:
        return render(request, "account/set.html")


def _set_password(
    request: HttpRequest, form: PasswordForm, secret: str, *, now: datetime
) -> HttpResponse | None:
    """Uses a link by a valid form; a refusal is shown in the form, and returns None. Raises ``LinkSpent``."""
    if not form.is_valid():
        return None
    password, address = form.cleaned_data["password"], address_of(request)
    try:
        use_link(
            presented=secret, password=password, address=address, request_id=request_id(), now=now
        )
    except InvalidRequest as refusal:
        show_refusal(form, refusal)
        return None
    # The redirect removes the secret from the address bar and makes a reload harmless.
    return HttpResponseRedirect(reverse("account:password-set"))


def _page(request: HttpRequest, link: PasswordLink, form: PasswordForm) -> HttpResponse:
    form.focus()
    invited = link.kind == PasswordLink.Kind.INVITATION
    given = {"form": form, "email": link.user.email, "invited": invited}
    return render(request, "account/password.html", given)


def _one_time_page(request: HttpRequest, form: OneTimeForm) -> HttpResponse:
    form.focus()
    return render(request, "account/one_time.html", {"form": form})


def _given_word(request: HttpRequest) -> str:
    """Returns what the person was given, in the word of whoever gave it to them."""
    return "set-up code" if SET_UP in request.GET else "one-time password"


def _spent(request: HttpRequest) -> HttpResponse:
    return render(request, "account/spent.html", status=404)
