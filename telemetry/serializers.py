"""What became of a batch, as a shell reads it."""

from typing import Any

from rest_framework import serializers

from telemetry.intake import MOST_EVENTS


class RejectedSerializer(serializers.Serializer[Any]):
    """An event that was left out, by its first fault."""

    pointer = serializers.CharField(help_text="A JSON pointer into the batch: `/events/3/name`.")
    code = serializers.CharField(
        help_text=(
            "`required`, `invalid`, `too_old`, `too_new`, `too_large`, `too_deep`, "
            "`invalid_characters` or `out_of_range`; others may be added."
        )
    )
    detail = serializers.CharField()


class TakenSerializer(serializers.Serializer[Any]):
    """What became of a batch; the three together are its events."""

    accepted = serializers.IntegerField(
        min_value=0, max_value=MOST_EVENTS, help_text="Kept, and committed."
    )
    duplicates = serializers.IntegerField(
        min_value=0, max_value=MOST_EVENTS, help_text="There already; there is nothing to do."
    )
    rejected = serializers.ListField(
        child=RejectedSerializer(),
        help_text="In the order of the batch. Sending one of them again, as it is, is no use.",
    )
