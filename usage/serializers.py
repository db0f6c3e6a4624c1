"""The representation of usage for shells. Tokens; instants in UTC."""

from typing import Any

from rest_framework import serializers


class PeriodSerializer(serializers.Serializer[Any]):
    start = serializers.DateTimeField(source="month_start")
    resets_at = serializers.DateTimeField(source="next_month")


class ShareSerializer(serializers.Serializer[Any]):
    used = serializers.IntegerField(
        help_text="Settled tokens, cached input by the plan's percent; a running call counts once it has ended."
    )
    in_flight = serializers.IntegerField(help_text="Tokens reserved by running calls.")
    cap = serializers.IntegerField(allow_null=True, help_text="null: no cap.")
    remaining = serializers.IntegerField(
        allow_null=True, help_text="Tokens left for a new call, never below 0. null: no cap."
    )


class DayShareSerializer(ShareSerializer):
    resets_at = serializers.DateTimeField()


class ByDaySerializer(serializers.Serializer[Any]):
    date = serializers.DateField(source="day", help_text="UTC.")
    input = serializers.IntegerField()
    output = serializers.IntegerField()
    calls = serializers.IntegerField()
    abandoned = serializers.IntegerField(
        help_text="Those of the calls whose caller disconnected; they are charged too."
    )


class ByModelSerializer(serializers.Serializer[Any]):
    model = serializers.CharField()
    input = serializers.IntegerField()
    output = serializers.IntegerField()
    calls = serializers.IntegerField()


class UsageSerializer(serializers.Serializer[Any]):
    period = PeriodSerializer()
    input = ShareSerializer()
    output = ShareSerializer()
    day = DayShareSerializer()
    calls = serializers.IntegerField(help_text="Calls of this month, with those still running.")
    by_day = ByDaySerializer(
        many=True, help_text="The days with calls, in order; cached input whole."
    )
    by_model = ByModelSerializer(many=True, help_text="By name; cached input whole.")
