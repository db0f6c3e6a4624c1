"""Operators: the people who may sign in to the console."""

from typing import Any, ClassVar

from django.db import models

from accounts.models.people import User


class OperatorManager(models.Manager["Operator"]):
    def get_queryset(self) -> models.QuerySet["Operator"]:
        return super().get_queryset().filter(is_staff=True).prefetch_related("groups")


class Operator(User):
    """A person who may sign in to the console; its own page of the console lists operators with their roles."""

    objects: ClassVar[Any] = OperatorManager()

    class Meta:
        proxy = True
        ordering = ("email",)

    def __str__(self) -> str:
        return str(self.email)
