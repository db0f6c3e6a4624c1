"""A failure inside a stream, as OpenAI's SDKs and a shell read it."""

from json import dumps

from config.api.handlers import openai_error
from config.api.problems import Problem
from config.middleware.request_id import current as request_id


def stream_error(problem: Problem) -> bytes:
    """The event that ends a stream in place of ``[DONE]``."""
    error = {**openai_error(problem), "status": problem.status, "request_id": request_id()}
    return b"data: " + dumps({"error": error}).encode() + b"\n\n"
