"""Identity tokens that pipelines used."""

from django.db import models


class ServedToken(models.Model):
    """A used identity token and the one document that it may publish. The token itself is not stored."""

    id_sha256 = models.CharField(
        max_length=64, primary_key=True, help_text="SHA-256 of issuer and `jti`, in lower hex."
    )
    body_sha256 = models.CharField(max_length=64, help_text="SHA-256 of the document.")
    forget_at = models.DateTimeField(
        db_index=True, help_text="When nobody takes the token any more."
    )

    class Meta:
        ordering = ("forget_at",)
        constraints = (
            models.CheckConstraint(
                condition=models.Q(id_sha256__regex=r"^[0-9a-f]{64}$")
                & models.Q(body_sha256__regex=r"^[0-9a-f]{64}$"),
                name="served_token_sums_are_lower_hex",
            ),
        )

    def __str__(self) -> str:
        return f"a token until {self.forget_at}"
