"""Reads the calls of tools of a chat completion, and writes what servers leave out of them.

SDKs put the deltas of a call together by its index. Some servers write none, some the same for every call.
"""

from typing import Any
from uuid import uuid4

Call = dict[str, Any]


class CallNumbers:
    """The numbers of the calls of one choice, as its deltas bring them.

    A new id begins a call, and so does a name where there is no id; all else continues the call that it names, or the
    last one.
    """

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._names: list[str | None] = []
        # Our numbers by the provider's.
        self._by_index: dict[int, int] = {}

    def write(self, calls: list[Call]) -> bool:
        """Numbers the calls of one delta, and says whether one had another form."""
        changed = [self._write(call) for call in calls]
        return any(changed)

    def _write(self, call: Call) -> bool:
        given = call.get("index")
        index = given if type(given) is int else None
        name = _said(call).get("name") or None
        number = self._continued(index, call.get("id") or None, name)
        if number is None:
            number, changed = len(self._ids), write_id(call)
            if changed or index is None:
                # SDKs want the kind too. A call that lacks nothing else goes on as it came.
                call.setdefault("type", "custom" if "custom" in call else "function")
            self._ids.append(call["id"])
            self._names.append(name)
        else:
            changed = self._forget_repeated(call, number)
        if index is not None:
            self._by_index[index] = number
        call["index"] = number
        return changed or given != number or index is None

    def _continued(self, index: int | None, call_id: str | None, name: str | None) -> int | None:
        """The number of the call that goes on; None where another begins."""
        indexed = None if index is None else self._by_index.get(index)
        if call_id is None:
            if indexed is not None or not self._ids:
                return indexed
            last = len(self._ids) - 1
            return last if name is None or self._names[last] is None else None
        if indexed is not None and self._ids[indexed] == call_id:
            return indexed
        if call_id in self._ids and (name is None or index is None):
            return self._ids.index(call_id)
        return None

    def _forget_repeated(self, call: Call, number: int) -> bool:
        """Takes out what was said of a call before: SDKs put the texts of all deltas together."""
        said, name = _said(call), self._names[number]
        repeats = call.pop("id", None) is not None
        if said.get("name"):
            if name is None:
                self._names[number] = said["name"]
            elif name == said["name"]:
                del said["name"]
                repeats = True
        return repeats


def write_id(call: Call) -> bool:
    """Writes the id of a call where it is missing, and says whether it was: a result has to name its call."""
    if call.get("id"):
        return False
    call["id"] = f"call_{uuid4().hex[:24]}"
    return True


def write_whole(message: Call) -> None:
    """Writes what is missing in the calls of a whole message; no arguments are an empty text."""
    for call in message.get("tool_calls") or ():
        write_id(call)
        said = _said(call)
        text = "input" if "custom" in call else "arguments"
        if said and said.get(text) is None:
            said[text] = ""


def _said(call: Call) -> Call:
    said: Call = call.get("function") or call.get("custom") or {}
    return said
