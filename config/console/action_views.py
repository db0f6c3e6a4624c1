"""The pages of actions: one for a single row or a new one, one for the rows chosen in a list."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, ClassVar
from uuid import uuid4

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.db.models import QuerySet
from django.forms import BaseForm
from django.forms.boundfield import BoundField
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from config.console.actions import (
    Action,
    BulkAction,
    BulkFailure,
    OneTimeResult,
    Preview,
    Result,
    SuggestingField,
    show_refusal,
)
from config.console.navigation import page_of
from config.console.submissions import double_submit, kept_forms
from config.console.submissions.double_submit import ResultRedirect
from config.platform.problems.problem import Problem

MOST_CHOSEN = 500
NOT_AVAILABLE = "This action is not available for this row."


class ActionAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Rows with actions. Every action has a page, and opening the page changes nothing."""

    row_actions: ClassVar[Sequence[Action]] = ()
    add_action: ClassVar[Action | None] = None

    @property
    def operators(self) -> Any:
        """The console's site (``ConsoleSite``), which knows its operators and their rights over people."""
        return self.admin_site

    def row_name(self, row: Any) -> str:
        """The name of a row throughout the console."""
        return str(row)

    def owner(self, row: Any) -> Any:
        """The person affected by actions on a row: the row itself, or its ``user``."""
        return row if isinstance(row, get_user_model()) else getattr(row, "user", None)

    def right(self, action: Action) -> str:
        """The name of an action's right, by which an app declares it."""
        return f"{self.opts.label_lower}_{action.name}"

    def may(self, request: HttpRequest, action: Action) -> bool:
        """Returns whether an operator has the right of an action."""
        return bool(request.user.has_perm(self.right(action)))

    def available(self, request: HttpRequest, action: Action, row: Any) -> bool:
        """Returns whether this operator may take an action on a row in its current state."""
        if not action.available(row, by=request):
            return False
        # For operators who may act on everybody, the person is not queried.
        return self.operators.may_touch_all(request) or not self.operators.why_not_touch(
            request, self.owner(row)
        )

    def action(self, name: str) -> Action:
        """Returns the action of this name on a row."""
        return next(each for each in self.row_actions if each.name == name)

    def buttons(self, request: HttpRequest, row: Any) -> list[dict[str, Any]]:
        """Returns the actions that this operator may take on a row in its current state."""
        return [
            {"label": f"{action.label}…", "destructive": action.destructive, "url": address}
            for action in self.row_actions
            if (address := self.link(request, action.name, row))
        ]

    def link(self, request: HttpRequest, name: str, row: Any) -> str:
        """Returns the address of an action on a row; "" if the operator's rights or the row's state forbid it."""
        action = self.action(name)
        if not (self.may(request, action) and self.available(request, action, row)):
            return ""
        return reverse(f"admin:{self._route(action)}", args=[row.pk])

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        own = []
        for action in self.row_actions:
            route = self._route(action)
            address = f"<path:object_id>/{action.name}/"
            view = self._view(action, self._single, atomic=action.atomic)
            own.append(path(address, wrap(view), name=route))
            if isinstance(action, BulkAction):
                several = wrap(self._view(action, self._several, atomic=False))
                own.append(path(f"{action.name}/", several, name=f"{route}_several"))
        return own + super().get_urls()

    def _view(
        self, action: Action, answer: Callable[..., HttpResponse], *, atomic: bool
    ) -> Callable[..., HttpResponse]:
        def view(request: HttpRequest, **where: str) -> HttpResponse:
            if not self.may(request, action):
                raise PermissionDenied
            return self.once(request, lambda: answer(request, action, **where), atomic=atomic)

        return view

    def once(
        self, request: HttpRequest, answer: Callable[[], HttpResponse], *, atomic: bool
    ) -> HttpResponse:
        """Answers a submission, and redirects a repeated one to the result of the first."""
        # Without a transaction the submission is claimed before it runs: a repeated one may arrive meanwhile.
        claimed = None if atomic else self._list()
        with transaction.atomic() if atomic and request.POST else nullcontext():
            response = double_submit.repeated(request, claimed=claimed) or answer()
        if claimed and not isinstance(response, ResultRedirect):
            double_submit.keep(request, None)
        if isinstance(response, ResultRedirect):
            # Runs after the commit.
            self.message_user(request, response.message, response.level)
        return response

    def _single(self, request: HttpRequest, action: Action, object_id: str) -> HttpResponse:
        row = self.get_object(request, unquote(object_id))
        if row is None:
            return self.missing(request)
        if not self.available(request, action, row):
            self.message_user(request, NOT_AVAILABLE, messages.WARNING)
            return HttpResponseRedirect(page_of(row))
        return self.action_page(request, action, row)

    def missing(self, request: HttpRequest) -> HttpResponse:
        """Returns the response for a row that does not exist."""
        self.message_user(request, f"There is no such {self.opts.verbose_name}.", messages.WARNING)
        return HttpResponseRedirect(reverse("admin:index"))

    def action_page(self, request: HttpRequest, action: Action, row: Any) -> HttpResponse:
        """Serves the page of an action on one row, or on None to add one; runs it on a valid submission."""
        if redirect := self.reauthentication(request, action, [row]):
            return redirect
        kept = kept_forms.taken(request)
        form = action.form(row, request.POST if request.method == "POST" else kept, by=request)
        kept_forms.clear_faults(form, kept)
        where: dict[str, Any] = {"back": self._list()}
        if row is not None:
            where = {"back": page_of(row), "row_name": self.row_name(row), "row": row}
        preview: Preview | None = None
        if request.method == "POST" and self._is_valid(form, request):
            try:
                outcome = action.do(row, **form.cleaned_data, **self._actor_and_time(request))
            except Problem as problem:
                self._refuse(request, form, problem)
            else:
                if isinstance(outcome, OneTimeResult):
                    # Not recorded as a submission: after a double click the browser shows the second response.
                    return self._render(
                        request, outcome.template, action, shown=outcome.shown, **where
                    )
                if isinstance(outcome, Preview):
                    form, preview = outcome.form, outcome
                elif outcome.level == messages.ERROR:
                    self.message_user(request, self._message(request, outcome), outcome.level)
                else:
                    more = self.operators.outcome_note(self.right(action), row)
                    outcome = outcome._replace(follows=f"{outcome.follows} {more}".strip())
                    then = page_of(outcome.then) if outcome.then else self._list()
                    return self._done(request, outcome, then)
        if action.consequences and not (preview and preview.template):
            shown = action.shown(row, form)
            button = shown.get("button", "")
            preview = Preview(form=form, template=action.consequences, shown=shown, button=button)
        where["effects"] = () if preview else action.effects(row)
        where["affected"] = self.operators.affected(self.right(action), row, now=timezone.now())
        return self._page(request, action, form, preview=preview, **where)

    def reauthentication(
        self, request: HttpRequest, action: Action, rows: Sequence[Any], *, page: str = ""
    ) -> HttpResponse | None:
        """Asks for the second factor again, where an action on these rows requires it.

        The input is kept meanwhile, for the ``page`` to which the operator returns.
        """
        if not self.operators.wants_proof(self.right(action), people=map(self.owner, rows)):
            return None
        redirect: HttpResponse | None = self.operators.reauthenticate(request, page=page)
        if redirect and request.method == "POST":
            one = None if page else rows[0]
            form = action.form(one, request.POST, by=request)
            chosen = {"target": [str(row.pk) for row in rows]} if page else {}
            kept_forms.keep(request, form, page=page or request.path, also=chosen)
        return redirect

    def _is_valid(self, form: Any, request: HttpRequest) -> bool:
        """Returns whether a form is valid and this operator may act on everybody it names."""
        given = form.cleaned_data.items() if form.is_valid() else ()
        people = {name: each for name, each in given if isinstance(each, get_user_model())}
        for name, person in people.items():
            if refusal := self.operators.why_not_touch(request, person):
                form.add_error(name, refusal)
        return bool(form.is_valid())

    def _actor_and_time(self, request: HttpRequest) -> dict[str, Any]:
        return {"by": self.operators.actor_of(request), "now": timezone.now()}

    def _refuse(self, request: HttpRequest, form: BaseForm, problem: Problem) -> None:
        if isinstance(problem, BulkFailure):
            self.message_user(
                request,
                f"Done: {problem.done} of {problem.of}. It stopped at {self.row_name(problem.target)}; "
                "that one and those after it are as they were.",
                messages.WARNING,
            )
        show_refusal(form, problem)

    def _done(self, request: HttpRequest, result: Result, then: str) -> HttpResponse:
        double_submit.keep(request, then)
        return ResultRedirect(then, self._message(request, result), result.level)

    def _message(self, request: HttpRequest, result: Result) -> SafeString:
        """Returns a result's message with links to its event in the audit log and to the reverse action."""
        said = format_html("<strong>{}</strong> {}", result.message, result.follows)
        links = [("Audit entry", self.operators.audit_entry(request))]
        if result.undo is not None:
            row, name = result.undo
            console: Any = self.admin_site.get_model_admin(type(row))
            links.append((f"{console.action(name).label}…", console.link(request, name, row)))
        named = [(address, label) for label, address in links if address]
        beside = format_html_join(" ", '<a href="{}">{}</a>', named)
        return format_html('{} <span class="links">{}</span>', said, beside) if named else said

    def _page(
        self, request: HttpRequest, action: Action, form: Any, **context: Any
    ) -> HttpResponse:
        preview = context.get("preview")
        for field in form.fields.values():
            if isinstance(field, SuggestingField):
                field.widget.suggests = request.user.has_perm(field.listed_by)
        label = action.button or action.label
        if action.destructive and not action.button:
            # A destructive action names the person affected.
            name = context.get("row_name", "")
            label = action.title(context.get("row"), name).removesuffix("?")
        choice, others = _parts(action, form)
        texts = (preview.shown if preview else None) or {}
        if "heading" in texts:
            context["heading"] = texts["heading"]
        own = {
            "button": (preview.button if preview else "") or label,
            "form": form,
            "choice": choice,
            "others": others,
            "media": self.media + form.media,
            "number": uuid4().hex,
        }
        return self._render(request, "admin/console/action.html", action, **own, **context)

    def _render(
        self, request: HttpRequest, template: str, action: Action, **context: Any
    ) -> HttpResponse:
        own = {
            "opts": self.opts,
            "action": action,
            "title": action.label,
            "heading": action.title(context.get("row"), context.get("row_name", "")),
        }
        each = self.admin_site.each_context(request)
        return TemplateResponse(request, template, {**each, **own, **context})

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Returns the bulk actions as Django's actions of a list."""
        return {
            action.name: (_list_action(action), action.name, action.label)
            for action in self.row_actions
            if isinstance(action, BulkAction) and self.may(request, action)
        }

    def response_action(self, request: HttpRequest, queryset: QuerySet[Any], *where: Any) -> Any:
        if self._keys(request.POST, ACTION_CHECKBOX_NAME) is None:
            return None
        return super().response_action(request, queryset, *where)

    def _several(self, request: HttpRequest, action: BulkAction) -> HttpResponse:
        data = kept_forms.taken(request) or request.POST
        chosen = self.get_queryset(request).filter(pk__in=self._keys(data, "target") or [])
        rows = [row for row in chosen if self.available(request, action, row)]
        if not rows:
            return HttpResponseRedirect(self._list())
        return self.bulk_page(request, action, rows, data=data)

    def bulk_page(
        self,
        request: HttpRequest,
        action: BulkAction,
        rows: Sequence[Any],
        *,
        data: Mapping[str, Any] | None,
    ) -> HttpResponse:
        """Serves the page of an action on several rows; ``data`` is None when the list opens it, or kept input."""
        page = reverse(f"admin:{self._route(action)}_several")
        if redirect := self.reauthentication(request, action, rows, page=page):
            return redirect
        submitted = data is request.POST
        form = action.form(None, data, by=request)
        kept_forms.clear_faults(form, None if submitted else data)
        several = [(row.pk, self.row_name(row)) for row in rows]
        if submitted and self._is_valid(form, request):
            try:
                message = action.do_all(rows, **form.cleaned_data, **self._actor_and_time(request))
            except Problem as problem:
                self._refuse(request, form, problem)
                # The page shows the rows that remain.
                several = several[problem.done :] if isinstance(problem, BulkFailure) else several
            else:
                return self._done(request, Result(message), self._list())
        return self._page(
            request,
            action,
            form,
            back=self._list(),
            effects=action.effects(None),
            several=several,
            form_address=page,
        )

    def _keys(self, given: QueryDict, name: str) -> list[Any] | None:
        """Returns the chosen keys, or None if one is malformed."""
        try:
            return [self.opts.pk.clean(each, None) for each in given.getlist(name)]
        except ValidationError:
            return None

    def _route(self, action: Action) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}_{action.name}"

    def _list(self) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist")


def _parts(action: Action, form: BaseForm) -> tuple[list[BoundField], list[BoundField]]:
    """Returns the fields that decide the consequences shown, which come before them, and those that follow."""
    visible = form.visible_fields()
    decides = bool(action.consequences) and "reason" in form.fields
    choice = [each for each in visible if decides and each.name != "reason"]
    return choice, [each for each in visible if each not in choice]


def _list_action(action: BulkAction) -> Callable[..., HttpResponse | None]:
    """Django's action of a list, which shows the action's page for the chosen rows."""

    def show(console: ActionAdmin, request: HttpRequest, rows: QuerySet[Any]) -> Any:
        chosen = [row for row in rows[: MOST_CHOSEN + 1] if console.available(request, action, row)]
        if 0 < len(chosen) <= MOST_CHOSEN:
            return console.bulk_page(request, action, chosen, data=None)
        why = (
            f"At most {MOST_CHOSEN} at once."
            if chosen
            else "None of the selected rows allows this action."
        )
        console.message_user(request, why, messages.WARNING)
        return None

    return show
