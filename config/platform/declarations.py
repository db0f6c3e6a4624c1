"""Collections of declarations that apps add in ``AppConfig.ready`` and composition reads afterwards."""

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Generic, TypeVar

from django.apps import AppConfig
from django.core.exceptions import ImproperlyConfigured

T = TypeVar("T")


class Declarations(Generic[T]):
    """Declarations of one kind, in the order of the apps in ``INSTALLED_APPS``; duplicate names are refused.

    ``name`` returns a declaration's name. A collection is defined beside the type of its declarations, below every app.
    """

    def __init__(self, name: Callable[[T], str]) -> None:
        self._name = name
        self._declared: dict[str, T] = {}

    def add(self, *declarations: T) -> None:
        for each in declarations:
            name = self._name(each)
            if name in self._declared:
                raise ImproperlyConfigured(f"{name} is declared twice.")
            self._declared[name] = each

    def __getitem__(self, name: str) -> T:
        return self._declared[name]

    def get(self, name: str) -> T | None:
        return self._declared.get(name)

    def __iter__(self) -> Iterator[T]:
        return iter(self._declared.values())


class DeclaringApp(AppConfig):
    """An app with modules of declarations, which add to collections when they are loaded.

    An app's ``apps.py`` imports this module and not the class, which Django would take for the app's own.
    """

    declaring: Sequence[str] = ()
    # Modules that declare metrics, which are loaded only where a port for them is set.
    metrics: Sequence[str] = ()

    def ready(self) -> None:
        self.load(self.declaring)

    def load(self, modules: Sequence[str]) -> None:
        """Imports modules of the app by name: its configuration is loaded before models exist."""
        for module in modules:
            import_module(f"{self.name}.{module}")
