"""A stand-in for Stripe's API on loopback: lists of subscriptions, their pages and failures."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

KEY = "sk_test_51KeyOfTheTests"
ITEMS_SHOWN = 10


class Stripe(ThreadingHTTPServer):
    """``subscriptions`` are (customer, status) in the order of creation, ``members`` other members by their number.

    ``items`` are the prices of a subscription as (price, product), of which a list shows ``ITEMS_SHOWN``. Faults:
    ``script`` lists those of the next requests, ``always`` those of every request about a customer.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.subscriptions: list[tuple[str, str]] = []
        self.members: dict[int, dict[str, Any]] = {}
        self.items: dict[int, list[tuple[str, str]]] = {}
        self.script: list[str] = []
        self.always: dict[str, str] = {}
        self.asked: list[str] = []
        # If true, the list begins anew after each page and never ends.
        self.turns = False
        # The fault "wait" sets the first event and waits for the second.
        self.waiting, self.release = threading.Event(), threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def objects(self) -> list[dict[str, Any]]:
        """The newest first, as Stripe lists them."""
        found = [
            {
                "id": f"sub_{number:06}",
                "object": "subscription",
                "customer": customer,
                "status": status,
                "created": 1_760_000_000 + number,
                "livemode": False,
                "collection_method": "charge_automatically",
                "items": self.items_of(number, shown=ITEMS_SHOWN),
                "pause_collection": None,
                "metadata": {},
                **self.members.get(number, {}),
            }
            for number, (customer, status) in enumerate(self.subscriptions)
        ]
        return found[::-1]

    def items_of(self, number: int, *, shown: int) -> dict[str, Any]:
        found = [
            {
                "id": f"si_{number}_{each}",
                "object": "subscription_item",
                "price": {"id": price, "object": "price", "product": product},
            }
            for each, (price, product) in enumerate(self.items.get(number, []))
        ]
        return {"object": "list", "data": found[:shown], "has_more": len(found) > shown}


class Handler(BaseHTTPRequestHandler):
    server: Stripe
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.headers.get("Authorization") != f"Bearer {KEY}":
            self.refuse(401, "invalid_request_error", f"Invalid API Key provided: {KEY}")
            return
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        fault = self.server.script.pop(0) if self.server.script else ""
        if fault := fault or self.server.always.get(query.get("customer", ""), ""):
            self.fail(fault)
            return
        if parts.path == "/v1/subscription_items":
            number = int(query["subscription"].removeprefix("sub_"))
            self.answer(200, self.server.items_of(number, shown=int(query.get("limit", 10))))
            return
        if parts.path != "/v1/subscriptions":
            self.refuse(404, "invalid_request_error", "Unrecognized request URL")
            return
        self.list_page(query)

    def list_page(self, query: dict[str, str]) -> None:
        rows = self.server.objects()
        if customer := query.get("customer"):
            rows = [row for row in rows if row["customer"] == customer]
            if not rows:
                said = f"No such customer: '{customer}'"
                self.refuse(400, "invalid_request_error", said, code="resource_missing")
                return
        if query.get("status") != "all":
            # Without a status, Stripe leaves out subscriptions that have ended.
            rows = [row for row in rows if row["status"] != "canceled"]
        if "starting_after" in query and not self.server.turns:
            ids = [row["id"] for row in rows]
            rows = rows[ids.index(query["starting_after"]) + 1 :]
        limit = int(query.get("limit", 10))
        assert 1 <= limit <= 100
        self.answer(
            200,
            {
                "object": "list",
                "data": rows[:limit],
                "has_more": len(rows) > limit,
                "url": "/v1/subscriptions",
            },
        )

    def fail(self, fault: str) -> None:
        if fault == "cut":
            self.close_connection = True
            self.connection.close()
        elif fault == "garbage":
            self.answer(200, "<html>maintenance</html>")
        elif fault == "no list":
            self.answer(
                200, {"object": "list", "data": [{"object": "subscription"}], "has_more": False}
            )
        elif fault == "429":
            self.refuse(429, "invalid_request_error", "Too many requests", code="rate_limit")
        elif fault == "old 429":
            self.refuse(400, "invalid_request_error", "Too many requests", code="rate_limit")
        elif fault == "no page":
            self.answer(200, {"object": "list", "data": [], "has_more": True})
        elif fault == "wait":
            self.server.waiting.set()
            self.server.release.wait(30)
            self.list_page({"status": "all", "limit": "100"})
        elif fault != "well":
            self.refuse(int(fault), "api_error", "Something went wrong at Stripe")
        else:
            query = {
                name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()
            }
            self.list_page(query)

    def refuse(self, status: int, kind: str, message: str, *, code: str | None = None) -> None:
        self.answer(status, {"error": {"type": kind, "message": message, "code": code}})

    def answer(self, status: int, body: Any) -> None:
        raw = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Request-Id", f"req_{time.monotonic_ns()}")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def stripe_server() -> Iterator[Stripe]:
    """It listens on loopback until the block ends."""
    server = Stripe()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.release.set()
        server.shutdown()
        server.server_close()
        thread.join()
