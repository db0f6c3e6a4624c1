"""Actions of the operators' console: each has a page that describes its effects, and calls one rule.

Nothing is edited in place. Opening the page changes nothing; the rule validates and writes the audit log, and its
refusal is shown as an error beside the field.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

from django import forms
from django.contrib.messages import SUCCESS
from django.core.exceptions import ObjectDoesNotExist
from django.db.models import Model
from django.http import HttpRequest

from config.platform.db.connections import release_connection
from config.platform.problems.edit_conflicts import ChangedMeanwhile
from config.platform.problems.error_mapping import problem_of
from config.platform.problems.problem import NotFound, Problem

Row = TypeVar("Row")


class UtcDateTimeField(forms.DateTimeField):
    """An instant entered in UTC; the console's script adds the operator's local time beside it."""

    def __init__(self, **kwargs: Any) -> None:
        widget = forms.DateTimeInput(
            format="%Y-%m-%dT%H:%M", attrs={"type": "datetime-local", "data-utc": ""}
        )
        super().__init__(widget=widget, **kwargs)


class SuggestingField(forms.CharField):
    """A field with suggestions for operators who may list the suggested rows."""

    # The permission to list it.
    listed_by: ClassVar[str]


class ReasonForm(forms.Form):
    """The form of an action with a reason, which the audit log keeps."""

    reason = forms.CharField(
        max_length=500,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="Kept in the audit log. Write what a colleague will need to know in a month’s time.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # After the fields of a subclass.
        self.order_fields([*(name for name in self.fields if name != "reason"), "reason"])


class TrackedForm(forms.BaseForm):
    """A form that also submits the values it showed, as ``shown`` in its cleaned data."""

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
    """The outcome of an action in one sentence, and the row whose page comes next (None: the list).

    After a failure (``level`` is ``ERROR``) the action's page is shown again. ``undo`` names the reverse action.
    """

    message: str
    then: Model | None = None
    # The consequence or the cause.
    follows: str = ""
    level: int = SUCCESS
    undo: tuple[Model, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The preview of an action, and the next form, which holds the values entered so far."""

    form: forms.BaseForm
    # "" for the action's consequences.
    template: str = ""
    shown: dict[str, Any] | None = None
    # The label of the next button; "" for the action's.
    button: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OneTimeResult:
    """A result with a secret: shown only in this response, never in a message, which is stored in a cookie."""

    template: str
    shown: dict[str, Any]


class Action(ABC):
    """An operators' action on one row, or one of a list without a row (its target is None), which mostly adds one."""

    # The last part of its address and of its route's name.
    name: ClassVar[str]
    label: ClassVar[str]
    # The label of the button on its page, if it differs from ``label``.
    button: ClassVar[str] = ""
    # The title of its page on a row, which it may name as {name} or by its members; one that adds a row has none.
    question: ClassVar[str] = ""
    form_class: ClassVar[type[Any]] = ReasonForm
    # A template that replaces the sentences of ``effects``.
    consequences: ClassVar[str] = ""
    # True for actions that take something from people; the button is red.
    destructive: ClassVar[bool] = False
    # True to run in one transaction with the record of the submission; False for one that waits for other services.
    atomic: ClassVar[bool] = True

    def title(self, target: Any, name: str) -> str:
        """Returns the question to the operator about a row of this name, or the label where there is no single row."""
        return self.label if target is None else self.question.format(name=name, row=target)

    def available(self, target: Any, *, by: HttpRequest) -> bool:
        """Returns whether the action applies to this row now, for this operator."""
        return True

    def effects(self, target: Any) -> Iterable[str]:
        """Returns the effects, in sentences."""
        return ()

    def shown(self, target: Any, form: Any) -> dict[str, Any]:
        """Returns the ``consequences`` for the current values of the form.

        It may also have the page's ``heading``, a ``sentence`` below that, the ``button``, and a ``note`` below this.
        """
        return {}

    def initial(self, target: Any, *, by: HttpRequest) -> dict[str, Any]:
        """The form's initial values."""
        return {}

    def form(self, target: Any, data: Mapping[str, Any] | None, *, by: HttpRequest) -> Any:
        return self.form_class(data, initial=self.initial(target, by=by))

    @abstractmethod
    def do(self, target: Any, *args: Any, **inputs: Any) -> Result | Preview | OneTimeResult:
        """Calls the rule with its inputs: the form's values, ``by`` and ``now``; or previews it. Raises its problem."""


class BulkAction(Action):
    """An action that lists also offer for several rows: the rule is called for each, in a transaction each."""

    # The name of the action that reverses it.
    undone_by: ClassVar[str] = ""

    def do(self, target: Any, *args: Any, **inputs: Any) -> Result:
        message = self.do_all([target], **inputs)
        if self.undone_by:
            target.refresh_from_db()
        return Result(message, target, undo=(target, self.undone_by) if self.undone_by else None)

    def do_all(self, targets: Sequence[Any], **inputs: Any) -> str:
        """Calls the rule for each target; returns the message."""
        number = apply_to_each(targets, lambda each: self.do_one(each, **inputs))
        subject = str(targets[0]) if len(targets) == 1 else f"{len(targets):,} people"
        return self.message(subject, number)

    def message(self, subject: str, number: int) -> str:
        """Returns the message afterwards.

        ``subject`` is the target's name or a number of people, ``number`` the sum of the results.
        """
        raise NotImplementedError

    @abstractmethod
    def do_one(self, target: Any, *args: Any, **inputs: Any) -> int:
        """Calls the rule for one target; returns the number to be summed."""


class BulkFailure(Problem):
    """The failure of one row of several. Earlier rows are done, later ones untouched."""

    def __init__(self, why: Problem, *, target: Any, done: int, of: int) -> None:
        super().__init__(why.detail, errors=why.errors)
        self.target, self.done, self.of = target, done, of


def apply_to_each(targets: Sequence[Row], rule: Callable[[Row], int]) -> int:
    """Calls a rule for each target, in a transaction each, and sums the numbers it returns.

    Raises ``BulkFailure`` if one of several fails by a problem or by the database, or no longer exists.
    """
    number = 0
    for done, each in enumerate(targets):
        try:
            number += rule(each)
        except Exception as error:
            why = NotFound() if isinstance(error, ObjectDoesNotExist) else problem_of(error)
            if why is None or len(targets) == 1:
                raise
            # The connection may be broken, and the page that reports the failure needs one.
            release_connection()
            raise BulkFailure(why, target=each, done=done, of=len(targets)) from error
    return number


def show_refusal(form: forms.BaseForm, problem: Problem) -> None:
    """Adds a rule's refusal to the form, each fault at its field."""
    for fault in problem.errors:
        field = fault.pointer.removeprefix("/").partition("/")[0]
        form.add_error(field if field in form.fields else None, fault.detail)
    if not problem.errors:
        form.add_error(None, problem.detail)
    if isinstance(problem, ChangedMeanwhile):
        # The next submission is based on the current values.
        data: Any = copy(form.data)
        for name, value in problem.present.items():
            data[form.add_initial_prefix(name)] = form.fields[name].prepare_value(value)
        form.data = data
