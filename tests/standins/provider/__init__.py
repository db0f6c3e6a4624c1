"""A stand-in for a model provider: an OpenAI-compatible chat completions server.

`python -m tests.standins.provider --port 0` prints `listening on http://127.0.0.1:PORT/v1` once it accepts connections,
and ends on SIGTERM or SIGINT. It serves `POST /v1/chat/completions` and `GET /v1/models` behind a bearer key and,
without one, `GET /__stats`, `GET /__last`, `GET /__work` and `POST /__reset` for tests. `behaviour` lists the faults on
demand.
"""
