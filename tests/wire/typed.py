"""Uses what openapi-python-client makes of the schema; `tests/served/test_generated_clients.py` checks and runs it."""

import json
import os

from shell_client import AuthenticatedClient, Client
from shell_client.api.access import login
from shell_client.api.licence import license_status
from shell_client.api.models import llm_complete, llm_stream
from shell_client.api.releases import app_manifest
from shell_client.models import (
    ChatCompletion,
    InvalidCredentialsProblem,
    InvalidRequestCallProblem,
    LicenceStatus,
    LlmCompleteBody,
    LlmStreamBody,
    LoginRequest,
    Message,
    MessageRole,
    NotEntitledProblem,
    TokenPair,
)

BASE_URL, EMAIL = os.environ["BASE_URL"], os.environ["EMAIL"]

anyone = Client(base_url=BASE_URL)
refused = login.sync(client=anyone, body=LoginRequest(email=EMAIL, password="not this one"))
assert isinstance(refused, InvalidCredentialsProblem)
assert refused.status == 401
pair = login.sync(client=anyone, body=LoginRequest(email=EMAIL, password=os.environ["PASSWORD"]))
assert isinstance(pair, TokenPair)
person = AuthenticatedClient(base_url=BASE_URL, token=pair.access)

licence = license_status.sync(client=person)
assert isinstance(licence, LicenceStatus)
seen = app_manifest.sync("nothing-such", client=person)
assert isinstance(seen, NotEntitledProblem)

messages = [Message(role=MessageRole.USER, content="Hello")]
whole = llm_complete.sync(client=person, body=LlmCompleteBody(messages=messages, max_tokens=30))
assert isinstance(whole, ChatCompletion)
text = whole.choices[0].message.content
wrong = llm_complete.sync(client=person, body=LlmCompleteBody(messages=[]))
assert isinstance(wrong, InvalidRequestCallProblem)
streamed = llm_stream.sync(client=person, body=LlmStreamBody(messages=messages, max_tokens=30))
assert isinstance(streamed, str)

print(
    json.dumps(
        {
            "licence": licence.status.value,
            "text": text,
            "used": whole.usage.completion_tokens,
            "refused": refused.code,
            "wrong": [fault.pointer for fault in wrong.errors or ()],
            "message": wrong.error.message,
            "done": streamed.rstrip().endswith("[DONE]"),
            "seen": seen.code,
        }
    )
)
