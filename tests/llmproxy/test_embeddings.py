"""Embeddings: what a request may hold, how it is counted, and what providers answer."""

from json import dumps, loads
from typing import Any

import pytest

from config.platform.problems.problem import InvalidRequest, Problem
from llmproxy.dialects.failures import FailedAnswer
from llmproxy.dialects.openai.embeddings import Embeddings
from llmproxy.dialects.protocol import TokenUsage
from llmproxy.models import Route
from llmproxy.prompts.estimates import Measure, prompt_estimate
from llmproxy.requests.call_request import Surface
from llmproxy.requests.embeddings import parse
from tests.llmproxy.targets import target

VECTOR = {"object": "embedding", "index": 0, "embedding": [0.5, -0.5]}


def estimate(given: Any) -> int:
    request = parse({"input": given})
    overhead = Embeddings().prompt_overhead(request)
    measure = Measure("cl100k_base", Route.FIRST_FACTOR)
    return prompt_estimate(request.prompt, measures=[measure], overhead=overhead).tokens


@pytest.mark.parametrize(
    ("given", "tokens"),
    [("one two three", 3), (["one", "two three"], 3), ([1, 2, 3], 3), ([[1, 2], [3]], 3)],
)
def test_texts_and_tokens_are_counted(given: Any, tokens: int) -> None:
    assert tokens <= estimate(given) <= tokens + 16


def test_many_texts_are_not_counted_as_many_messages() -> None:
    assert estimate(["word"] * 1000) <= 1016


def test_a_call_is_rewritten_for_the_provider() -> None:
    request = parse(
        {
            "model": "ours",
            "input": ["a"],
            "dimensions": 8,
            "encoding_format": "base64",
            "user": "someone",
        }
    )
    assert (request.surface, request.output_wanted, request.stream) == (
        Surface.EMBEDDINGS,
        0,
        False,
    )
    assert request.labels == {"user": "someone"}
    sent = Embeddings().outgoing(request, target=target(), output_limit=0)
    assert sent.url.endswith("/v1/embeddings")
    assert loads(sent.body) == {
        "model": "theirs",
        "input": ["a"],
        "dimensions": 8,
        "encoding_format": "base64",
    }


@pytest.mark.parametrize(
    ("members", "pointer"),
    [
        ({}, "/input"),
        ({"input": []}, "/input"),
        ({"input": {"a": 1}}, "/input"),
        ({"input": "a", "dimensions": 0}, "/dimensions"),
        ({"input": "a", "encoding_format": "hex"}, "/encoding_format"),
    ],
)
def test_a_fault_is_refused(members: dict[str, Any], pointer: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse(members)
    assert refused.value.errors[0].pointer == pointer


def test_a_member_that_is_not_of_the_dialect_is_refused_unless_all_pass() -> None:
    request = parse({"input": "a", "task": "query"})
    with pytest.raises(InvalidRequest):
        target().check(request)
    target()._replace(passes_all=True).check(request)
    assert request.members["task"] == "query"


@pytest.mark.parametrize(
    ("usage", "known"),
    [
        ({"prompt_tokens": 4, "total_tokens": 4}, TokenUsage(4, 0)),
        ({"total_tokens": 4}, TokenUsage(4, 0)),
        (None, None),
    ],
)
def test_only_the_input_is_reported(usage: Any, known: TokenUsage | None) -> None:
    body = dumps({"data": [VECTOR], "model": "theirs", "usage": usage}).encode()
    answer, reported, size = Embeddings().answer(body, target=target())
    assert (reported, size) == (known, 0)
    told = Embeddings().completed(answer, called="ours", charged=TokenUsage(9, 0))
    assert (told["model"], told["data"]) == ("ours", [VECTOR])
    assert told["usage"] == {"prompt_tokens": 9, "total_tokens": 9}


def test_the_cost_of_a_call_at_the_provider_reaches_no_caller() -> None:
    usage = {"prompt_tokens": 4, "total_tokens": 4}
    body = dumps({"data": [VECTOR], "usage": {**usage, "cost": 0.1}}).encode()
    answer, _, _ = Embeddings().answer(body, target=target())
    assert Embeddings().completed(answer, called=None, charged=None)["usage"] == usage


@pytest.mark.parametrize("usage", [{"total_tokens": 4.0}, {"prompt_tokens": 4.0, "cost": 1}])
def test_the_usage_is_in_whole_numbers_and_has_the_prompt(usage: Any) -> None:
    body = dumps({"data": [VECTOR], "usage": usage}).encode()
    answer, reported, _ = Embeddings().answer(body, target=target())
    told = Embeddings().completed(answer, called=None, charged=None)["usage"]
    assert reported == TokenUsage(4, 0)
    assert dumps(told, sort_keys=True) == '{"prompt_tokens": 4, "total_tokens": 4}'


def test_members_of_an_answer_pass_but_for_costs() -> None:
    body = dumps({"data": [{**VECTOR, "price": 1}], "region": "a", "cost": 1}).encode()
    answer, _, _ = Embeddings().answer(body, target=target())
    assert answer == {"data": [VECTOR], "region": "a", "usage": {}}


def test_the_purpose_of_an_embedding_passes() -> None:
    members = {"input": "a", "input_type": "search_query", "truncate": "END"}
    request = parse(members)
    assert (request.unknown, request.members) == ((), members)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'{"data": [1], "usage": [1]}',
        b"[]",
        b"{}",
        b'{"data": []}',
        b'{"error": {"code": 500}}',
    ],
)
def test_an_answer_without_embeddings_is_a_failure(body: bytes) -> None:
    with pytest.raises(Problem):
        Embeddings().answer(body, target=target())


@pytest.mark.parametrize(
    ("given", "count"),
    [("a", 1), (["a"], 1), (["a", "b", "c"], 3), ([1, 2, 3], 1), ([[1, 2], [3]], 2), ([0], 1)],
)
def test_a_vector_answers_each_input(given: Any, count: int) -> None:
    request = parse({"input": given})
    for made in range(1, 5):
        data = [{"object": "embedding", "embedding": [0.5]} for _ in range(made)]
        body = dumps({"data": data, "usage": {"prompt_tokens": 4}}).encode()
        if made == count:
            assert len(Embeddings().answer(body, target=target(), request=request).members["data"])
            continue
        with pytest.raises(FailedAnswer) as failed:
            Embeddings().answer(body, target=target(), request=request)
        assert failed.value.reported == TokenUsage(4, 0)
