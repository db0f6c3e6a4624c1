"""The rows of composition: what operators were notified of, until its end is notified too."""

from typing import ClassVar

from django.db import models


class Notified(models.Model):
    """An alert as one way of notifying knows it."""

    name = models.CharField(max_length=254, unique=True)
    level = models.SmallIntegerField()
    # When its beginning was notified, and since when its end waits to be.
    notified_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        abstract = True
        ordering: ClassVar = ("name",)

    def __str__(self) -> str:
        return self.name


class Notification(Notified):
    """An alert as the webhook knows it. Processes of the release before write these rows and delete them."""

    text = models.TextField()
    notified_at = models.DateTimeField(null=True, db_column="told_at")
    ended_at = models.DateTimeField(null=True, db_column="over_at")

    class Meta(Notified.Meta):
        db_table = "config_tolditem"


class MailNotification(Notified):
    """An alert as operators know it by mail: a row of its own, which outlives that of the webhook."""

    subject = models.TextField()
    text = models.TextField()
    path = models.TextField()
