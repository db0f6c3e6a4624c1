"""Uses what openapi-generator makes of the schema for Python; `tests/served/test_openapi_generator.py` runs it."""

import importlib
import json
import os
import pkgutil

import shell_client
from shell_client import AccessApi, ApiClient, Configuration, LicenceApi, ModelsApi, ReleasesApi
from shell_client.exceptions import ForbiddenException, UnauthorizedException
from shell_client.models import LlmCompleteRequest, LoginRequest, Message, MessageContent

modules = [each.name for each in pkgutil.walk_packages(shell_client.__path__, "shell_client.")]
for module in modules:
    importlib.import_module(module)

email, here = os.environ["EMAIL"], Configuration(host=os.environ["BASE_URL"])
with ApiClient(here) as api:
    try:
        AccessApi(api).login(LoginRequest(email=email, password="not this one"))
    except UnauthorizedException as error:
        refused = error.data.code
    pair = AccessApi(api).login(LoginRequest(email=email, password=os.environ["PASSWORD"]))
    here.access_token = pair.access
    licence = LicenceApi(api).license_status()
    said = [Message(role="user", content=MessageContent("Hello"))]
    whole = ModelsApi(api).llm_complete(LlmCompleteRequest(messages=said, max_tokens=30, n=1))
    try:
        ReleasesApi(api).app_manifest("nothing-such")
    except ForbiddenException as error:
        seen = error.data.actual_instance.code

print(
    json.dumps(
        {
            "modules": len(modules),
            "licence": licence.status.value,
            "text": whole.choices[0].message.content,
            "refused": refused,
            "seen": seen,
        }
    )
)
