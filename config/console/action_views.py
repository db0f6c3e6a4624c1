"""The pages behind acts: one for a row or for adding one, one for several rows that were chosen in a list."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.db.models import Model, QuerySet
from django.forms import BaseForm
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone

from config.api.problems import Problem
from config.console import double_submit
from config.console.actions import (
    Act,
    ActOnSeveral,
    Done,
    Foreseen,
    ShownOnce,
    StoppedAt,
    show_refusal,
)

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = admin.ModelAdmin

MOST_CHOSEN = 500


class OperatorSite(Protocol):
    """The console's site, as far as these pages need it: it knows who its operators are."""

    def actor_of(self, request: HttpRequest) -> Any:
        """The signed-in operator, as the rules and the audit log name them."""

    def why_not_touch(self, request: HttpRequest, person: Any) -> str:
        """Why this operator may do nothing to a person; "" where they may."""


class _Led(HttpResponseRedirect):
    """What was sent leads there, where ``said`` tells what became of it."""

    def __init__(self, address: str, said: str = "", level: int = messages.INFO) -> None:
        super().__init__(address)
        self.said, self.level = said, level


def _again(address: str) -> HttpResponse:
    said = "That was sent already, and is done only once. To do it again, begin anew."
    return _Led(address, said, messages.WARNING)


