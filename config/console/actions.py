"""Actions of the operators' console: each has a page that says what will happen, and then calls one rule.

Nothing is edited in place. Opening the page changes nothing; the rule checks and writes the audit log, and its
refusal stands as an error beside the field it is about.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

from django import forms
from django.core.exceptions import ObjectDoesNotExist
from django.db.models import Model
from django.http import HttpRequest

from config.api.error_mapping import problem_of
from config.api.problems import NotFound, Problem
from config.console.edit_conflicts import ChangedMeanwhile
from config.db.connections import release_connection

Row = TypeVar("Row")


class UtcDateTimeField(forms.DateTimeField):
    """An instant entered in UTC; the console's script adds the operator's local time beside it."""

    def __init__(self, **kwargs: Any) -> None:
        widget = forms.DateTimeInput(
            format="%Y-%m-%dT%H:%M", attrs={"type": "datetime-local", "data-utc": ""}
        )
        super().__init__(widget=widget, **kwargs)


class ReasonForm(forms.Form):
    """The form of an action that needs a reason, which the audit log keeps."""

    reason = forms.CharField(
        max_length=500,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="Kept in the audit log. Write what a colleague will need to know in a month.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # After the fields of a subclass.
        self.order_fields([*(name for name in self.fields if name != "reason"), "reason"])


class TrackedForm(forms.BaseForm):
    """A form that sends back the values it showed, which come as ``shown`` with its cleaned data."""

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


class Result(NamedTuple):
    """A sentence that says what was done, and the row whose page comes next (None: the list)."""

    message: str
    then: Model | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What an action would do. The form is shown next and holds what was entered so far."""

    form: forms.BaseForm
    template: str
    shown: dict[str, Any]
    # The label of the next button; "" for that of the action.
    button: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OneTimeResult:
    """A result that holds a secret: shown in this response alone, never in a message, which is a cookie."""

    template: str
    shown: dict[str, Any]


class Action(ABC):
    """One thing that operators do to one row, or that adds one (then its target is None)."""

    # The last part of its address and of its route's name.
    name: ClassVar[str]
    label: ClassVar[str]
    # The label of the button on its page, if another.
    button: ClassVar[str] = ""
    form_class: ClassVar[type[Any]] = ReasonForm
    # The Django permission it needs on its model: add, change or delete.
    permission: ClassVar[str] = "change"
    # Takes something from people; its button is red.
    destructive: ClassVar[bool] = False
    # Runs in one transaction, which also remembers the submission. False for one that waits for other services.
    atomic: ClassVar[bool] = True

    def available(self, target: Any, *, by: HttpRequest) -> bool:
        """Whether it makes sense for this row as it is now, and for this operator."""
        return True

    def effects(self, target: Any) -> Iterable[str]:
        """What will happen, in sentences."""
        return ()

    def initial(self, target: Any, *, by: HttpRequest) -> dict[str, Any]:
        """The form's initial values."""
        return {}

    def form(self, target: Any, data: Mapping[str, Any] | None, *, by: HttpRequest) -> Any:
        return self.form_class(data, initial=self.initial(target, by=by))

    @abstractmethod
    def do(self, target: Any, *args: Any, **given: Any) -> Result | Preview | OneTimeResult:
        """Calls the rule with the form's values, ``by`` and ``now``, or previews it. May raise what the rule raises."""


class BulkAction(Action):
    """An action that lists also offer for several chosen rows: one call of the rule, one transaction, for each."""

    # The message afterwards; may name the {number} that the rule returned in all, the {rows} and {whose} they are.
    message: ClassVar[str]

    def do(self, target: Any, *args: Any, **given: Any) -> Result:
        return Result(self.do_all([target], **given), target)

    def do_all(self, targets: Sequence[Any], **given: Any) -> str:
        """Calls the rule for each target; returns the message."""
        number = apply_to_each(targets, lambda each: self.do_one(each, **given))
        rows = len(targets)
        whose = f"of {targets[0]}" if rows == 1 else f"of {rows} people"
        return self.message.format(number=number, rows=rows, whose=whose)

    @abstractmethod
    def do_one(self, target: Any, *args: Any, **given: Any) -> int:
        """Calls the rule for one target; returns the number that is added up."""


class BulkFailure(Problem):
    """One of several failed: those before it are done for good, and none after it was tried."""

    def __init__(self, why: Problem, *, target: Any, done: int, of: int) -> None:
        super().__init__(why.detail, errors=why.errors)
        self.target, self.done, self.of = target, done, of


def apply_to_each(targets: Sequence[Row], rule: Callable[[Row], int]) -> int:
    """Calls a rule, a transaction of its own, for each target and adds up what it returns.

    Raises ``BulkFailure`` where one of several fails by a problem or by the database, or no longer exists.
    """
    number = 0
    for done, each in enumerate(targets):
        try:
            number += rule(each)
        except Exception as error:
            why = NotFound() if isinstance(error, ObjectDoesNotExist) else problem_of(error)
            if why is None or len(targets) == 1:
                raise
            # The page that reports it must not query over a connection that may have failed.
            release_connection()
            raise BulkFailure(why, target=each, done=done, of=len(targets)) from error
    return number


def show_refusal(form: forms.BaseForm, problem: Problem) -> None:
    """Puts a rule's refusal beside the fields it is about."""
    for fault in problem.errors:
        field = fault.pointer.removeprefix("/").partition("/")[0]
        form.add_error(field if field in form.fields else None, fault.detail)
    if not problem.errors:
        form.add_error(None, problem.detail)
    if isinstance(problem, ChangedMeanwhile):
        # The next submission has seen the present values.
        data: Any = copy(form.data)
        for name, value in problem.present.items():
            data[form.add_initial_prefix(name)] = form.fields[name].prepare_value(value)
        form.data = data
