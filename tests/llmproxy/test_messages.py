"""The Messages API: what is taken and asked, what each event means, and the usage that is told."""

import json
from pathlib import Path
from typing import Any

import pytest

from config.platform.problems.problem import InvalidRequest
from llmproxy.dialects.anthropic.message_events import MessageTranslator
from llmproxy.dialects.anthropic.messages import MessageCodec
from llmproxy.dialects.protocol import Piece, ProviderError, TokenUsage
from llmproxy.dialects.sse import EventParser
from llmproxy.prompts.estimates import images_in
from llmproxy.requests.messages import Messages, parse, parse_count
from tests.llmproxy.targets import target
from tests.standins.anthropic_server import as_stream, events_of, message, text, thought, tool_use

HI = {"role": "user", "content": "hi"}
TOOL = {"name": "weather", "input_schema": {"type": "object"}}
PNG = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
CODEC = MessageCodec()


def read(*turns: Any, headers: Any = None, **members: Any) -> Messages:
    body = {"model": "m", "max_tokens": 100, "messages": list(turns) or [HI], **members}
    return parse(body, headers=headers or {})


def asked(request: Messages, *, limit: int = 100) -> tuple[dict[str, Any], dict[str, str]]:
    outgoing = CODEC.outgoing(request, target=target("anthropic"), output_limit=limit)
    assert outgoing.url.endswith("/v1/messages")
    return json.loads(outgoing.body), outgoing.headers


def faults(*turns: Any, **members: Any) -> list[tuple[str, str]]:
    try:
        target("anthropic").check(read(*turns, **members))
    except InvalidRequest as refused:
        return [(fault.pointer, fault.code) for fault in refused.errors]
    return []


