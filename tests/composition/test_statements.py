"""Hot statements are short enough for psycopg to keep them parsed."""

import gc
import re
from importlib import import_module

from config.platform.concurrency.batching import BatchedLookup, BatchedStatement

# psycopg keeps a statement parsed up to so many bytes and values; a longer one costs it 0.4 ms at each execution.
MOST_BYTES, MOST_VALUES = 4_096, 50
HOT = {
    "admission": "INSERT INTO usage_usagerecord",
    "settlement": "UPDATE usage_usagerecord",
    "caller": "JOIN accounts_session held",
    "key holder": "JOIN llmproxy_personalkey held",
    "refresh": "UPDATE accounts_refreshtoken token",
}


def test_psycopg_keeps_every_batched_statement_parsed() -> None:
    import_module("config.urls")
    statements = [each for each in gc.get_objects() if isinstance(each, BatchedStatement)]
    of_product = [each for each in statements if "shelf" not in each.text]
    texts = [each.text for each in of_product]
    assert [name for name, part in HOT.items() if not any(part in text for text in texts)] == []
    too_long = {text: len(text) for text in texts if len(text.encode()) > MOST_BYTES}
    assert too_long == {}
    values = {text: len(_values(text)) for text in texts}
    assert {text: number for text, number in values.items() if number > MOST_VALUES} == {}
    assert any(isinstance(each, BatchedLookup) for each in of_product)


def _values(text: str) -> set[str]:
    """The values of a statement, each name once."""
    named = re.findall(r"%\((\w+)\)s", text)
    return set(named) or {str(place) for place, _ in enumerate(re.findall("%s", text))}
