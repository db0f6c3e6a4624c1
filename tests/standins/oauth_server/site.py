"""Its addresses, a ledger of what clients asked, and a way to hold an answer back after the work is done."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse
from django.urls import include, path

FOLDER = Path(os.environ["OAUTHSERVER_FOLDER"])
ASKED, HOLD, HELD = FOLDER / "asked", FOLDER / "hold", FOLDER / "held"
LONGEST_HOLD = 60.0


class Ledger:
    """A line for each call of a client's server. While there is a file `hold`, its answers wait for that to go."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if request.path in {"/o/token/", "/o/revoke_token/"}:
            kind = request.POST.get("grant_type", "revocation")
            with ASKED.open("a") as asked:
                asked.write(json.dumps([kind, response.status_code]) + "\n")
            deadline = time.monotonic() + LONGEST_HOLD
            while HOLD.exists() and time.monotonic() < deadline:
                HELD.touch()
                time.sleep(0.02)
        return response


urlpatterns = [
    path("login/", LoginView.as_view()),
    path("o/", include("oauth2_provider.urls")),
]
