"""Parts of answers that cannot be read: what a part reports or looks like says nothing of the whole."""

import time

import pytest

from llmproxy.calls.relay import stream
from llmproxy.dialects.protocol import ProviderError
from tests.llmproxy.test_relay import Play, chunk, play, read
from tests.llmproxy.test_unread import DEEP_EVENT, LIMIT, settled
from tests.standins.raw_server import CHUNKED, Peer

__all__ = ["play"]

pytestmark = pytest.mark.django_db(transaction=True)
# Some servers report in each chunk what was used by then.
SO_FAR = chunk("one", usage={"prompt_tokens": 9, "completion_tokens": 1})
# Long enough that a relay reads the parts before and after one by one.
BETWEEN = 0.2


@pytest.mark.parametrize("parts", [(SO_FAR + DEEP_EVENT,), (SO_FAR, DEEP_EVENT)])
@pytest.mark.parametrize("last", [b": bye\n\n", chunk("two"), b"data: [DO"])
def test_a_usage_before_what_cannot_be_read_is_no_report(
    play: Play, parts: tuple[bytes, ...], last: bytes
) -> None:
    def script(peer: Peer) -> None:
        peer.send(CHUNKED)
        for part in (*parts, last):
            peer.chunk(part)
            time.sleep(BETWEEN)
        peer.close()

    with play(script, max_tokens=LIMIT) as call:
        assert b"provider_error" in read(stream(call))
    record = settled()
    assert (record.end, record.output_tokens) == ("answer_unread", LIMIT)
    assert record.source == "estimated"


def test_a_usage_after_it_is_one(play: Play) -> None:
    later = chunk("two", usage={"prompt_tokens": 9, "completion_tokens": 33})

    def script(peer: Peer) -> None:
        peer.send(CHUNKED)
        peer.chunk(SO_FAR + DEEP_EVENT + later)
        peer.close()

    with play(script, max_tokens=LIMIT) as call:
        assert b"provider_error" in read(stream(call))
    assert (settled().output_tokens, settled().source) == (33, "provider")


def test_a_part_that_begins_like_a_page_is_no_refusal(play: Play) -> None:
    """Whoever writes the prompt has a share in where an event is cut and in what follows."""

    at = DEEP_EVENT.index(b'a", "b"')

    def script(peer: Peer) -> None:
        peer.send(CHUNKED)
        peer.chunk(DEEP_EVENT[:at])
        time.sleep(BETWEEN)
        peer.chunk(b"<" + DEEP_EVENT[at:])
        peer.chunk(b"")

    with play(script, max_tokens=LIMIT) as call, pytest.raises(ProviderError):
        stream(call)
    assert (settled().end, settled().output_tokens) == ("answer_unread", LIMIT)