class TestRequests:
    def test_members_go_on_unchanged_without_nulls(self) -> None:
        cache = {"type": "ephemeral"}
        turns = [
            {"role": "user", "content": [{**text("hi"), "cache_control": cache}]},
            {"role": "assistant", "content": [thought("Hm."), tool_use("weather", {"a": None})]},
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_1",
                        "is_error": None,
                        "content": [{"type": "image", "source": PNG, "cache_control": None}],
                    }
                ],
            },
        ]
        body, _ = asked(
            read(
                *turns,
                system=[{**text("Be brief."), "cache_control": cache}],
                tools=[{**TOOL, "description": None}],
                thinking={"type": "adaptive"},
                output_config={"effort": "low"},
                metadata={"user_id": "someone"},
                stop_sequences=None,
            )
        )
        result = {
            "type": "tool_result",
            "tool_use_id": "toolu_1",
            "content": [{"type": "image", "source": PNG}],
        }
        assert body == {
            "model": "theirs",
            "max_tokens": 100,
            "messages": [*turns[:2], {"role": "user", "content": [result]}],
            "system": [{**text("Be brief."), "cache_control": cache}],
            "tools": [TOOL],
            "thinking": {"type": "adaptive"},
            "output_config": {"effort": "low"},
        }

    def test_thinking_between_calls_of_tools_goes_back_as_it_came(self) -> None:
        said = message(
            *(thought("Hm."), text("So"), tool_use("weather", {"city": "Ulm"})),
            *(thought("And?"), {"type": "redacted_thinking", "data": "EmwK"}),
            tool_use("weather", {"city": "Bonn"}, "toolu_2"),
        )
        answer, _, _ = CODEC.answer(json.dumps(said).encode(), target=target("anthropic"))
        results = [
            {"type": "tool_result", "tool_use_id": each, "content": "4"}
            for each in ("toolu_1", "toolu_2")
        ]
        turns = [
            HI,
            {"role": "assistant", "content": answer["content"]},
            {"role": "user", "content": results},
        ]
        body, _ = asked(read(*turns, tools=[TOOL], thinking={"type": "adaptive"}))
        assert body["messages"] == turns
        assert body["messages"][1]["content"] == said["content"]

    def test_nulls_of_members_that_are_not_supported_are_absent(self) -> None:
        image = {"type": "image", "source": PNG}
        turn = {"role": "user", "content": [{**image, "transformations": None}]}
        given = {"thinking": {"type": "adaptive", "block_binding": None}, "diagnostics": None}
        body, _ = asked(read({**turn, "clear_at": None}, **given))
        assert body["messages"] == [{"role": "user", "content": [image]}]
        assert body["thinking"] == {"type": "adaptive"}
        assert "diagnostics" not in body

    @pytest.mark.parametrize(
        ("members", "where"),
        [
            ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "/tools/0/type"),
            ({"tools": [{"type": "code_execution_20250825", "name": "x"}]}, "/tools/0/type"),
            ({"mcp_servers": [{"type": "url"}]}, "/mcp_servers"),
            ({"container": {"skills": []}}, "/container"),
            ({"speed": "fast"}, "/speed"),
            ({"service_tier": "priority"}, "/service_tier"),
            ({"inference_geo": {"a": 1}}, "/inference_geo"),
            ({"cache_control": {"type": "ephemeral", "ttl": "1h"}}, "/cache_control/ttl"),
            (
                {"context_management": {"edits": [{"type": "compact_20260112"}]}},
                "/context_management/edits/0/type",
            ),
            ({"max_tokens": 0}, "/max_tokens"),
            ({"surprise": 1}, "/surprise"),
        ],
    )
    def test_a_member_that_costs_more_than_tokens_is_refused(
        self, members: Any, where: str
    ) -> None:
        assert [pointer for pointer, _ in faults(**members)] == [where]

    @pytest.mark.parametrize(
        "place",
        ["", "/system/0", "/tools/0", "/messages/0/content/0", "/messages/0/content/1/content/0"],
    )
    def test_a_cache_of_an_hour_is_refused_with_the_reason(self, place: str) -> None:
        hour = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
        at = {place: hour}
        result = {
            "type": "tool_result",
            "tool_use_id": "toolu_1",
            "content": [{**text("rain"), **at.get("/messages/0/content/1/content/0", {})}],
        }
        turn = {
            "role": "user",
            "content": [{**text("hi"), **at.get("/messages/0/content/0", {})}, result],
        }
        with pytest.raises(InvalidRequest) as refused:
            read(
                turn,
                system=[{**text("Be brief."), **at.get("/system/0", {})}],
                tools=[{**TOOL, **at.get("/tools/0", {})}],
                **at.get("", {}),
            )
        (fault,) = refused.value.errors
        assert fault.pointer == f"{place}/cache_control/ttl"
        assert "a price of its own" in fault.detail

    def test_a_computer_is_refused_for_what_it_is(self) -> None:
        computer = {
            "type": "computer_20250124",
            "name": "computer",
            "display_width_px": 1024,
            "display_height_px": 768,
        }
        with pytest.raises(InvalidRequest) as refused:
            read(tools=[computer])
        (fault,) = refused.value.errors
        assert fault.pointer == "/tools/0/type"
        assert "a computer is not supported" in fault.detail

    def test_a_tool_that_is_loaded_by_its_name_passes(self) -> None:
        deferred = {**TOOL, "defer_loading": True}
        turn = {"role": "user", "content": [found("weather")]}
        body, headers = asked(
            read(turn, tools=[deferred], headers={"anthropic-beta": "tool-search-tool-2025-10-19"})
        )
        assert body["tools"] == [deferred]
        assert body["messages"] == [turn]
        assert headers["anthropic-beta"] == "tool-search-tool-2025-10-19"

    def test_updates_of_thinking_pass_with_their_beta(self) -> None:
        thinking = {"type": "enabled", "budget_tokens": 2_000, "display": "updates"}
        beta = {"anthropic-beta": "thinking-display-updates-2026-08-18"}
        body, headers = asked(read(max_tokens=4_000, thinking=thinking, headers=beta), limit=4_000)
        assert body["thinking"] == thinking
        assert headers["anthropic-beta"] == beta["anthropic-beta"]

    @pytest.mark.parametrize(
        ("turn", "beta"),
        [
            # As Claude Code begins a session (anthropics/claude-code).
            ({"content": "Now", "output_config": {"effort": "low"}}, "per-turn-control-2026-07-01"),
            ({"output_config": {"effort": "max"}}, "mid-conversation-output-config-2026-07-01"),
            ({"content": "Now", "output_config": {}}, "mid-conversation-output-config-2026-07-01"),
            ({"content": [text("Now")], "clear_at": "next_user_message"},
             "mid-conversation-system-clear-at-2026-08-21"),
            # KarpelesLab/teamclaude#451
            ({"content": [{"type": "tool_addition", "tool": {"type": "tool_reference", "name": "weather"}}]},
             "mid-conversation-tool-changes-2026-07-01"),
            ({"content": [{"type": "tool_removal", "tool": {"type": "tool_reference", "name": "weather"},
                           "cache_control": {"type": "ephemeral"}}]},
             "mid-conversation-tool-changes-2026-07-01"),
            ({"content": [{"type": "tool_addition", "tool": {"type": "tool_definition", "definition": TOOL}}]},
             "inline-tools-2026-09-15"),
        ],
    )  # fmt: skip
    def test_changes_by_a_later_system_message_pass(self, turn: dict[str, Any], beta: str) -> None:
        turns = [HI, {"role": "system", **turn}]
        body, headers = asked(read(*turns, tools=[TOOL], headers={"anthropic-beta": beta}))
        assert body["messages"] == turns
        assert headers["anthropic-beta"] == beta
        counted = parse_count({"messages": turns, "tools": [TOOL]}, headers={})
        assert counted.tools[:1] == [TOOL]
        assert CODEC.prompt_overhead(counted)

    @pytest.mark.parametrize(
        ("turn", "pointer"),
        [
            ({"role": "user", "output_config": {"effort": "low"}}, "/output_config"),
            ({"role": "assistant", "clear_at": "never"}, "/clear_at"),
            ({"role": "system", "clear_at": "tomorrow"}, "/clear_at"),
            ({"role": "system", "output_config": {"format": {}}}, "/output_config/format"),
            ({"role": "system", "output_config": {"effort": "vast"}}, "/output_config/effort"),
        ],
    )
    def test_a_change_in_another_place_is_refused_by_its_name(
        self, turn: dict[str, Any], pointer: str
    ) -> None:
        assert [at for at, _ in faults(HI, {"content": "Now", **turn})] == [f"/messages/1{pointer}"]
        assert faults(HI, {"role": "user"}) == [("/messages/1/content", "required")]

    def test_a_wrong_value_in_its_place_is_told_the_right_ones(self) -> None:
        turn = {"role": "system", "content": "Now", "clear_at": "tomorrow"}
        with pytest.raises(InvalidRequest) as refused:
            read(HI, turn)
        assert "next_user_message or never" in refused.value.errors[0].detail

    @pytest.mark.parametrize(
        ("tool", "pointer", "why"),
        [
            ({"type": "mcp_toolset_reference", "server_name": "a"}, "type", "runs at the provider"),
            (
                {"type": "tool_definition", "definition": {"type": "web_fetch_20260318", "name": "f"}},
                "definition/type",
                "what the provider runs itself",
            ),
        ],
    )  # fmt: skip
    def test_a_tool_that_the_provider_runs_is_not_added(
        self, tool: dict[str, Any], pointer: str, why: str
    ) -> None:
        block = {"type": "tool_addition", "tool": tool}
        with pytest.raises(InvalidRequest) as refused:
            read(HI, {"role": "system", "content": [block]})
        [fault] = refused.value.errors
        assert fault.pointer == f"/messages/1/content/0/tool/{pointer}"
        assert why in fault.detail

    def test_a_tool_that_is_defined_on_the_way_counts_as_a_tool(self) -> None:
        defined = {"type": "tool_definition", "definition": {**TOOL, "description": "word " * 50}}
        block = {"type": "tool_addition", "tool": defined}
        turns = HI, {"role": "system", "content": [block]}
        added, listed = read(*turns), read(HI, tools=[defined["definition"]])
        assert added.prompt["tools"] == listed.prompt["tools"]
        assert CODEC.prompt_overhead(added) == CODEC.prompt_overhead(listed)
        own = {"type": "tool_definition", "definition": {"type": "bash_20250124", "name": "bash"}}
        more = read(*turns, {"role": "system", "content": [{**block, "tool": own}]})
        assert CODEC.prompt_overhead(more) >= CODEC.prompt_overhead(added) + 700

    def test_members_that_cost_tokens_alone_pass(self) -> None:
        members = {
            "output_config": {"task_budget": {"type": "tokens", "total": 50_000}},
            "diagnostics": {"previous_message_id": None},
            "thinking": {
                "type": "adaptive",
                "block_binding": {"prefix_mismatch_behavior": "error"},
            },
        }
        image = {"type": "image", "source": PNG, "transformations": {"oversized_image": "error"}}
        turn = {"role": "user", "content": [image]}
        body, _ = asked(read(turn, **members))
        assert body["messages"] == [turn]
        assert {name: body[name] for name in members} == members

    def test_a_thread_is_refused_also_where_other_members_pass(self) -> None:
        with pytest.raises(InvalidRequest) as refused:
            read(thread={"type": "create"}, surprise=1)
        assert [fault.pointer for fault in refused.value.errors] == ["/thread"]
        assert "thread" not in asked(read(thread=None))[0]

    def test_a_file_of_the_shared_account_is_refused(self) -> None:
        block = {"type": "document", "source": {"type": "file", "file_id": "file_1"}}
        given = {"role": "user", "content": [block]}
        assert faults(given) == [("/messages/0/content/0/source/type", "invalid")]

    def test_tools_that_the_caller_runs_pass(self) -> None:
        tools = [
            {"type": "bash_20250124", "name": "bash"},
            {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
            {"type": "memory_20250818", "name": "memory"},
            {"type": "custom", **TOOL},
        ]
        assert asked(read(tools=tools))[0]["tools"] == tools

    def test_members_of_no_list_pass_where_an_operator_says_so(self) -> None:
        request = read(surprise=1)
        target("anthropic")._replace(passes_all=True).check(request)
        assert asked(request)[0]["surprise"] == 1

    def test_only_known_versions_and_listed_betas_go_on(self) -> None:
        given = {
            "anthropic-version": "2026-10-21",
            "anthropic-beta": "context-1m-2025-08-07, interleaved-thinking-2025-05-14",
        }
        _, headers = asked(read(headers=given))
        assert headers["anthropic-version"] == "2026-10-21"
        assert headers["anthropic-beta"] == "interleaved-thinking-2025-05-14"
        assert "anthropic-beta" not in asked(read())[1]
        with pytest.raises(InvalidRequest) as refused:
            read(headers={"anthropic-version": "2023-01-01"})
        assert [fault.pointer for fault in refused.value.errors] == ["anthropic-version"]

    @pytest.mark.parametrize(
        ("budget", "limit", "sent"),
        [
            (2_000, 4_000, {"type": "enabled", "budget_tokens": 2_000}),
            (2_000, 1_500, {"type": "enabled", "budget_tokens": 1_499}),
            (4_000, 4_000, {"type": "enabled", "budget_tokens": 4_000}),
        ],
    )
    def test_a_lowered_limit_lowers_the_budget_for_thinking(
        self, budget: int, limit: int, sent: Any
    ) -> None:
        thinking = {"type": "enabled", "budget_tokens": budget}
        request = read(max_tokens=4_000, thinking=thinking)
        assert asked(request, limit=limit)[0]["thinking"] == sent

    def test_the_callers_user_is_a_label(self) -> None:
        assert read(metadata={"user_id": "someone"}).labels == {"user": "someone"}

    def test_a_count_needs_no_limit(self) -> None:
        assert parse_count({"messages": [HI]}, headers={}).members["messages"] == [HI]
        with pytest.raises(InvalidRequest):
            parse({"messages": [HI]}, headers={})


class TestPrompts:
    def test_all_texts_images_and_files_are_counted(self) -> None:
        blocks = [
            text("one"),
            {"type": "image", "source": PNG},
            {"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}},
            {
                "type": "document",
                "title": "two",
                "source": {"type": "text", "media_type": "text/plain", "data": "three"},
            },
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"},
            },
            {
                "type": "search_result",
                "source": "four",
                "title": "five",
                "content": [text("six")],
            },
        ]
        results = [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "eight"},
            *blocks,
        ]
        called = {"role": "assistant", "content": [thought("seven"), tool_use("weather", {})]}
        request = read(called, {"role": "user", "content": results}, system="nine", tools=[TOOL])
        prompt = request.prompt
        told = json.dumps(prompt)
        for word in ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine"):
            assert f'"{word}"' in told
        assert len([*images_in(prompt)]) == 2
        assert "data:application/pdf;base64,AAAA" in told
        assert [message["role"] for message in prompt["messages"]] == [
            "system",
            "assistant",
            "tool",
            "user",
        ]
        assert [*request.fetched_images()] == [
            ("/messages/1/content/3/source/url", "https://a.example/b.png")
        ]

    def test_hidden_thinking_counts_by_its_length(self) -> None:
        hidden = {"type": "redacted_thinking", "data": "x" * 600}
        omitted = {"type": "thinking", "thinking": "", "signature": "x" * 600}
        turn = {"role": "assistant", "content": [hidden, omitted]}
        assert CODEC.prompt_overhead(read(HI, turn)) == 200

    def test_a_deferred_tool_is_reserved_whole_wherever_it_is_named(self) -> None:
        deferred = {**TOOL, "description": "rain " * 1_000, "defer_loading": True}
        once = {"role": "user", "content": [found("weather")]}
        thrice = {
            "role": "user",
            "content": [found("weather", "weather", "none"), found("weather")],
        }
        alone, read_once = read(tools=[deferred]), read(once, tools=[deferred])
        assert "rain rain" in json.dumps(alone.prompt["tools"])
        assert '"weather"' in json.dumps(read_once.prompt["messages"])
        overhead = CODEC.prompt_overhead(read_once)
        assert overhead == CODEC.prompt_overhead(alone)
        again = CODEC.prompt_overhead(read(thrice, tools=[deferred])) - overhead
        assert 2_000 <= again <= 2_100


