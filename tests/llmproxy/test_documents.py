"""Documents: what their pages and texts cost, and how little a hostile one can take."""

import os
import zlib
from base64 import a85encode, b64encode
from collections.abc import Callable, Iterator
from math import ceil
from random import Random
from typing import Any

import pytest

from llmproxy.prompts import documents
from llmproxy.prompts.documents import Bounds, Contents, read_contents
from llmproxy.prompts.files import PAGE_TOKENS, files_tokens
from tests.effort import takes_at_most

LINES = b"BT /F1 9 Tf " + (b"(" + b"x" * 63 + b") Tj T* ") * 190 + b" ET"
PAGE = b"<</Type /Page /Parent 2 0 R>>"
MOST_SECONDS = documents.MOST_SECONDS


@pytest.fixture(autouse=True)
def _a_slow_machine_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MOST_SECONDS", 60)


def stream(data: bytes, head: bytes = b"/Filter /FlateDecode") -> bytes:
    return b"7 0 obj <<%s /Length %d>>\nstream\n%s\nendstream endobj\n" % (head, len(data), data)


def pdf(*parts: bytes) -> bytes:
    return b"%PDF-1.7\n" + b"\n".join(parts)


def of_pages(number: int, text: bytes = LINES) -> bytes:
    packed = zlib.compress(text)
    return pdf(*(b"3 0 obj " + PAGE + b" endobj\n" + stream(packed) for _ in range(number)))


def contents_of(document: bytes, bounds: Bounds) -> Contents:
    """The contents, read in one go."""

    def reading() -> Iterator[None]:
        nonlocal found
        found = yield from read_contents(document, bounds)

    found = Contents()
    for _ in reading():
        pass
    return found


def read(document: bytes) -> Contents:
    return contents_of(document, Bounds())


def tokens(*files: bytes, kind: str = "application/pdf") -> int:
    return files_tokens(
        [{"file_data": f"data:{kind};base64,{b64encode(each).decode()}"} for each in files]
    )


def test_a_compressed_file_costs_its_pages_and_not_its_bytes() -> None:
    document = of_pages(100)
    assert len(document) < 40_000
    assert tokens(document) == 100 * PAGE_TOKENS


def test_a_page_with_much_text_costs_its_text() -> None:
    text = b"BT (" + b"word " * 40_000 + b") Tj ET"
    assert 50_000 <= tokens(of_pages(1, text)) < 51_000


def test_pages_in_object_streams_are_counted() -> None:
    hidden = stream(zlib.compress(PAGE * 30), b"/Type /ObjStm /Filter /FlateDecode")
    assert read(pdf(hidden)).pages == 30


def test_pages_that_are_hidden_count_as_their_root_says() -> None:
    assert read(pdf(b"<</Type /Pages /Count 12>> <</Type /Outlines /Count 3>>")).pages == 12
    assert read(of_pages(2) + b"<</Type /Pages /Count 900>>").pages == 2


def test_glyphs_in_hexadecimal_are_text() -> None:
    text = b"BT [<00480065> -5 <006C>] TJ ET"
    assert read(of_pages(1, text)).text == len(b"<00480065><006C>")


def test_a_stream_that_is_not_compressed_or_twice_is_read_too() -> None:
    plain = pdf(stream(LINES, b""))
    twice = pdf(stream(zlib.compress(zlib.compress(LINES)), b"/Filter[/FlateDecode /FlateDecode]"))
    assert read(plain).text == read(twice).text == 190 * 65


