"""Addresses of images, audio and files in a prompt, which a provider fetches: none may lead one into a private network.

OpenAI and Anthropic do not mind such addresses. A server of one's own fetches whatever it is told to, also from beside
itself, so it gets data alone, unless an operator says that it reaches the public internet and nothing else.
"""

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from config.platform.env.hosts import is_private
from config.platform.problems.problem import MAX_FAULTS, Fault, InvalidRequest

# Characters that readers of addresses take in different ways.
UNCLEAR = re.compile(r"[\x00-\x20\x7f\\]")
HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
# Readers take a host whose last part is a number for an address of IPv4, in any notation: 127.1, 0x7f.1, 2130706433.
NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


def check(images: Iterable[tuple[str, str]], *, fetches: bool) -> None:
    """Raises ``InvalidRequest`` for images that a provider may not be asked to fetch; without ``fetches``, for each.

    ``images`` are the pointer and the address of each that is not given as data.
    """
    faults: list[Fault] = []
    for pointer, url in images:
        if not fetches:
            detail = "This model accepts media and files only as data: URLs, and fetches none."
            faults.append(Fault(pointer, "data_only", detail))
        elif fault := _fault(url):
            faults.append(Fault(pointer, *fault))
    if faults:
        raise InvalidRequest(errors=faults[:MAX_FAULTS])


def _fault(url: str) -> tuple[str, str] | None:
    try:
        parts = urlsplit(url)
        host, _ = (parts.hostname or "").removesuffix("."), parts.port
    except ValueError:
        return "invalid", "This is not an address."
    if "@" in parts.netloc:
        return "userinfo", "The address of an image has no name or password before its host."
    last = host.rpartition(".")[2]
    if ":" in host or NUMBER.fullmatch(last):
        return "literal_address", "Name the host of an image; a number is not accepted."
    if UNCLEAR.search(url) or not HOST.fullmatch(host) or is_private(url):
        return "invalid", "This is not the address of an image on the internet."
    return None