def found(*names: str) -> dict[str, Any]:
    """The result of a search for tools."""
    named = [{"type": "tool_reference", "tool_name": name} for name in names]
    return {"type": "tool_result", "tool_use_id": "toolu_1", "content": named}


def events(*given: Any, size: int = 10_000, called: str | None = "ours") -> tuple[list[Piece], Any]:
    translator = MessageTranslator(called=called, key=lambda: "")
    parser, data = EventParser(), b"".join(map(as_stream, given))
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    pieces = [
        translator.piece(event)
        for found in (*map(parser.feed, parts), parser.finish())
        for event in found
    ]
    return pieces, translator


def told(data: bytes) -> list[dict[str, Any]]:
    blocks = [block.split(b"\n") for block in data.split(b"\n\n") if block]
    found = []
    for name, line in blocks:
        one = json.loads(line.removeprefix(b"data: "))
        assert name == b"event: " + one["type"].encode()
        found.append(one)
    return found


class TestStreams:
    @pytest.mark.parametrize("size", [1, 7, 10_000])
    def test_events_go_on_and_the_last_two_wait_for_the_settlement(self, size: int) -> None:
        answer = message(thought("Hm."), text("Hello"), tool_use("weather", {"city": "Ulm"}))
        sent = events_of(answer)
        pieces, translator = events(*sent, size=size)
        forwarded = told(b"".join(piece.forward for piece in pieces))
        begun = {**sent[0], "message": {**sent[0]["message"], "model": "ours"}}
        assert forwarded == [begun, *sent[1:-2]]
        (known,) = [piece.reported for piece in pieces if piece.reported]
        assert known == TokenUsage(30, 42, 15, cache_write=4)
        assert [piece.ended for piece in pieces if piece.ended or piece.finished] == [False, True]
        last, stop = told(translator.ending(known))
        assert (last["delta"]["stop_reason"], stop["type"]) == ("end_turn", "message_stop")
        assert last["usage"]["output_tokens"] == 42
        assert sum(piece.size for piece in pieces) >= len("Hm.Helloweather")

    def test_an_implausible_report_is_not_forwarded(self) -> None:
        _, translator = events(*events_of(message(text("Hello"))))
        last, _ = told(translator.ending(TokenUsage(30, 99, 15)))
        usage = last["usage"]
        assert usage["output_tokens"] == 99
        assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (15, 15)
        assert usage["cache_creation_input_tokens"] == 0

    def test_a_message_that_stops_without_a_reason_was_cut(self) -> None:
        sent = events_of(message(text("Hello")))
        pieces, _ = events(*sent[:-2], sent[-1])
        assert isinstance(pieces[-1].failed, ProviderError)

    def test_a_block_before_the_message_is_a_failure(self) -> None:
        pieces, _ = events({"type": "content_block_stop", "index": 0})
        assert isinstance(pieces[0].failed, ProviderError)

    def test_unknown_events_are_left_out(self) -> None:
        pieces, _ = events({"type": "organization", "id": "org-1"})
        assert pieces[0] == Piece()

    def test_members_pass_but_for_costs(self) -> None:
        usage = {**message()["usage"], "iterations": 2, "cost": 0.1}
        sent = events_of(message(text("Hello"), region="a", of={"price": 1}, usage=usage))
        sent[-2] |= {"theirs": 1, "usage": usage}
        sent[2] |= {"cost": 1}
        pieces, translator = events(*sent)
        kept = told(b"".join(piece.forward for piece in pieces))
        assert [each["type"] for each in kept[:2]] == ["message_start", "content_block_start"]
        assert (kept[0]["message"]["region"], kept[0]["message"]["of"]) == ("a", {})
        assert not [each for each in kept if "cost" in each]
        (last, _) = told(translator.ending(TokenUsage(30, 42, 15, cache_write=4)))
        assert (last["theirs"], last["usage"]["iterations"]) == (1, 2)
        assert "cost" not in last["usage"]

    def test_blocks_of_unknown_kinds_are_left_out_and_the_others_counted_anew(self) -> None:
        run = {"type": "server_tool_use", "id": "s", "name": "search", "input": {}}
        pieces, _ = events(*events_of(message(text("Hm."), run, text("Hello"))))
        blocks = [
            each
            for each in told(b"".join(piece.forward for piece in pieces))
            if each["type"].startswith("content_block")
        ]
        assert {each["index"] for each in blocks} == {0, 1}
        assert b"server_tool_use" not in b"".join(piece.forward for piece in pieces)

    def test_a_tools_input_keeps_its_names(self) -> None:
        call = tool_use("book", {"price": 9, "usage": "x"})
        body = json.dumps({**message(call), "cost": 1}).encode()
        answer, _, _ = CODEC.answer(body, target=target("anthropic"))
        assert answer["content"] == [call]

    TEXT = "The whole answer. " * 100

    @pytest.mark.parametrize(
        "given",
        [
            {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "", "x": TEXT}},
            {"type": "content_block_start", "content_block": {"type": "text", "of": [{"x": TEXT}]}},
            {"type": "content_block_stop", "words": TEXT},
            {"type": "content_block_stop", "delta": {"type": "text_delta", "text": TEXT}},
        ],
    )
    def test_text_counts_wherever_a_provider_puts_it(self, given: dict[str, Any]) -> None:
        begun = events_of(message())[0]
        (_, piece), _ = events(begun, {"index": 0, **given})
        assert piece.size == len(self.TEXT)
        begun["message"]["words"] = self.TEXT
        ((piece,), _) = events(begun)
        assert piece.size == len(self.TEXT)

    def test_a_failure_is_an_event_of_anthropics(self) -> None:
        _, translator = events(*events_of(message(text("Hello")))[:3])
        (error,) = told(translator.failure(ProviderError()))
        assert (error["type"], error["error"]["type"]) == ("error", "api_error")
        assert (error["code"], error["status"]) == ("provider_error", 502)

    @pytest.mark.parametrize(
        "name", ["text", "thinking-tools", "refusal", "length", "unknown", "server-tools"]
    )
    def test_recorded_streams_end_whole(self, name: str) -> None:
        path = Path(__file__).with_name("fixtures") / f"anthropic-{name}.sse"
        translator = MessageTranslator(called=None, key=lambda: "")
        parser = EventParser()
        found = [*parser.feed(path.read_bytes()), *parser.finish()]
        pieces = [translator.piece(event) for event in found]
        assert not any(piece.failed for piece in pieces)
        known = [piece.reported for piece in pieces if piece.reported][-1]
        assert told(translator.ending(known))[0]["usage"]["output_tokens"] == known.output


class TestAnswers:
    def test_a_whole_answer_keeps_its_shape(self) -> None:
        run = {"type": "server_tool_use", "id": "s", "name": "search", "input": {}}
        given = message(thought("Hm."), text("Hello"), region="here", context={"cost": 1})
        body = json.dumps({**given, "content": [*given["content"], run]}).encode()
        answer, known, size = CODEC.answer(body, target=target("anthropic"))
        completed = CODEC.completed(answer, called="ours", charged=None)
        assert completed == {**given, "context": {}, "model": "ours"}
        assert known == TokenUsage(30, 42, 15, cache_write=4)
        assert size == len("Hm.Hellohere")

    def test_the_charge_is_told_without_a_report(self) -> None:
        body = json.dumps(message(text("Hello"), usage=None)).encode()
        answer, known, _ = CODEC.answer(body, target=target("anthropic"))
        assert known is None
        completed = CODEC.completed(answer, called=None, charged=TokenUsage(7, 3))
        assert completed["usage"]["input_tokens"] == 7
        assert completed["usage"]["output_tokens"] == 3
