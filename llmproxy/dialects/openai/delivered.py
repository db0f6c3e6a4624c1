"""The output of a streamed response as its events bring it: numbered, with its empty values, and whole at the end."""

from typing import Any, NamedTuple

Members = dict[str, Any]

# Members that servers leave out of an item, and of a part of one, while they are empty; by kind.
_EMPTY = {
    "function_call": "arguments",
    "custom_tool_call": "input",
    "output_text": "text",
    "refusal": "refusal",
    "summary_text": "text",
    "reasoning_text": "text",
}
# The lists of parts of an item, to which SDKs add those that follow.
_LISTS = {"message": "content", "reasoning": "summary"}


class _Text(NamedTuple):
    """The place of a text: the list of an item that holds its part, the part's kind, and the member with the text."""

    parts: str
    kind: str
    member: str


# The numbers that a part may have.
_NUMBERS = range(1_000)
# By the thing of a response that an event is about.
_TEXTS = {
    "output_text": _Text("content", "output_text", "text"),
    "refusal": _Text("content", "refusal", "refusal"),
    "reasoning_text": _Text("content", "reasoning_text", "text"),
    "reasoning_summary_text": _Text("summary", "summary_text", "text"),
    "function_call_arguments": _Text("", "function_call", "arguments"),
    "custom_tool_call_input": _Text("", "custom_tool_call", "input"),
}


def write_empties(item: Members) -> bool:
    """Writes the text of an item or a part that has none, also in its parts, and says whether one was missing."""
    kind, missing = str(item.get("type")), {}
    if (member := _EMPTY.get(kind)) and item.get(member) is None:
        missing[member] = ""
    if kind == "function_call" and not item.get("call_id") and item.get("id"):
        missing["call_id"] = item["id"]
    item |= missing
    parts = [part for name in _LISTS.values() for part in item.get(name) or ()]
    changed = [write_empties(part) for part in parts if isinstance(part, dict)]
    return bool(missing) or any(changed)


class Delivered:
    """The items of one response."""

    def __init__(self) -> None:
        self._items: dict[int, Members] = {}
        self._places: dict[str, int] = {}
        self._newest = 0
        # By item, list of parts, and part.
        self._texts: dict[tuple[int, str, int], list[str]] = {}
        self._kinds: dict[tuple[int, str, int], _Text] = {}

    def note(self, kind: str, given: Members) -> bool:
        """Notes an event, and writes the numbers and empty values that it lacks; says whether it lacked one."""
        thing, _, step = kind.removeprefix("response.").rpartition(".")
        if thing == "output_item":
            return self._note_item(given, begins=step == "added")
        changed = self._number(given, begins=False)
        if (place := _TEXTS.get(thing)) and step in ("delta", "done"):
            changed |= self._note_text(place, given, step)
        if isinstance(part := given.get("part"), dict):
            changed |= write_empties(part)
        return changed

    def items(self) -> list[Members]:
        """The output that was delivered, in order; its texts are those of the deltas where an item has none."""
        for (index, parts, number), texts in self._texts.items():
            place = self._kinds[index, parts, number]
            if parts:
                item = self._items.setdefault(index, {"type": "message", "role": "assistant"})
                _fill(item, place, number, "".join(texts))
            elif index in self._items and not self._items[index].get(place.member):
                self._items[index][place.member] = "".join(texts)
        ordered = [self._items[index] for index in sorted(self._items)]
        for item in ordered:
            write_empties(item)
            if item.get("status", "in_progress") == "in_progress":
                item["status"] = "completed"
        return ordered

    def _note_item(self, given: Members, *, begins: bool) -> bool:
        item = given["item"]
        changed = self._number(given, begins=begins)
        changed |= write_empties(item)
        parts = _LISTS.get(item["type"])
        if begins and parts and item.get(parts) is None:
            item[parts], changed = [], True
        self._items[given["output_index"]] = item
        return changed

    def _number(self, given: Members, *, begins: bool) -> bool:
        """Writes the number of an item, where it is missing: that of its id, or of the newest."""
        if type(given.get("output_index")) is not int and not (begins or self._items):
            # It belongs to nothing that was shown.
            return False
        index: Any = given.get("output_index")
        item_id = given.get("item_id")
        if item_id is None and isinstance(given.get("item"), dict):
            item_id = given["item"].get("id")
        is_missing = type(index) is not int
        if is_missing:
            following = max(self._items, default=-1) + 1 if begins else self._newest
            index = given["output_index"] = self._places.get(str(item_id), following)
        self._newest = index
        if item_id is not None:
            self._places[str(item_id)] = index
        return is_missing

    def _note_text(self, place: _Text, given: Members, step: str) -> bool:
        number = given.get("content_index", given.get("summary_index")) or 0
        if number not in _NUMBERS:
            raise ValueError
        key = (given.get("output_index", 0), place.parts, number)
        texts, self._kinds[key] = self._texts.setdefault(key, []), place
        if step == "done":
            texts[:] = [given[place.member]] if given.get(place.member) else texts
            return False
        is_missing = given.get("delta") is None
        given["delta"] = given.get("delta") or ""
        texts.append(given["delta"])
        return is_missing


def _fill(item: Members, place: _Text, number: int, text: str) -> None:
    """Writes the text of a part into an item that has none there."""
    parts = item.get(place.parts) or []
    parts += [{"type": place.kind} for _ in range(number + 1 - len(parts))]
    item[place.parts] = parts
    if not parts[number].get(place.member):
        parts[number][place.member] = text
