"""Rows of composition: alerts that operators were notified of, until their end is notified too."""

from typing import ClassVar

from django.db import models


class Notified(models.Model):
    """An alert as one channel has notified of it."""

    name = models.CharField(max_length=254, unique=True)
    level = models.SmallIntegerField()
    # When its beginning was notified, and since when its end is to be notified.
    notified_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        abstract = True
        ordering: ClassVar = ("name",)

    def __str__(self) -> str:
        return self.name


class Notification(Notified):
    """An alert as the webhook has notified of it. Processes of the previous release write and delete these rows too."""

    text = models.TextField()
    notified_at = models.DateTimeField(null=True, db_column="told_at")
    ended_at = models.DateTimeField(null=True, db_column="over_at")

    class Meta(Notified.Meta):
        db_table = "config_tolditem"


class MailNotification(Notified):
    """An alert as mails have notified of it: a separate row, which may outlive that of the webhook."""

    subject = models.TextField()
    text = models.TextField()
    path = models.TextField()
