"""Serializers of the result of a batch."""

from typing import Any

from rest_framework import serializers

from telemetry.intake import MOST_EVENTS


class RejectedSerializer(serializers.Serializer[Any]):
    """A rejected event, by its first fault."""

    pointer = serializers.CharField(help_text="A JSON pointer into the batch: `/events/3/name`.")
    code = serializers.CharField(
        help_text=(
            "`required`, `invalid`, `too_old`, `too_new`, `too_large`, `too_deep`, "
            "`invalid_characters` or `out_of_range`; others may be added."
        )
    )
    detail = serializers.CharField()


class TakenSerializer(serializers.Serializer[Any]):
    """The result of a batch; the three members together are its events."""

    accepted = serializers.IntegerField(
        min_value=0, max_value=MOST_EVENTS, help_text="Stored and committed."
    )
    duplicates = serializers.IntegerField(
        min_value=0, max_value=MOST_EVENTS, help_text="Already stored."
    )
    rejected = serializers.ListField(
        child=RejectedSerializer(),
        help_text="In the order of the batch. Sending them again unchanged fails again.",
    )
