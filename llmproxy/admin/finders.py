"""Finders of models, providers and keys for the console's search."""

from config.console.finders import Finder, Term, finders
from llmproxy.models import LanguageModel, PersonalKey, Provider

finders.add(
    Finder(
        "Personal keys", 60, PersonalKey, Term.id, "Key, Person, Created",
        lambda row: (str(row.user), row.created_at), related=("user",),
    ),
    Finder(
        "Models", 70, LanguageModel,
        lambda term: term.word("name__icontains", "routes__provider_name"),
        "Model, Provider's name", lambda row: (row.provider_name,), whole=("name",),
    ),
    Finder(
        "Providers", 80, Provider, lambda term: term.word("name__icontains"),
        "Provider, Address", lambda row: (row.base_url,), whole=("name",),
    ),
)  # fmt: skip