class Asking(_ModelAdmin):
    """Rows that acts may be done to. Every act has a page, and merely asking for it changes nothing."""

    acts: ClassVar[Sequence[Act]] = ()
    adding: ClassVar[Act | None] = None

    def called(self, row: Any) -> str:
        """How a row is called wherever the console speaks of it."""
        return str(row)

    def may(self, request: HttpRequest, act: Act) -> bool:
        """Whether this operator may do this to rows of this model at all."""
        label, model = self.opts.app_label, self.opts.model_name
        return request.user.has_perm(f"{label}.{act.permission}_{model}")

    @property
    def operators(self) -> OperatorSite:
        return cast("OperatorSite", self.admin_site)

    def whose(self, row: Any) -> Any:
        """The person whom acts on a row are about: the row itself, or its ``user``."""
        return row if isinstance(row, get_user_model()) else getattr(row, "user", None)

    def missing(self, request: HttpRequest) -> HttpResponse:
        """The answer for a row that is not there, or not any more."""
        self.message_user(request, f"There is no such {self.opts.verbose_name}.", messages.WARNING)
        return HttpResponseRedirect(reverse("admin:index"))

    def offered(self, request: HttpRequest, act: Act, row: Any) -> bool:
        """Whether this operator may do this to this row as it is now."""
        if not act.offered(row, by=request):
            return False
        # Whose it is need not be read for those who may touch everybody.
        return request.user.is_superuser or not self.operators.why_not_touch(
            request, self.whose(row)
        )

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        own = [
            path(f"<path:object_id>/{act.name}/", wrap(self._one(act)), name=self._route(act))
            for act in self.acts
        ]
        own += [
            path(f"{act.name}/", wrap(self._several(act)), name=f"{self._route(act)}_several")
            for act in self.acts
            if isinstance(act, ActOnSeveral)
        ]
        return own + super().get_urls()

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """The acts that can be done to several rows at once, as a list's actions."""
        return {
            act.name: (_action(act), act.name, act.label)
            for act in self.acts
            if isinstance(act, ActOnSeveral) and self.may(request, act)
        }

    def response_action(self, request: HttpRequest, queryset: QuerySet[Any], *where: Any) -> Any:
        if self._keys(request, ACTION_CHECKBOX_NAME) is None:
            return None
        return super().response_action(request, queryset, *where)

    def buttons(self, request: HttpRequest, row: Any) -> list[dict[str, Any]]:
        """What this operator may do to a row as it is now."""
        return [
            {"label": act.label, "grave": act.grave, "url": address}
            for act in self.acts
            if (address := self._address(request, act, row))
        ]

    def link(self, request: HttpRequest, name: str, row: Any) -> str:
        """The address of an act on a row, by its name; "" for who may not do it, or where the row does not allow it."""
        (act,) = (each for each in self.acts if each.name == name)
        return self._address(request, act, row)

    def _address(self, request: HttpRequest, act: Act, row: Any) -> str:
        if not (self.may(request, act) and self.offered(request, act, row)):
            return ""
        return reverse(f"admin:{self._route(act)}", args=[row.pk])

    def ask(self, request: HttpRequest, act: Act, row: Any) -> HttpResponse:
        """The page of an act on one row, or on none to add one; does it on a good answer."""
        form = act.form(row, request.POST if request.method == "POST" else None, by=request)
        foreseen: Foreseen | None = None
        if request.method == "POST" and self._is_good(form, request):
            try:
                done = act.do(
                    row, form.cleaned_data, by=self.operators.actor_of(request), now=timezone.now()
                )
            except Problem as problem:
                self._refuse(request, form, problem)
            else:
                if isinstance(done, Done):
                    then = page_of(done.then) if done.then else self._list()
                    return self._done(request, done.said, then)
                if isinstance(done, ShownOnce):
                    # Not kept as done: a second answer is the one that is seen, so it has to show it as well.
                    return self._shown_once(request, act, row, done)
                form, foreseen = done.form, done
        effects = () if foreseen else act.effects(row)
        where: dict[str, Any] = {"back": self._list(), "effects": effects, "foreseen": foreseen}
        if row is not None:
            where |= {"back": page_of(row), "called": self.called(row)}
        return self._page(request, act, form, **where)

    def ask_for_several(
        self, request: HttpRequest, act: ActOnSeveral, rows: Sequence[Any], *, asked: bool
    ) -> HttpResponse:
        """The same for several rows; ``asked`` once this page has been shown."""
        form = act.form(None, request.POST if asked else None, by=request)
        several = [(row.pk, self.called(row)) for row in rows]
        if asked and self._is_good(form, request):
            try:
                said = act.do_all(
                    rows, form.cleaned_data, by=self.operators.actor_of(request), now=timezone.now()
                )
            except Problem as problem:
                self._refuse(request, form, problem)
                # Asked for again: what is still to be done.
                several = several[problem.done :] if isinstance(problem, StoppedAt) else several
            else:
                return self._done(request, said, self._list())
        return self._page(
            request,
            act,
            form,
            back=self._list(),
            effects=act.effects(None),
            several=several,
            form_address=reverse(f"admin:{self._route(act)}_several"),
        )

    def once(
        self, request: HttpRequest, answer: Callable[[], HttpResponse], *, whole: bool
    ) -> HttpResponse:
        """The answer to a page that asks; if just this was sent before, where that led instead."""
        if not whole:
            # Others see it while it is done, which takes a while.
            address = double_submit.claim(request, self._list())
            response = _again(address) if address else answer()
            if not isinstance(response, _Led):
                double_submit.release(request)
        else:
            with transaction.atomic() if request.POST else nullcontext():
                address = double_submit.where_it_led(request)
                response = _again(address) if address else answer()
        if isinstance(response, _Led):
            # Now that it will not be taken back.
            self.message_user(request, response.said, response.level)
        return response

    def _is_good(self, form: Any, request: HttpRequest) -> bool:
        """Whether a form is valid and names nobody whom this operator may not touch."""
        given = form.cleaned_data.items() if form.is_valid() else ()
        people = {name: each for name, each in given if isinstance(each, get_user_model())}
        for name, person in people.items():
            if refusal := self.operators.why_not_touch(request, person):
                form.add_error(name, refusal)
        return bool(form.is_valid())

    def _done(self, request: HttpRequest, said: str, then: str) -> HttpResponse:
        double_submit.keep(request, then)
        return _Led(then, said, messages.SUCCESS)

    def _refuse(self, request: HttpRequest, form: BaseForm, problem: Problem) -> None:
        if isinstance(problem, StoppedAt):
            self.message_user(
                request,
                f"Done: {problem.done} of {problem.of}. It stopped at {self.called(problem.target)}; "
                "that one and those after it are as they were.",
                messages.WARNING,
            )
        show_refusal(form, problem)

    def _shown_once(
        self, request: HttpRequest, act: Act, row: Any, done: ShownOnce
    ) -> HttpResponse:
        own = {"opts": self.opts, "act": act, "title": act.label, "heading": act.label}
        if row is not None:
            own |= {"back": page_of(row), "called": self.called(row)}
            own["heading"] = f"{act.label}: {self.called(row)}"
        context = {**self.admin_site.each_context(request), **own, "shown": done.shown}
        return TemplateResponse(request, done.template, context)

    def _page(self, request: HttpRequest, act: Act, form: Any, **context: Any) -> HttpResponse:
        called = context.get("called", "")
        own = {
            "opts": self.opts,
            "act": act,
            "button": (foreseen.button if (foreseen := context.get("foreseen")) else "")
            or act.button
            or act.label,
            "title": act.label,
            "heading": f"{act.label}: {called}" if called else act.label,
            "form": form,
            "media": self.media + form.media,
            "number": double_submit.new_number(),
        }
        context = {**self.admin_site.each_context(request), **own, **context}
        return TemplateResponse(request, "admin/console/act.html", context)

    def _one(self, act: Act) -> Callable[..., HttpResponse]:
        def answer(request: HttpRequest, object_id: str) -> HttpResponse:
            row = self.get_object(request, unquote(object_id))
            if row is None:
                return self.missing(request)
            if not self.offered(request, act, row):
                self.message_user(
                    request, "That cannot be done, or not any more.", messages.WARNING
                )
                return HttpResponseRedirect(page_of(row))
            return self.ask(request, act, row)

        def view(request: HttpRequest, object_id: str) -> HttpResponse:
            if not self.may(request, act):
                raise PermissionDenied
            return self.once(request, lambda: answer(request, object_id), whole=act.whole)

        return view

    def _several(self, act: ActOnSeveral) -> Callable[..., HttpResponse]:
        def answer(request: HttpRequest) -> HttpResponse:
            chosen = self.get_queryset(request).filter(pk__in=self._keys(request, "target") or [])
            rows = [row for row in chosen if self.offered(request, act, row)]
            if not rows:
                return HttpResponseRedirect(self._list())
            return self.ask_for_several(request, act, rows, asked=True)

        def view(request: HttpRequest) -> HttpResponse:
            if not self.may(request, act):
                raise PermissionDenied
            return self.once(request, lambda: answer(request), whole=False)

        return view

    def _keys(self, request: HttpRequest, name: str) -> list[Any] | None:
        """The keys that were chosen; None where one is none of this model's kind, which a list never offers."""
        try:
            return [self.opts.pk.clean(each, None) for each in request.POST.getlist(name)]
        except ValidationError:
            return None

    def _route(self, act: Act) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}_{act.name}"

    def _list(self) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist")


def page_of(row: Model) -> str:
    """The address of a row's page in the console."""
    meta = row._meta  # noqa: SLF001 - Django's documented API
    return reverse(f"admin:{meta.app_label}_{meta.model_name}_change", args=[row.pk])


def _action(act: ActOnSeveral) -> Callable[..., HttpResponse | None]:
    """What a list does with the rows that were chosen in it: it leads to the page that asks."""

    def lead(console: Asking, request: HttpRequest, rows: QuerySet[Any]) -> HttpResponse | None:
        chosen = [row for row in rows[: MOST_CHOSEN + 1] if console.offered(request, act, row)]
        if len(chosen) > MOST_CHOSEN:
            console.message_user(request, f"At most {MOST_CHOSEN} at once.", messages.WARNING)
            return None
        if not chosen:
            console.message_user(request, "Nothing you chose allows that.", messages.WARNING)
            return None
        return console.ask_for_several(request, act, chosen, asked=False)

    return lead
