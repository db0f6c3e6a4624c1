"""The one row that the stock project reads."""

from django.conf import settings
from django.db import models


class Licence(models.Model):
    """The entitlements of somebody's plan."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    status = models.CharField(max_length=20, default="active")
    plan = models.CharField(max_length=50, default="Starter")
    entitlements = models.JSONField(default=list)
    grace_until = models.DateTimeField(null=True)

    class Meta:
        app_label = "stock"

    def __str__(self) -> str:
        return f"{self.plan} of {self.user}"
