"""OpenAI's and Anthropic's SDKs with a token that renews itself."""

import threading
import time
import uuid

import requests
from anthropic import AccessToken, Anthropic
from openai import OpenAI


class Session:
    """A person who has signed in. ``token`` is what an SDK takes as its key."""

    def __init__(self, base_url: str, email: str, password: str) -> None:
        self.base_url = base_url
        self._lock = threading.Lock()
        self._keep(self._post("login", {"email": email, "password": password}))

    def token(self) -> str:
        with self._lock:
            if time.monotonic() >= self.renew_at:
                key = {"Idempotency-Key": self._key}
                self._keep(self._post("refresh", {"refresh": self._refresh}, key))
            return self._access

    def _keep(self, pair: dict) -> None:
        # A shell writes `refresh` and `key` to the keychain here.
        self._refresh, self._key = pair["refresh"], str(uuid.uuid4())
        self._access = pair["access"]
        self.renew_at = time.monotonic() + pair["expires_in"] - 60

    def _post(self, what: str, body: dict, headers: dict | None = None) -> dict:
        address = f"{self.base_url}/v1/auth/{what}"
        response = requests.post(address, json=body, headers=headers, timeout=30)
        response.raise_for_status()
        return response.json()


def clients(session: Session) -> tuple[OpenAI, Anthropic]:
    """Both ask for the token before each call; ``expires_at=0`` tells Anthropic's to keep none itself."""
    base_url = f"{session.base_url}/v1/llm"
    return OpenAI(base_url=base_url, api_key=session.token), Anthropic(
        base_url=base_url,
        credentials=lambda **_: AccessToken(session.token(), expires_at=0),
    )