@pytest.mark.parametrize(
    ("head", "packed"),
    [
        (b"/Filter /#46lateDecode", zlib.compress(LINES)),
        (b"/Filter /FlateDecode /obj", zlib.compress(LINES)),
        (b"/Filter /FlateDecode %/Subtype /Image\n", zlib.compress(LINES)),
        (b"/Subtype /Image /Filter /FlateDecode", zlib.compress(b"q Q " * 2_000 + LINES)),
        (b"/Filter [/ASCII85Decode /FlateDecode]", a85encode(zlib.compress(LINES)) + b"~>\n"),
        (b"/Filter [/AHx /Fl]", zlib.compress(LINES).hex(" ", 32).encode() + b">"),
        (b"/Filter /FlateDecode", zlib.compress(b"q (endstream) Tj " + LINES, 0)),
    ],
)
def test_text_counts_in_whatever_disguise_readers_understand(head: bytes, packed: bytes) -> None:
    found = read(pdf(PAGE, stream(packed, head), PAGE))
    assert (found.pages, found.text // 65) == (2, 190)


def test_text_of_glyphs_by_number_counts_whole() -> None:
    line = b"BT (" + bytes(range(128, 256)) * 8 + b") Tj ET\n"
    # A string that is cut between two pieces counts its borders twice.
    assert 0 <= read(of_pages(1, line * 600)).text - 600 * (128 * 8 + 2) < 10


def test_strings_within_strings_and_with_escapes_count_whole() -> None:
    for string in (b"AB(CD)EF", b"AB\\(CD", b"A(B(C(D(E)F)G)H)I", b"A\\\\"):
        for many in (9_000, 90_000):
            text = b"BT (" + string * many + b") Tj ET"
            # A pair of escaped letters is one.
            assert read(of_pages(1, text)).text >= many * len(string.replace(b"\\", b""))


def test_pages_with_escaped_names_are_counted() -> None:
    assert read(pdf(b"<</T#79pe %\n/#50age>> <</Type /Pages>> <</Type/Page>>")).pages == 2


def test_a_pdf_that_says_it_is_text_costs_what_it_holds() -> None:
    assert tokens(of_pages(100), kind="text/plain") == 100 * PAGE_TOKENS


def test_pictures_cost_no_text() -> None:
    pixels = zlib.compress(Random(4).randbytes(2_000_000))
    assert read(pdf(PAGE, stream(pixels), stream(Random(5).randbytes(100_000), b""))) == (
        1,
        0,
        True,
    )


def test_large_pictures_hide_no_pages_behind_them() -> None:
    screen = stream(zlib.compress(bytes(18_000_000)), b"/Subtype /Image /Filter /FlateDecode")
    hidden = stream(zlib.compress(PAGE * 500), b"/Type /ObjStm /Filter /FlateDecode")
    title = stream(zlib.compress(b"BT (a) Tj ET"))
    assert read(pdf(title, *[screen] * 6, hidden)) == (500, 3, True)


def test_a_document_beyond_the_bounds_costs_an_eighth_of_the_bytes() -> None:
    spaces = stream(zlib.compress(b" " * 100_000_000))
    title = stream(zlib.compress(b"BT (a) Tj ET"))
    document = pdf(title, spaces, b"/P" * 100_000)
    assert tokens(document) == ceil(len(b64encode(document)) * 3 // 4 / 8)


def test_drawings_and_fonts_cost_no_text() -> None:
    lines = zlib.compress(b"10 20 m 30 40 l S " * 100_000)
    font = zlib.compress(os.urandom(200_000))
    assert tokens(pdf(PAGE, stream(lines), stream(font))) == PAGE_TOKENS


def test_an_unreadable_document_costs_its_pages_where_they_are_known() -> None:
    sealed = stream(os.urandom(90_000))
    assert tokens(pdf(PAGE, PAGE, sealed, b"trailer <</Encrypt 9 0 R>>")) == 2 * PAGE_TOKENS


@pytest.mark.parametrize("begins", [b"%PDF-1.7\n7 0 obj<</Filter/FlateDecode>>stream\n", b"\0\1"])
def test_an_unreadable_document_costs_an_eighth_of_its_bytes(begins: bytes) -> None:
    document = begins + b"\xff" * 80_000
    assert abs(tokens(document) - 10_000) < 10


def test_a_text_that_is_no_base64_costs_an_eighth_of_its_length() -> None:
    assert files_tokens([{"file_data": "data:application/pdf;base64," + "A" * 80_001}]) == 7_500


def zeros() -> bytes:
    return zlib.compress(bytes(100_000_000))


TWICE = b"/Filter[/FlateDecode/FlateDecode]"
SMALL = stream(zlib.compress(b"BT (a) Tj"), b"/Fl")
BOMBS: dict[str, Callable[[], bytes]] = {
    "blanks": lambda: pdf(stream(zlib.compress(b" " * 100_000_000))),
    "zeros": lambda: pdf(stream(zeros())),
    "zeros in zeros": lambda: pdf(stream(zlib.compress(zeros()), TWICE)),
    "short strings": lambda: pdf(stream(zlib.compress(b"BT " + b"(a)" * 10_000_000))),
    "many streams": lambda: pdf(SMALL * (8_000_000 // len(SMALL))),
    "empty streams": lambda: pdf(b"stream\nendstream" * 500_000),
    "streams without end": lambda: pdf(b"stream\n" * 1_000_000),
    "many pages": lambda: pdf(b"/Type/Page " * 700_000),
    "many counts": lambda: pdf(b"/Count 1 " * 800_000),
    "white space": lambda: pdf(b"/Type" + b" " * 8_000_000),
    "parentheses": lambda: pdf(stream(b"BT " + b"(" * 8_000_000, b"")),
    "angles": lambda: pdf(stream(b"BT " + b"<a" * 4_000_000, b"")),
    "nested": lambda: pdf(stream(b"BT " + b"(((((x" * 1_400_000, b"")),
    "pairs": lambda: pdf(stream(b"BT " + b"(()" * 2_800_000, b"")),
    "escapes": lambda: pdf(stream(b"BT (" + b"\\(" * 4_000_000, b"")),
    "ascii85": lambda: pdf(*[stream(b"z" * 130_000 + b"~>", b"")] * 60),
    "new lines": lambda: pdf(b"stream" + b"\n" * 8_000_000),
    "escaped at once": lambda: pdf(stream(b"BT " + b"\\" * 8_000_000, b"")),
    "beginnings": lambda: pdf(stream(b" BT \xff" * 1_600_000, b"")),
    "digits": lambda: pdf(stream(b"BT <" + b"0 " * 4_000_000, b"")),
    "comments": lambda: pdf(b"/Type %a\n" * 900_000),
    "open comments": lambda: pdf(b"/Type%" * 1_400_000),
    "compressed at each mark": lambda: pdf((b"stream" + zlib.compress(b"x")[:9]) * 500_000),
    "noise": lambda: pdf(os.urandom(8_000_000)),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_hostile_file_takes_little_time(monkeypatch: pytest.MonkeyPatch, bomb: str) -> None:
    monkeypatch.setattr(documents, "MOST_SECONDS", MOST_SECONDS)
    document = BOMBS[bomb]()
    assert len(document) < 9_000_000
    # Half a second of any machine, and the piece that was begun by then; without a limit it takes minutes.
    assert takes_at_most(200, lambda: read(document))


@pytest.mark.parametrize(
    "content", [b" ", b"BT (a) Tj ", b"(" * 7, b"0 0 m 9 9 l S\n", b"/Type/Page "]
)
def test_a_small_document_is_read_to_a_hundred_times_its_length(content: bytes) -> None:
    text = content * (32 * 1024 * 1024 // len(content))
    document = pdf(stream(zlib.compress(text)))
    bounds = Bounds()
    before = bounds._left
    found = contents_of(document, bounds)
    assert not found.is_whole
    assert before - bounds._left <= 1024 * 1024 + 100 * len(document) + documents.PIECE
    # Another document of the call has its own share.
    assert contents_of(of_pages(3), bounds) == Contents(3, 3 * 190 * 65)


def test_the_files_of_a_call_share_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    text = LINES * 10
    document, each = pdf(stream(zlib.compress(text))), 1_900 * 65 // 4
    monkeypatch.setattr(documents, "MOST_INFLATED", 3 * len(text))
    assert 3 * each < tokens(*[document] * 8) < 4 * each + 5 * PAGE_TOKENS


def test_files_are_read_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    aside = []

    def run(work: Any, *args: Any) -> Any:
        aside.append(work)
        return work(*args)

    monkeypatch.setattr("llmproxy.prompts.files._reading.run", run)
    tokens(of_pages(1), of_pages(2))
    assert len(aside) == 1


def test_the_files_of_others_are_read_between_the_turns_of_a_large_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A person's hostile files take their time, and theirs alone: it is counted over all turns."""
    turns: list[int | None] = []
    clock = [0.0]
    small = of_pages(2)
    costs = tokens(small)

    def run(work: Any, *args: Any) -> Any:
        done = work(*args)
        turns.append(done)
        if done is None and len(turns) == 1:
            # Another person's, in the first pause.
            assert tokens(small) == costs
            # Time of the thread spent on other documents does not count for this one.
            clock[0] += 100
        return done

    def ticking() -> float:
        clock[0] += 0.001
        return clock[0]

    monkeypatch.setattr("llmproxy.prompts.files._reading.run", run)
    monkeypatch.setattr(documents.time, "thread_time", ticking)
    large = pdf(stream(zlib.compress(b"BT (a) Tj " * 3_000_000, 1)))
    assert tokens(large) >= 30_000_000 // 10 // 4
    assert turns[1] == costs
    assert turns.count(None) >= 3
    assert turns[-1] is not None
