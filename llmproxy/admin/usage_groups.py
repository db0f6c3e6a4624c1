"""Groups of usage by models, providers and personal keys."""

from llmproxy.models import LanguageModel, PersonalKey, Provider
from usage.admin.money.groups import Group, groups

groups.add(
    Group("model", LanguageModel, is_by_name=True),
    Group("provider", Provider, is_by_name=True),
    Group("key", PersonalKey, is_offered=False),
)
