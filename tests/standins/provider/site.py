"""The addresses of the stand-in: OpenAI's under `/v1`, and three of its own for tests."""

import asyncio
import hmac
import sys
import traceback
from collections.abc import Awaitable, Callable

from tests.standins.provider.answer import compose
from tests.standins.provider.chat import MODELS, read_body, read_chat
from tests.standins.provider.delivery import deliver
from tests.standins.provider.failures import ApiError
from tests.standins.provider.tally import Tally
from tests.standins.provider.wire import Reply, Request

CHAT = "/v1/chat/completions"
OWN = "/__"
CREATED = 1735689600  # when the models are said to be from: 2025-01-01 in UTC
Handler = Callable[[Request, Reply], Awaitable[None]]


class StandIn:
    """Answers requests; `api_key` None takes any key, but not none."""

    def __init__(self, api_key: str | None) -> None:
        self.api_key = api_key
        self.tally = Tally()
        self.routes: dict[str, dict[str, Handler]] = {
            CHAT: {"POST": self._chat},
            "/v1/models": {"GET": self._models},
            f"{OWN}stats": {"GET": self._stats},
            f"{OWN}last": {"GET": self._last},
            f"{OWN}reset": {"POST": self._reset},
        }
        for model in MODELS:
            self.routes[f"/v1/models/{model}"] = {"GET": self._model}

    async def answer(self, request: Request, reply: Reply) -> None:
        """Answer one request, whatever happens."""
        if not request.path.startswith(OWN) and reply.connection.when_lost is None:
            self.tally.connected()
            reply.connection.when_lost = self.tally.disconnected
        try:
            await self._handler(request)(request, reply)
        except ApiError as error:
            await reply.send_json(error.status, error.body, error.headers)
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001
            # The place alone: a message could repeat what was asked.
            frames = "".join(traceback.format_tb(error.__traceback__))
            sys.stderr.write(f"{type(error).__name__} at\n{frames}")
            await _give_up(reply)

    def _handler(self, request: Request) -> Handler:
        methods = self.routes.get(request.path)
        if methods is None:
            if request.path.startswith("/v1/models/"):
                return self._model
            raise ApiError(404, f"Invalid URL ({request.method} {request.path})")
        if request.method not in methods:
            raise ApiError(
                405,
                f"Not allowed to {request.method} on {request.path}. "
                "(HINT: Perhaps you meant to use a different HTTP method?)",
                headers=(("Allow", ", ".join(methods)),),
            )
        return methods[request.method]

    def _authorise(self, request: Request) -> None:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        key = key.strip()
        if scheme.lower() != "bearer" or not key:
            raise ApiError(
                401,
                "You didn't provide an API key. You need to provide your API key in an "
                "Authorization header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY).",
            )
        if self.api_key is not None and not hmac.compare_digest(
            key.encode(), self.api_key.encode()
        ):
            raise ApiError(401, "Incorrect API key provided.", code="invalid_api_key")

    async def _chat(self, request: Request, reply: Reply) -> None:
        with self.tally.request():
            try:
                await self._complete(request, reply)
            except ApiError as error:
                await reply.send_json(error.status, error.body, error.headers)
            except (asyncio.CancelledError, ConnectionError):
                if not reply.streaming:
                    self.tally.counted["calls_aborted"] += 1
                raise
            finally:
                if reply.status is not None:
                    self.tally.responses[reply.status] += 1

    async def _complete(self, request: Request, reply: Reply) -> None:
        self._authorise(request)
        body = read_body(request.body)
        self.tally.received(body, request.headers)
        chat = read_chat(body)
        await deliver(reply, chat, compose(chat), self.tally)

    async def _models(self, request: Request, reply: Reply) -> None:
        self._authorise(request)
        data = [_described(model) for model in MODELS]
        await reply.send_json(200, {"object": "list", "data": data})

    async def _model(self, request: Request, reply: Reply) -> None:
        self._authorise(request)
        model = request.path.removeprefix("/v1/models/")
        if model not in MODELS:
            raise ApiError(
                404, f"The model '{model}' does not exist", param="model", code="model_not_found"
            )
        await reply.send_json(200, _described(model))

    async def _stats(self, _request: Request, reply: Reply) -> None:
        await reply.send_json(200, self.tally.report())

    async def _last(self, _request: Request, reply: Reply) -> None:
        await reply.send_json(200, self.tally.body)

    async def _reset(self, _request: Request, reply: Reply) -> None:
        self.tally.reset()
        await reply.send_json(200, {"object": "stats", "reset": True})


def _described(model: str) -> dict[str, object]:
    return {"id": model, "object": "model", "created": CREATED, "owned_by": "stand-in"}


async def _give_up(reply: Reply) -> None:
    if reply.status is not None:
        reply.close()
        return
    error = ApiError(
        500, "The server had an error while processing your request.", kind="server_error"
    )
    await reply.send_json(500, error.body)
