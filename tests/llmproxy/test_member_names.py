"""Members beyond the schemas: an operator names those that a provider gets, and some never pass."""

import json
from datetime import datetime
from typing import Any

import pytest
from django.core.checks import run_checks
from pytest_django.fixtures import Settings

from accounts.audit import Actor
from config.platform.problems.problem import InvalidRequest
from llmproxy.attention import members
from llmproxy.calls.admission import able_targets
from llmproxy.catalogue.member_names import faults_of, names_in, passes_all
from llmproxy.catalogue.providers import ProviderTerms, add_provider, change_provider
from llmproxy.dialects.protocol import Target
from llmproxy.models import Provider
from llmproxy.requests import chat, embeddings, messages, responses
from tests.llmproxy.targets import target

HELLO = [{"role": "user", "content": "hello"}]
# Members that cost no more than tokens, which are bounded.
HONEST: dict[str, Any] = {
    "top_k": 5, "min_p": 0.1, "typical_p": 0.9, "repetition_penalty": 1.1, "repeat_penalty": 1.1, "repeat_last_n": 64,
    "mirostat": 2, "mirostat_tau": 5.0, "min_tokens": 3, "ignore_eos": True, "skip_special_tokens": False,
    "echo": False,
    "length_penalty": 1.0, "guided_json": {"properties": {"n": {}, "priority": {}}}, "grammar": "root ::= x",
    "structured_outputs": {"json": {"properties": {"path": {}}}}, "add_generation_prompt": True, "cache_prompt": True,
    "chat_template_kwargs": {"enable_thinking": False, "thinking": True, "thinking_budget": 10},
    "separate_reasoning": True, "include_reasoning": True, "enable_thinking": True, "thinking_budget": 10,
    "options": {"num_ctx": 4096, "seed": 1, "temperature": 0}, "format": {"properties": {"host": {}}}, "think": True,
    "provider": {"order": ["a"], "allow_fallbacks": True}, "transforms": [], "safe_prompt": True, "random_seed": 1,
    "thinking": {"type": "enabled", "budget_tokens": 10}, "n_probs": 2, "samplers": ["top_k"], "user_tag": "x",
    "extra_body": {"google": {"thinking_config": {"thinking_budget": 10}}}, "truncate_prompt_tokens": 100,
}  # fmt: skip
NEVER: list[tuple[str, Any]] = [
    # Hosts without a scheme, and code and files.
    ("kv_transfer_params", {"remote_host": "10.0.0.1", "remote_port": 80}), ("bootstrap_host", "10.0.0.1"),
    ("vllm_xargs", {"do_remote_prefill": True}), ("nvext", {"backend": {"hostname": "a"}}),
    ("opts", {"apiBase": "a.test"}),
    ("custom_logit_processor", "gASV"), ("lora_path", "/tmp/a"), ("lora_request", {"name": "a"}),
    ("extra_body", {"lora-path": "/a"}), ("logits_processors", [{"qualname": "os.system"}]),
    ("chat_template", "{{ a }}"),
    ("prompt_embeds", "AAAA"), ("options", {"adapter_path": "/a"}), ("trust_remote_code", True),
    # Repeats.
    ("extra_body", {"n": 8}), ("num_return_sequences", 4), ("generation_config", {"candidateCount": 3}),
    ("options", {"deep": [{"best_of": 4}]}), ("num_completions", 2), ("use_beam_search", True), ("numGenerations", 2),
    # Limits and budgets of thinking under other names.
    ("options", {"num_predict": 99_999}), ("generation_config", {"maxOutputTokens": 99_999}),
    ("max_new_tokens", 99_999),
    ("parameters", {"max_length": 99_999}), ("reasoning_budget", 99_999), ("max_thinking_tokens", 9),
    ("extra_body", {"thinkingConfig": {"thinkingBudget": 99_999}}), ("options", {"thinking": {"budget_tokens": 9}}),
    ("max_reasoning_tokens", 9), ("nvext", {"max_thinking_tokens": 9}),
    # Prices, orders and state.
    ("deferred", True), ("priority", 1), ("options", {"service_tier": "priority"}), ("plugins", [{"id": "web"}]),
    ("extra_body", {"web_search_options": {}}), ("fallback_models", ["a"]), ("draft_model", "a"),
    ("session_params", {}),
    ("extra", {"store": True}), ("x", {"mcp_servers": [{}]}),
]  # fmt: skip


def faults(where: Target, **members: Any) -> list[tuple[str, str]]:
    try:
        able_targets([where], chat.parse({"messages": HELLO, **members}, stream=False))
    except InvalidRequest as refused:
        return [(each.pointer, each.code) for each in refused.errors]
    return []


@pytest.mark.parametrize("name", HONEST)
def test_a_named_member_passes_unchanged(name: str) -> None:
    value, where = HONEST[name], target()._replace(members=frozenset({name}))
    assert faults(where, **{name: value}) == []
    asked = chat.parse({"messages": HELLO, name: value}, stream=False)
    outgoing = where.codec(asked.surface).outgoing(asked, target=where, output_limit=100)
    assert json.loads(outgoing.body)[name] == value
    # Nothing beside it does, whatever comes first.
    assert faults(where, **{name: value, "other": 1}) == [("/other", "unknown")]
    assert faults(target(), **{name: value})[0] == (f"/{name}", "unknown")
    assert faults(target()._replace(passes_all=True), **{name: value}) == []


@pytest.mark.parametrize(("name", "value"), NEVER)
def test_members_that_cost_repeat_fetch_or_run_never_pass(name: str, value: Any) -> None:
    open_target = target()._replace(fetches=True)
    for how in ({"members": frozenset({name})}, {"passes_all": True}):
        where = open_target._replace(**how)  # type: ignore[arg-type]
        found = faults(where, **{name: value})
        assert found
        assert all(at.startswith(f"/{name}") and code == "invalid" for at, code in found)


