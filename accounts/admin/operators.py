"""The list of operators, and the actions that make, change and dismiss them."""

from collections.abc import Iterable
from typing import Any, cast

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from accounts.admin.person_action import PersonAction
from accounts.models import Operator, Role, User
from accounts.people.roles import change_roles, dismiss_operator, make_operator
from config.console.actions import ReasonForm, Result
from config.console.base import ConsoleAdmin
from config.console.columns import ChoiceFilter, moment, yes_no


def role_names(operator: User) -> str:
    """The roles of an operator; rights from before there were roles are named as what they are."""
    if not operator.is_staff:
        return "none: no operator"
    return ", ".join(sorted(operator.roles)) or "none: single rights from before roles"


class RolesForm(ReasonForm):
    roles = forms.MultipleChoiceField(choices=Role.choices, widget=forms.CheckboxSelectMultiple)


class OperatorAction(PersonAction):
    """An owner's action on another person, for which the owner proves the second factor anew."""

    locks_out = True

    def available(self, target: User, *, by: HttpRequest) -> bool:
        return cast("User", by.user).is_owner and super().available(target, by=by)


class MakeOperator(OperatorAction):
    name = "operator"
    label = "Make operator"
    form_class = RolesForm

    def available(self, target: User, *, by: HttpRequest) -> bool:
        # Operators belong to no client; the rule refuses the rest with a sentence.
        no_other = not target.is_staff and target.client_id is None
        return no_other and super().available(target, by=by)

    def effects(self, target: User) -> Iterable[str]:
        yield f"{target} can use this console, and in it do what the roles allow."
        yield "Only a person who belongs to no client and has set a password can become an operator."

    def do(self, target: User, **given: Any) -> Result:
        make_operator(user_id=target.pk, **given)
        return Result(f"{target} is an operator.", target)


class ChangeRoles(OperatorAction):
    name = "roles"
    label = "Change roles"
    form_class = RolesForm

    def available(self, target: User, *, by: HttpRequest) -> bool:
        return target.is_staff and super().available(target, by=by)

    def effects(self, target: User) -> Iterable[str]:
        yield f"Roles of {target} now: {role_names(target)}."
        yield "The change counts from the next request on. Single rights from before roles end."

    def initial(self, target: User, *, by: HttpRequest) -> dict[str, Any]:
        return {"roles": sorted(target.roles)}

    def do(self, target: User, **given: Any) -> Result:
        change_roles(user_id=target.pk, **given)
        changed = User.objects.get(pk=target.pk)
        return Result(f"Roles of {target}: {role_names(changed)}.", target)


class DismissOperator(OperatorAction):
    name = "dismiss"
    label = "Revoke operator rights"

    def available(self, target: User, *, by: HttpRequest) -> bool:
        return target.is_staff and super().available(target, by=by)

    def effects(self, target: User) -> Iterable[str]:
        yield f"{target} cannot use this console any more, from the next request on."

    def do(self, target: User, **given: Any) -> Result:
        dismiss_operator(user_id=target.pk, **given)
        return Result(f"{target} is no operator any more.", target)


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
    choices_of = (("none", "none, as it should be"), ("some", "belongs to one"))

    def filtered(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return rows.filter(client__isnull=value == "none")


@admin.register(Operator)
class OperatorAdmin(ConsoleAdmin):
    """A list whose rows lead to the pages of people."""

    list_display = (
        "person",
        "roles",
        "client",
        yes_no("is_active", "enabled"),
        moment("last_login", "last sign-in"),
        moment("created_at"),
    )
    list_display_links = None
    list_filter = (RoleFilter, ClientFilter, "is_active")
    list_select_related = ("client",)
    search_fields = ("email",)
    uuid_fields = ("id",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).distinct()

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.changelist_view)
        return [path("", view, name="accounts_operator_changelist")]

    @admin.display(description="email", ordering="email")
    def person(self, operator: Operator) -> SafeString:
        page = reverse("admin:accounts_user_change", args=[operator.pk])
        return format_html('<a href="{}">{}</a>', page, operator)

    @admin.display(description="roles")
    def roles(self, operator: Operator) -> str:
        return role_names(operator)
