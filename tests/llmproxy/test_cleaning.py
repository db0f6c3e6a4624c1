"""A provider's text names neither our key, in whatever writing, nor its own systems, nor anybody's secrets."""

import codecs
import json
from base64 import b32encode, b64encode, b85encode, urlsafe_b64encode
from urllib.parse import quote

import pytest

from llmproxy.dialects.protocol import ProviderRejected
from llmproxy.dialects.refusals import problem_of
from tests.effort import takes_at_most

KEY = "kkqpA7sT0uVw3xYzB4cD8lPk"


def told(message: str, *, key: str = KEY, status: int = 400, **headers: str) -> str:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    body = json.dumps({"error": {"message": message}}).encode()
    return problem_of(status, named, body, key=key).detail


# A text, and what of it is not for callers.
STRANGE = [
    ("connect 10.0.0.5:8000 refused", "10.0.0.5"),
    ("upstream 192.168.7.0/24 is away", "192.168"),
    ("connect to fd00:12::1", "fd00"),
    ("via [fe80::1%eth0]:8000", "fe80"),
    ("via [::ffff:10.0.0.5]:8000", ".5"),
    ("connect to ::ffff:10.0.0.5", "0.0"),
    ("node gpu-3.internal is lost", "gpu-3"),
    ("vault.service.consul says no", "consul"),
    ("host kubernetes.default.svc.cluster.local", "kubernetes"),
    ("llm-7.corp.acme.com:443 is down", "acme"),
    ("connection to redis:6379 refused", "6379"),
    ("redis-master:6379 timed out", "redis-master"),
    ("localhost:8000 refused", "localhost"),
    ("pod llm-7d9f8-abc restarts", "7d9f8"),
    ("http://10.0.0.5:8000/v1 said 500", "10.0.0.5"),
    ("no file /srv/models/llama/config.json", "srv"),
    (r"no file C:\Users\svc\models\x.bin", "svc"),
    (r"no file \\fileserver\share\x", "fileserver"),
    ("read ~/.aws/credentials", ".aws"),
    ("read ../../etc/passwd", "etc"),
    ("read file:///etc/passwd", "etc"),
    ("at vllm/engine/llm_engine.py:55", "engine"),
    ('File "/usr/lib/x.py", line 7, in y', "usr"),
    ("used AKIAIOSFODNN7EXAMPLE", "IOSF"),
    ("used AIzaSyA1234567890abcdefghijklmnopqrstuv", "SyA1"),
    ("used ghp_abcdefghijklmnopqrst0123456789ABCD", "abcdef"),
    ("used glpat-abcdefghij0123456789", "abcdef"),
    ("used xoxb-1234567890-abcdef", "123456"),
    ("used hf_abcdefghijklmnopqrstuvwx", "abcdef"),
    ("used sk_live_abcdef0123456789", "abcdef"),
    ("used SG.abcdefghijklmnop.qrstuvwxyz", "abcdef"),
    ("used xai-abcdefghij0123456789abcd", "abcdef"),
    ("used ya29.a0AfH6SMBabcdefg", "a0Af"),
    ("used eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc", "eyJ"),
    ("used wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "wJal"),
    ("used deadbeefdeadbeefdeadbeefdeadbeef", "dead"),
    ("-----BEGIN PRIVATE KEY-----\nMIIabc\n-----END PRIVATE KEY-----", "MII"),
    ("postgres://user:pw@db/x", "user"),
    ("secret=hunter2", "hunter2"),
    ("server=db1;uid=sa", "db1"),
    ("DB_PASS=hunter2", "hunter2"),
    ("Authorization: Token hunter2hunter2", "hunter2"),
    ("Authorization was Basic dXNlcjpwYXNz", "dXNl"),
    ("path:/srv/models/x", "srv"),
    ("password: hunter2", "hunter2"),
    ("OPENAI_API_KEY=hunter2", "hunter2"),
    ("AccountKey=hunter2==;", "hunter2"),
    ("Authorization: Basic YWxhZGRpbjpvcGVuc2VzYW1l", "YWxh"),
    ("Set-Cookie: session_id=hunter2", "hunter2"),
    ("arn:aws:bedrock:us-east-1:123456789012:model/x", "123456789012"),
    ("ask ops@corp.example", "ops"),
    ("llm7.intern.firma.de:8000 is down", "firma"),
    ("no route to llm7.intern.firma.de.", "firma"),
    ("gpu-3.corp.co.uk is down", "corp"),
    ("gpu1.rechen.firma.at is down", "firma"),
    ("node01.hpc.uni-x.edu is down", "hpc"),
    ("messages.corp.com is down", "corp"),
    ("messages.0.corp.com:8000 is down", "corp"),
    ("10.0.0.5.nip.io is down", "nip"),
    ("ip-10-0-1-5 is down", "10-0"),
    ("connect to 0x7f000001", "7f"),
    ("connect to 0x7f.0.0.0x1", "7f"),
    ("connect to 017700000001", "0177"),
    ("connect to 0177.0.0.01", "0177"),
    ("worker gpu-node-17 is down", "node-17"),
    ("read (https://10.0.0.5/x), then stop", "10.0"),
    ("read https://docs.claude.com.corp.de/x", "claude"),
    ("read https://docs.claude.com@gpu/x", "gpu"),
    # After what reads as a place in a request, or in a registry.
    ("body.password=hunter2", "hunter2"),
    ("body.password: hunter2", "hunter2"),
    ("'body.password' = 'hunter2'", "hunter2"),
    ("body.password: swordfish is wrong", "swordfish"),
    ("properties.api_key=abcd1234", "abcd1234"),
    ("parameters.connection.pwd=hunter2", "hunter2"),
    ("properties.sk-abcdefghijklmnopqrst", "abcdef"),
    ("messages.0.sk-abcd****wxyz", "abcd"),
    ("messages.0.eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abcdef", "eyJ"),
    ("thinking.ghp_16C7e42F292c6912E7710c838347Ae178B4a", "16C7"),
    ("messages.0.content.org-abcd1234", "abcd"),
    ("body.project: acme-prod", "acme"),
    ("body.host: gpu-3", "gpu-3"),
    ("parameters.postgres.acme.internal is away", "acme"),
    ("messages.0.db.corp is away", "db"),
    ("parameters.postgres.acme.com is away", "acme"),
    ("password=thinking.of.you", "you"),
    ("hf.co/sk-abcdefghijklmnopqrst/x", "abcdef"),
    ("unexpected password=hunter2", "hunter2"),
    ("Unexpected auth_token: hunter2hunter2", "hunter2"),
    ("unexpected api_key='abcd1234'", "abcd1234"),
    ("unexpected cookie: sid=abc", "sid"),
    ("Unexpected token: s3cr3tvalue", "s3cr3t"),
]


@pytest.mark.parametrize(
    "written",
    [
        "\uff11\uff10\uff0e\uff10\uff0e\uff10\uff0e\uff15",
        "10\u30020\u30020\u30025",
        "\uff47\uff50\uff55\uff0d\uff13\uff0einternal",
        "\u24db\u24de\u24d2\u24d0\u24db\u24d7\u24de\u24e2\u24e3:8000",
        "\U0001d420\U0001d429\U0001d42e.\U0001d422nternal",
        "gpu-3\u200b.inter\u00adnal",
        r"\U00000031\U00000030.0.0.5",
        r"\u0031\x30.0.0.5",
        r"\u{31}\060.0.0.5",
        "&#49;&#x30;.0.0.5",
        "%31%30.0.0.5",
        "ht\uff54p://gpu/",
        "\uff0fsrv\uff0fmodels",
    ],
)
def test_the_names_of_its_systems_are_removed_in_other_writings(written: str) -> None:
    assert told(f"It failed: {written} is away") == "It failed: … is away"


@pytest.mark.parametrize(("message", "hidden"), STRANGE)
def test_names_of_its_systems_and_secrets_are_removed(message: str, hidden: str) -> None:
    assert hidden not in told(f"It failed: {message}")


@pytest.mark.parametrize(
    "message",
    [
        "messages.0.content.1.image.source.base64: The image was specified using the image/jpeg media type.",
        "body.messages.0.content: Field required",
        "tools.0.custom.input_schema.type: Field required",
        "Invalid at /messages/0/content/1: expected text.",
        "Not a chat model; did you mean v1/completions or /v1/responses?",
        "max_tokens: 16 > 8 at messages.10.content",
        "tool_use ids without results: toolu_01D7FLrfh4GYq7yT1ULFeyMV.",
        "The model `gpt-4.1-mini` does not exist.",
        "Model meta-llama/Llama-3.3-70B-Instruct not found.",
        'model "qwen2.5:7b" not found, try pulling it first',
        "temperature: 2.5 is not in [0.0, 2.0], as of 12:30:45 on 2026-11-23",
        "input[3].content[0] has text/plain, not application/json",
        "Error code: 400, status:400, version 1.2.3, ratio 16:9",
        "expected u32 at line 1 column 55",
        "prompt is too long: 212345 tokens > 200000 maximum",
        "tools.0.function.parameters.properties.test: Invalid JSON schema",
        "messages[2].content[0].text.home is wrong, as is response_format.json_schema.schema.properties.us",
        "Unknown node kind: array. No such host is known.",
        "Unknown name at 'tools[0].function_declarations[0].parameters.properties[0].value', and at body.metadata.us",
        "Unexpected token: }",
        "unexpected token: identifier",
        "tools.0.custom.input_schema.properties.token: Input should be a valid dictionary",
        "tools.0.custom.input_schema.properties.internal: Required",
        "Invalid 'tools[0].function.parameters.properties.token': must be a string",
        "hf.co/bartowski/DeepSeek-R1-Distill-Qwen-32B-GGUF does not support tools",
        "Expected a token: ], found version 3.0.0.1 of the grammar",
        "Invalid regex at /properties/zip/pattern: unterminated group",
        # Of OpenAI.
        "Invalid schema for function 'find': In context=('properties', 'place'), 'additionalProperties' is required.",
        "Invalid 'tools[0].function.name': string does not match the pattern '^[a-zA-Z0-9_-]+$'.",
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        "Unknown parameter: 'response_format.json_schema.foo'.",
        "Missing required parameter: 'tools[0].name'. See https://platform.openai.com/docs/guides/function-calling.",
        "Invalid value: 'input_txt'. Supported values are: 'input_text', 'input_image', 'output_text', and 'refusal'.",
        # Of Anthropic.
        "tools.0.custom.input_schema.properties.home: Input should be a valid dictionary",
        (
            "tools.3.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12"
            " (https://json-schema.org/draft/2020-12). Learn more at https://docs.claude.com/en/docs/tool-use."
        ),
        "messages.3.content.0.text: text content blocks must contain non-whitespace text",
        (
            "`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our documentation at"
            " https://docs.claude.com/en/docs/build-with-claude/extended-thinking#max-tokens-and-context-window-size"
        ),
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_01A09q90qw90lq91.",
        # Of vLLM.
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        "Conversation roles must alternate user/assistant/user/assistant/...",
        "The decoder prompt (length 40961) is longer than the maximum model length of 40960.",
        (
            "1 validation error for ValidatorIterator\n0.function\n  Field required [type=missing, input_type=dict]\n"
            "    For further information visit https://errors.pydantic.dev/2.11/v/missing"
        ),
        "The model `Qwen/Qwen2.5-Coder-32B-Instruct` does not exist.",
        # Of Ollama.
        'model "qwen2.5-coder:32b" not found, try pulling it first',
        "model 'qwen2.5-coder:32' not found",
        "registry.ollama.ai/library/gemma3:12b does not support tools",
        "hf.co/bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M does not support tools",
        "json: cannot unmarshal array into Go struct field ChatRequest.messages.content of type string",
        "model requires more system memory (18.7 GiB) than is available (4.1 GiB)",
        # Of TGI.
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens",
        "Template error: unknown method: string has no method named split (in <string>:45)",
        # Of DeepSeek and other servers.
        (
            "Failed to deserialize the JSON body into the target type: messages[1].role: unknown variant `developer`,"
            " expected one of `system`, `user`, `assistant`, `tool` at line 1 column 51036"
        ),
        (
            "Missing `reasoning_content` field in the assistant message at message index 2. For more information,"
            " please refer to https://api-docs.deepseek.com/guides/thinking_mode#tool-calls"
        ),
        "messages[1] and messages[2] in your input: interleave the user/assistant messages in the sequence.",
        "模型不存在，请检查（model：glm-4.5）。",
    ],
)
def test_words_about_a_request_are_left(message: str) -> None:
    assert told(message) == message


@pytest.mark.parametrize(
    "written",
    [
        b64encode(KEY.encode()).decode(),
        urlsafe_b64encode(b"x:" + KEY.encode()).decode(),
        b64encode(b"Basic " + KEY.encode() + b"zz").decode(),
        b32encode(KEY.encode()).decode(),
        b85encode(KEY.encode()).decode(),
        KEY.encode().hex(),
        KEY.encode().hex(" ").upper(),
        ", ".join(map(hex, KEY.encode())),
        str(list(KEY.encode())),
        codecs.encode(KEY, "rot13"),
        KEY[::-1],
        KEY.swapcase(),
        "-".join(KEY),
        "\u200b".join(KEY),
        f"{KEY[:12]} {KEY[12:]}",
        "".join(f"%{ord(each):02x}" for each in KEY),
        quote(KEY.replace("A", "%41")),
        "".join(f"&#{ord(each)};" for each in KEY),
        "".join(f"\\u{ord(each):04x}" for each in KEY),
        "".join(f"\\x{ord(each):02X}" for each in KEY),
        "".join(f"\\U{ord(each):08x}" for each in KEY),
        "".join(f"\\u{{{ord(each):x}}}" for each in KEY),
        "".join(f"\\{ord(each):03o}" for each in KEY),
        "".join(chr(ord(each) + 0xFEE0) for each in KEY),
    ],
)
def test_our_key_in_another_writing_withholds_the_text(written: str) -> None:
    detail = told(f"It failed: used {written}", status=422, x_request_id="req_0123456789")
    assert detail == (
        f"{ProviderRejected.default_detail} Its reason is not shown (status 422, its request req_0123456789)."
    )


@pytest.mark.parametrize("key", ["", "ollama"])
def test_a_servers_message_is_shown_unchanged_without_a_key_in_it(key: str) -> None:
    said = "Input validation error: `inputs` must be a list"
    assert told(said, key=key) == said


@pytest.mark.parametrize("request_id", [KEY, f"req_{KEY[3:11]}", "a b", "x" * 100, "10.0.0.5"])
def test_a_request_id_that_shows_more_is_withheld_too(request_id: str) -> None:
    detail = told(f"Bad key {KEY}", request_id=request_id)
    assert detail.endswith("Its reason is not shown (status 400).")


@pytest.mark.parametrize(
    "piece", ["a-", "a.", "/a", ":", "1.", "a/", "host ", "0:", "\\", "[::", "%4", "body.a: h "]
)
def test_the_longest_text_is_cleaned_fast(piece: str) -> None:
    # A tenth of a second; what reads a text again from each of its places takes minutes.
    assert takes_at_most(50, lambda: told(piece * 30_000))
