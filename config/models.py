"""The rows of composition."""

from django.db import models


class ToldItem(models.Model):
    """What needs attention and is told to the operators' channel, until its end is told too."""

    name = models.CharField(max_length=254, unique=True)
    text = models.TextField()
    level = models.SmallIntegerField()
    told_at = models.DateTimeField(null=True)
    over_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name
