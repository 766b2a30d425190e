"""Whether C++ sources mean the same when they follow the host part of a device source in one unit.

The ordinary way compiles them apart, and each unit costs a second. Together they mean the same if nothing that the host
part declares is visible to them that was not before: what they name of it, they declare themselves, in the same words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kernelrl_judge.build.lexing import Item, Unreadable, items, text_of

__all__ = ["joinable"]

_NAME = re.compile(r"[A-Za-z_]\w*")
_TYPES = {
    *("auto", "bool", "char", "class", "const", "constexpr", "double", "enum", "extern", "float", "inline", "int"),
    *("long", "namespace", "short", "signed", "static", "struct", "template", "typedef", "typename", "union"),
    *("unsigned", "using", "void", "volatile", "at", "c10", "std", "torch", "Tensor", "vector", "tuple", "optional"),
    *("int32_t", "int64_t", "uint32_t", "uint64_t", "size_t"),
}


def joinable(host: str, sources: Sequence[str]) -> bool:
    """Whether `sources` may stand behind `host`."""
    try:
        before = list(_flat(items(host)))
        after = [item for source in sources for item in _flat(items(source))]
    except Unreadable:
        return False
    used = {name for item in after for name in item.names()}
    declared = {_words(item) for item in after if item.kind == "declaration"}
    return all(_hidden(item, used) or _words(item) in declared for item in before)


def _flat(found: Sequence[Item]) -> Iterator[Item]:
    for item in found:
        yield item
        yield from _flat(item.children)


def _hidden(item: Item, used: set[str]) -> bool:
    """Whether sources that use some names see nothing of an item."""
    if item.kind == "scope":
        return True
    text = text_of([token for token in item.tokens if token.kind != "comment"]).strip()
    if item.kind == "directive":
        defined = re.match(r"#\s*(?:define|undef)\s+(\w+)", text)
        return defined is None or defined.group(1) not in used
    if re.match(r"using\s+namespace\b", text):
        return False
    if item.kind == "function":
        # Its parameters and its body are its own.
        head = text_of([token for token in item.tokens[: item.body] if token.kind != "comment"])
        called = re.findall(r"([A-Za-z_]\w*)\s*\(", head)
        return bool(called) and not set(called) & used
    # What stands between the braces of an enumeration is visible outside of them.
    visible = text if "enum" in text else text.partition("{")[0]
    return not (set(_NAME.findall(visible)) - _TYPES) & used


def _words(item: Item) -> str:
    """A declaration, or what a definition declares, without regard to blanks."""
    tokens = item.tokens[: item.body] if item.kind == "function" else item.tokens
    text = text_of([token for token in tokens if token.kind != "comment"])
    text = re.sub(r"#\s*line[^\n]*\n", "", text)
    return re.sub(r"\s*([^\w\s])\s*", r"\1", " ".join(text.split())).rstrip(";")
