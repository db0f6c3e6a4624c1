"""A local stand-in for a model provider: an OpenAI-compatible chat-completions server.

Run it with `python -m tests.standins.provider --host 127.0.0.1 --port 0`. It prints
`listening on http://127.0.0.1:PORT/v1` once it accepts connections and ends at once on SIGTERM or
SIGINT. Answers are readable, made from the last user message, and the same for the same request.
It serves `POST /v1/chat/completions`, `GET /v1/models` and `GET /v1/models/{id}` behind a bearer
key and, without one, `GET /__stats`, `GET /__last` and `POST /__reset` for tests.

How tokens are counted is said in `tokens`, how faults and unusual shapes are asked for in
`directive`, what the counters mean in `tally`.
"""