def test_a_value_that_changes_nothing_passes_at_any_depth() -> None:
    where = target()._replace(members=frozenset({"extra_body"}))
    value = {"n": 1, "deferred": None, "store": False, "service_tier": "auto"}
    assert faults(where, extra_body=value) == []


def test_names_count_on_every_surface_and_among_many_members() -> None:
    where = target()._replace(members=frozenset({"top_k"}))
    anthropic = target("anthropic")._replace(members=frozenset({"surprise"}))
    for at, request in (
        (where, responses.parse({"input": "hi", "top_k": 5})),
        (where, embeddings.parse({"input": "hi", "top_k": 5})),
        (
            anthropic,
            messages.parse({"max_tokens": 5, "messages": HELLO, "surprise": 1}, headers={}),
        ),
    ):
        at.check(request)
    many = {f"m{number}": 1 for number in range(30)}
    named = where._replace(members=frozenset(many))
    assert faults(named, **many) == []
    # The last of more than are listed at once, and of a body whose first fault alone is looked for.
    assert faults(named, **many, last=1) == [("/last", "unknown")]
    assert faults(named, **{**many, "m5": {"n": 5}}) == [("/m5/n", "invalid")]
    long = [{"role": "user", "content": "x"}] * 600
    request = chat.parse({"messages": long, **many, "last": 1}, stream=False)
    with pytest.raises(InvalidRequest) as refused:
        named.check(request)
    assert [each.pointer for each in refused.value.errors] == ["/last"]


def test_unknown_members_of_earlier_answers_are_allowed_beside_a_named_member() -> None:
    said = {"role": "assistant", "content": "Hi", "trace": {"n": 5}}
    where = target()._replace(members=frozenset({"top_k"}))
    request = chat.parse({"messages": [*HELLO, said], "top_k": 5}, stream=False)
    assert able_targets([where], request)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", set()), ("listed", set()), ("all", set()), ("top_k", {"top_k"}), (" top_k , min_p,", {"top_k", "min_p"}),
    ],
)  # fmt: skip
def test_names_are_separated_by_commas(text: str, names: set[str]) -> None:
    assert names_in(text) == names
    assert [*faults_of(text)] == []


@pytest.mark.parametrize(
    "text", ["top k", "top_k,all", "listed,top_k", "n", "top_k,best_of", "lora_path", "5a"]
)
def test_invalid_names_are_refused(text: str) -> None:
    assert len([*faults_of(text)]) == 1


@pytest.mark.django_db
def test_an_operator_names_members_and_an_existing_all_is_kept(by: Actor, now: datetime) -> None:
    terms = {"name": "theirs", "dialect": "openai", "base_url": "https://a.test/v1"}
    for text in ("all", "n", "top k"):
        with pytest.raises(InvalidRequest) as refused:
            add_provider(terms=ProviderTerms(**terms, members=text), key="", by=by, now=now)
        assert [each.pointer for each in refused.value.errors] == ["/members"]
    made = add_provider(terms=ProviderTerms(**terms, members="top_k"), key="", by=by, now=now)
    Provider.objects.filter(pk=made.pk).update(members="all")
    kept = ProviderTerms(**terms, members="all", calls_per_minute=5)
    change_provider(provider_id=made.pk, terms=kept, key="", reason="x", by=by, now=now)
    made.refresh_from_db()
    assert (made.members, made.calls_per_minute) == ("all", 5)


@pytest.mark.django_db
def test_a_column_written_by_the_previous_release_is_read(by: Actor, now: datetime) -> None:
    """It writes its own column alone."""
    terms = {"name": "theirs", "dialect": "openai", "base_url": "https://a.test/v1"}
    made = add_provider(terms=ProviderTerms(**terms, members="top_k"), key="", by=by, now=now)
    rows = Provider.objects.filter(pk=made.pk)

    def kept(written: str | None = None) -> str:
        if written is not None:
            rows.update(members_before=written, calls_per_minute=7)
        return rows.values_list("members", flat=True).get()

    # A change of something else says the same of members.
    assert kept("listed") == "top_k"
    assert kept("all") == "all"
    assert kept("all") == "all"
    assert kept("listed") == "listed"
    theirs = Provider.objects.create(name="new", base_url="https://a.test", members_before="all")
    theirs.refresh_from_db()
    assert theirs.members == "all"
    assert passes_all(theirs)
    # And what is said here goes on.
    assert kept("all") == "all"
    for text, before in (("top_k", "listed"), ("top_k,min_p", "listed"), ("listed", "listed")):
        changed = ProviderTerms(**terms, members=text)
        change_provider(provider_id=made.pk, terms=changed, key="", reason="x", by=by, now=now)
        assert kept() == text
        assert rows.get().members_before == before
    rows.update(members="all")
    assert kept() == "all"


@pytest.mark.django_db
def test_an_existing_all_is_named_by_check_and_in_the_console(
    settings: Settings, now: datetime
) -> None:
    def told(**options: Any) -> list[str]:
        return [each.msg for each in run_checks(**options) if each.id == "llmproxy.W001"]

    assert told(databases=["default"]) == [each.warning for each in members(now)] == []
    Provider.objects.create(name="theirs", base_url="https://a.test/v1", members="all")
    Provider.objects.create(name="wrong", base_url="https://a.test/v1", members="top_k,n")
    settings.LLM_MEMBERS = "all"
    warnings = told(databases=["default"])
    assert warnings == [each.warning for each in members(now)]
    assert [each.partition(":")[0] for each in warnings] == [
        "LLM_MEMBERS", "Extra request fields of theirs", "Extra request fields of wrong",
    ]  # fmt: skip
    assert told() == warnings[:1]
