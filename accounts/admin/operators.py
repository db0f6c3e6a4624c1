"""The list of operators, and the actions that make, change and dismiss them."""

from collections.abc import Iterable
from typing import Any, cast

from django import forms
from django.conf import settings
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from accounts.admin.person_action import PersonAction
from accounts.factors.devices import with_factors
from accounts.mails import set_up_address
from accounts.models import Operator, Role, User
from accounts.people.roles import add_by_code, change_roles, dismiss_operator, make_operator
from config.console.actions import Action, OneTimeResult, ReasonForm, Result
from config.console.base import ConsoleAdmin
from config.console.lists.columns import ChoiceFilter, moment
from config.console.tables import Chip
from config.console.template_tags import cell


def role_names(operator: User) -> str:
    """The roles of an operator, in words."""
    if not operator.is_staff:
        return ""
    return ", ".join(sorted(operator.roles)) or "none"


def state_of(operator: User) -> Chip:
    """The chip of an operator: able to sign in to the console or not, and signed in before or not."""
    if not operator.is_active:
        return Chip("stopped", "Disabled")
    if not operator.has_usable_password():
        return Chip("over", "Set-up pending")
    if operator.last_login is None:
        return Chip("over", "Never signed in")
    return Chip("well", "Active")


class RolesForm(ReasonForm):
    roles = forms.MultipleChoiceField(choices=Role.choices, widget=forms.CheckboxSelectMultiple)


class OperatorAction(PersonAction):
    """An owner's action on another person, for which the owner proves the second factor again."""

    locks_out = True

    def available(self, target: User, *, by: HttpRequest) -> bool:
        return cast("User", by.user).is_owner and super().available(target, by=by)


class NewOperatorForm(RolesForm):
    email = forms.EmailField(max_length=254)
    field_order = ("email", "roles")


class NewOperator(Action):
    """All that makes an operator, in one act: the account, its roles, the set-up code and the mail."""

    name = "add"
    label = "Add operator"
    form_class = NewOperatorForm

    def effects(self, target: None) -> Iterable[str]:
        yield "They get an email that says who added them and where to start. It contains no sign-in link."
        yield "You are shown a set-up code once. Read it to them on a call."
        yield "With it they choose a password and set up a second factor."

    def do(self, target: None, *, email: str, **inputs: Any) -> OneTimeResult:
        code = add_by_code(email=email, **inputs)
        shown = {"code": code, "email": email.lower(), "roles": inputs["roles"]}
        shown["begin"] = set_up_address()
        shown["is_asked"] = settings.OPERATOR_SECOND_FACTOR
        shown["console"] = settings.BASE_URL + reverse("admin:login")
        return OneTimeResult(template="admin/console/new_operator.html", shown=shown)


class MakeOperator(OperatorAction):
    name = "operator"
    label = "Make operator"
    question = "Make {name} an operator?"
    form_class = RolesForm

    def available(self, target: User, *, by: HttpRequest) -> bool:
        # As the rule has it: it would refuse everybody else.
        known = target.is_active and target.has_usable_password() and target.client_id is None
        return known and not target.is_staff and super().available(target, by=by)

    def effects(self, target: User) -> Iterable[str]:
        yield f"{target} can use this console, and do in it what their roles allow."

    def do(self, target: User, **inputs: Any) -> Result:
        make_operator(user_id=target.pk, **inputs)
        roles = role_names(User.objects.get(pk=target.pk))
        said = f"{target} is an operator with the roles {roles}."
        return Result(said, target, undo=(target, "dismiss"))


class ChangeRoles(OperatorAction):
    name = "roles"
    label = "Change roles"
    question = "Change the roles of {name}?"
    form_class = RolesForm

    def available(self, target: User, *, by: HttpRequest) -> bool:
        return target.is_staff and super().available(target, by=by)

    def effects(self, target: User) -> Iterable[str]:
        yield f"Roles of {target} now: {role_names(target)}."
        yield "The change takes effect with the next request."

    def initial(self, target: User, *, by: HttpRequest) -> dict[str, Any]:
        return {"roles": sorted(target.roles)}

    def do(self, target: User, **inputs: Any) -> Result:
        change_roles(user_id=target.pk, **inputs)
        roles = role_names(User.objects.get(pk=target.pk))
        word = "roles" if "," in roles else "role"
        return Result(f"{target} now has the {word} {roles}.", target)


class DismissOperator(OperatorAction):
    name = "dismiss"
    label = "Remove operator access"
    question = "Remove operator access from {name}?"

    def available(self, target: User, *, by: HttpRequest) -> bool:
        return target.is_staff and super().available(target, by=by)

    def effects(self, target: User) -> Iterable[str]:
        yield f"{target} cannot use this console from the next request on."

    def do(self, target: User, **inputs: Any) -> Result:
        dismiss_operator(user_id=target.pk, **inputs)
        return Result(
            f"{target} is no longer an operator.", target, "They cannot open the console."
        )


class RoleFilter(ChoiceFilter):
    title, parameter_name = "role", "role"
    choices_of = (*((role, role) for role in Role.values), ("none", "none"))

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        if value == "none":
            return rows.exclude(groups__name__in=Role.values).filter(is_superuser=False)
        named = rows.filter(groups__name=value)
        return named | rows.filter(is_superuser=True) if value == Role.OWNER else named


class ClientFilter(ChoiceFilter):
    title, parameter_name = "client", "client"
    choices_of = (("none", "none"), ("some", "belongs to a client"))

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return rows.filter(client__isnull=value == "none")


@admin.register(Operator)
class OperatorAdmin(ConsoleAdmin):
    """A list whose rows lead to the pages of people."""

    add_action = NewOperator()
    list_display = (
        "person",
        "state",
        "roles",
        "factor",
        moment("last_login", "last sign-in"),
        moment("created_at", "since"),
    )
    list_display_links = None
    list_filter = (RoleFilter, ClientFilter, "is_active")
    search_fields = ("email",)
    uuid_fields = ("id",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request).select_related("client").distinct()
        return with_factors(rows)

    def get_urls(self) -> list[URLPattern]:
        wrap, named = self.admin_site.admin_view, "accounts_operator"
        return [
            path("", wrap(self.changelist_view), name=f"{named}_changelist"),
            path("add/", wrap(self.add_view), name=f"{named}_add"),
        ]

    @admin.display(description="second factor")
    def factor(self, operator: Any) -> str:
        kinds = (("Passkey", operator.has_passkey), ("Authenticator app", operator.has_app))
        named = " and ".join(name for name, known in kinds if known).capitalize()
        if named or not settings.OPERATOR_SECOND_FACTOR:
            return named or "Not required"
        return cell(Chip("watch", "None"))

    @admin.display(description="email", ordering="email")
    def person(self, operator: Operator) -> SafeString:
        page = reverse("admin:accounts_user_change", args=[operator.pk])
        of = f" (belongs to {operator.client})" if operator.client else ""
        return format_html('<a href="{}" class="strong">{}</a>{}', page, operator, of)

    @admin.display(description="status")
    def state(self, operator: Operator) -> str:
        return cell(state_of(operator))

    @admin.display(description="roles")
    def roles(self, operator: Operator) -> str:
        """A chip for each role: what an owner may do stands out."""
        named = [Chip("role", role.capitalize()) for role in sorted(operator.roles)]
        return cell(named or Chip("watch", "No role"))
