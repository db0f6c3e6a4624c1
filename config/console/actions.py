"""What an operator does in the console: a page that says what will happen and asks, then one rule.

Nothing is edited in place. Asking for the page changes nothing; the rule checks and is audited, and what it
refuses stands as an error beside the field that is meant.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, NamedTuple, TypeVar

from django import forms
from django.core.exceptions import ObjectDoesNotExist
from django.db.models import Model
from django.http import HttpRequest

from config.api.error_mapping import problem_of
from config.api.problems import NotFound, Problem
from config.console.edit_conflicts import ChangedMeanwhile
from config.database import release_connection

Row = TypeVar("Row")


class UtcDateTimeField(forms.DateTimeField):
    """An instant, entered in UTC; the console's script says beside it what that is where the operator is."""

    def __init__(self, **kwargs: Any) -> None:
        widget = forms.DateTimeInput(
            format="%Y-%m-%dT%H:%M", attrs={"type": "datetime-local", "data-utc": ""}
        )
        super().__init__(widget=widget, **kwargs)


class WithReason(forms.Form):
    """An act that wants to know why; the audit log keeps it."""

    reason = forms.CharField(
        max_length=500,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="Kept in the audit log. Write what a colleague will need to know in a month.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Whatever a subclass asks comes first; the reason is the last thing one thinks of.
        self.order_fields([*(name for name in self.fields if name != "reason"), "reason"])


class WithShown(forms.BaseForm):
    """A form that brings back what it showed: ``shown``, by field, among what it gives."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, field in self.fields.items():
            field.show_hidden_initial = name != "reason"

    def clean(self) -> dict[str, Any] | None:
        given = super().clean()
        self.cleaned_data["shown"] = {
            each.name: each.field.to_python(self.data[each.html_initial_name])
            for each in self
            if each.html_initial_name in self.data
        }
        return given


class Done(NamedTuple):
    """A sentence that says what was done, and the row whose page comes next (None: the list)."""

    said: str
    then: Model | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """What an act would do, told before it is done. The form is shown next and holds what was given so far."""

    form: forms.BaseForm
    template: str
    shown: dict[str, Any]
    # What stands on the next button; "" as on the one before.
    button: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownOnce:
    """What was done and must be read now: it stands in this answer alone, never in a message, which is a cookie."""

    template: str
    shown: dict[str, Any]


class Act(ABC):
    """One thing that may be done to one row, or that adds one (then its target is None)."""

    # The last part of its address and of its route's name.
    name: ClassVar[str]
    # What stands on its button.
    label: ClassVar[str]
    # What stands on the button of its page, where that is not the label.
    button: ClassVar[str] = ""
    form_class: ClassVar[type[Any]] = WithReason
    # Django's word for who may: add, change or delete rows of this model.
    permission: ClassVar[str] = "change"
    # Whether it takes something from people; its button is red.
    grave: ClassVar[bool] = False
    # Whether it is one transaction, which then holds as well that its page was sent; one that waits for others is not.
    whole: ClassVar[bool] = True

    def offered(self, target: Any, *, by: HttpRequest) -> bool:
        """Whether it makes sense for this row as it is, and for this operator."""
        return True

    def effects(self, target: Any) -> Iterable[str]:
        """What will happen, in sentences."""
        return ()

    def initial(self, target: Any, *, by: HttpRequest) -> dict[str, Any]:
        """What the form holds at first."""
        return {}

    def form(self, target: Any, data: Mapping[str, Any] | None, *, by: HttpRequest) -> Any:
        return self.form_class(data, initial=self.initial(target, by=by))

    @abstractmethod
    def do(
        self, target: Any, given: dict[str, Any], *, by: Any, now: datetime
    ) -> Done | Foreseen | ShownOnce:
        """Calls the rule, with the form's values, or tells what it would do. May raise what the rule raises."""


class ActOnSeveral(Act):
    """An act that is also offered for rows chosen in a list."""

    def do(self, target: Any, given: dict[str, Any], *, by: Any, now: datetime) -> Done:
        return Done(self.do_all([target], given, by=by, now=now), target)

    @abstractmethod
    def do_all(
        self, targets: Sequence[Any], given: dict[str, Any], *, by: Any, now: datetime
    ) -> str:
        """Calls the rule for each (:func:`do_each`); gives a sentence with the numbers."""


class StoppedAt(Problem):
    """One of several failed: what came before it is done for good, and nothing after it was tried."""

    def __init__(self, why: Problem, *, target: Any, done: int, of: int) -> None:
        super().__init__(why.detail, errors=why.errors)
        self.target, self.done, self.of = target, done, of


def do_each(targets: Sequence[Row], rule: Callable[[Row], int]) -> int:
    """Calls a rule for each, which is a transaction of its own, and adds up what it gives.

    Raises ``StoppedAt`` where one of several fails by a problem or by the database, or is not there any more.
    """
    given = 0
    for done, each in enumerate(targets):
        try:
            given += rule(each)
        except Exception as error:
            why = NotFound() if isinstance(error, ObjectDoesNotExist) else problem_of(error)
            if why is None or len(targets) == 1:
                raise
            # What tells of it must not be asked of a connection that may have failed.
            release_connection()
            raise StoppedAt(why, target=each, done=done, of=len(targets)) from error
    return given


def show_refusal(form: forms.BaseForm, problem: Problem) -> None:
    """Puts a rule's refusal beside the fields it speaks of."""
    for fault in problem.errors:
        field = fault.pointer.removeprefix("/").partition("/")[0]
        form.add_error(field if field in form.fields else None, fault.detail)
    if not problem.errors:
        form.add_error(None, problem.detail)
    if isinstance(problem, ChangedMeanwhile):
        # Whoever sends it again has seen what it is now.
        data: Any = copy(form.data)
        for name, value in problem.present.items():
            data[form.add_initial_prefix(name)] = form.fields[name].prepare_value(value)
        form.data = data
