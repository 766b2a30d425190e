"""Near duplicates among PyTorch references, for the guard against leaks.

Two references are nearly equal if their texts are equal after normalisation, if their data flow is equal
(`kernelrl_sources.dataflow`), or if they have the same operators and a structural similarity of at least
`THRESHOLD`. A source that cannot be analysed is compared by its tokens. Nothing here executes a source or raises.
"""

from __future__ import annotations

import functools
import hashlib
import keyword
import re
from collections import Counter
from collections.abc import Iterable
from typing import Literal

import attrs

from kernelrl_sources.dataflow.evaluation import result_of
from kernelrl_sources.dataflow.graph import Node, nodes_of

__all__ = [
    "THRESHOLD",
    "NearDuplicates",
    "Structure",
    "nearly_equal",
    "normalised_source",
    "structural_similarity",
    "structure",
    "token_structure",
]

THRESHOLD = 0.9
"""Least structural similarity of two near duplicates with the same operators."""

Kind = Literal["source", "structure", "similar"]

_TOKEN = re.compile(
    r"""(?P<comment>\#[^\n]*)
    |(?P<string>[rbuf]{0,2}(?:\"\"\"(?:[^\\]|\\.)*?\"\"\"|'''(?:[^\\]|\\.)*?'''|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))
    |(?P<number>(?:\d[\w.]*|\.\d\w*)(?:(?<=[eE])[-+]\d+)?)
    |(?P<name>[^\W\d]\w*)
    |(?P<operator>\*\*|//|->|:=|[-+*/%@&|^<>=!]=|[^\w\s\\])
    |(?P<skip>[\s\\]+)""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_MAX_TOKENS = 50_000


@attrs.frozen
class Structure:
    """A reference without names, constants, formatting and the order of independent statements."""

    digest: str
    """Equal for equal structures."""
    operators: tuple[str, ...]
    """All operators and the inputs that they read, sorted, repeated ones included."""
    features: Counter[str] = attrs.field(eq=False)
    """Operators, and operators with their operands, with their counts."""
    parsed: bool
    """False: the features are runs of three tokens."""


def normalised_source(source: str) -> str:
    """The tokens of a source separated by spaces, without comments, docstrings and formatting."""
    tokens: list[str] = []
    for kind, text in _tokens(source):
        is_statement = not tokens or tokens[-1] == ":"
        if kind == "string" and is_statement and text.endswith(('"""', "'''")):
            continue
        tokens.append(text.replace("'", '"') if kind == "string" else text)
    return re.sub(r", (?=[)\]}])", "", " ".join(tokens))


@functools.lru_cache(4096)
def structure(source: str) -> Structure:
    """The structure of a reference: its data flow, or `token_structure` if it cannot be analysed."""
    root = result_of(source)
    if root is None:
        return token_structure(source)
    nodes = nodes_of(root)
    features = Counter(node.label for node in nodes if node.operands)
    operators = sorted([*features.elements(), *(node.label for node in nodes if node.label == "input")])
    features.update(_with_operands(node) for node in nodes if node.operands)
    return Structure(root.digest, tuple(operators), features, True)


@functools.lru_cache(4096)
def token_structure(source: str) -> Structure:
    """The structure of any text, from its tokens: names become `n` unless they follow a dot, numbers become `#`.

    A text without operators, attributes and strings keeps names, numbers and comments: it equals only itself.
    """
    tokens: list[str] = []
    operators: list[str] = []
    plain = list(_tokens(normalised_source(source)))
    for position, (kind, text) in enumerate(plain):
        before = [token for _, token in plain[max(0, position - 2) : position]]
        attribute = before[-1:] == ["."] and before[0] != "self"
        if attribute or kind == "string" or (kind == "operator" and text not in "()[]{},:=."):
            operators.append(text)
        if kind == "number":
            text = "#"
        elif kind == "name" and not attribute and not keyword.iskeyword(text):
            text = "n"
        tokens.append(text)
    if not operators:
        tokens = source.split()
    digest = hashlib.blake2b(" ".join(tokens).encode(errors="replace"), digest_size=8).hexdigest()
    runs = Counter(" ".join(tokens[start : start + 3]) for start in range(max(1, len(tokens) - 2)))
    return Structure(digest, tuple(sorted(operators)), runs, False)


def structural_similarity(first: str, second: str) -> float:
    """Similarity of two references from 0 to 1; 1 if their structures are equal.

    Jaccard index of the multisets of features: of operators, and of operators with their operands.
    """
    return _similarity(*_comparable(first, second))


def nearly_equal(first: str, second: str) -> Kind | None:
    """How two references are nearly equal; None if they are not."""
    kind = _kind(*_comparable(first, second))
    return "source" if kind and normalised_source(first) == normalised_source(second) else kind


class NearDuplicates:
    """An index of references that finds the near duplicates of a reference.

    Only references with the same operators are compared, so the duration of a search hardly depends on their number.
    """

    def __init__(self, sources: Iterable[tuple[str, str]] = ()) -> None:
        self._sources: list[tuple[str, str]] = []
        self._parsed = _Buckets()
        self._unparsed = _Buckets()
        self._tokens = _Buckets()
        for id_, source in sources:
            self.add(id_, source)

    def add(self, id_: str, source: str) -> None:
        """Add a reference. Several may have one id."""
        found = structure(source)
        (self._parsed if found.parsed else self._unparsed).add(len(self._sources), found)
        self._sources.append((id_, source))

    def matches(self, source: str) -> list[tuple[str, Kind]]:
        """Ids of the near duplicates in the order in which they were added, each with the way in which it is equal."""
        wanted = structure(source)
        if wanted.parsed:
            found = self._parsed.matches(wanted)
            if self._unparsed:
                found |= self._unparsed.matches(token_structure(source))
        else:
            for position in range(self._tokens.n_added, len(self._sources)):
                self._tokens.add(position, token_structure(self._sources[position][1]))
            found = self._tokens.matches(wanted)
        text = normalised_source(source) if found else ""
        ids: list[tuple[str, Kind]] = []
        for position, kind in sorted(found.items()):
            id_, other = self._sources[position]
            ids.append((id_, "source" if normalised_source(other) == text else kind))
        return ids


class _Buckets:
    """Structures with their positions, by their operators."""

    def __init__(self) -> None:
        self._structures: dict[tuple[str, ...], list[tuple[int, Structure]]] = {}
        self.n_added = 0

    def __bool__(self) -> bool:
        return self.n_added > 0

    def add(self, position: int, added: Structure) -> None:
        self._structures.setdefault(added.operators, []).append((position, added))
        self.n_added += 1

    def matches(self, wanted: Structure) -> dict[int, Kind]:
        kinds = ((position, _kind(wanted, other)) for position, other in self._structures.get(wanted.operators, ()))
        return {position: kind for position, kind in kinds if kind is not None}


def _with_operands(node: Node) -> str:
    """An operator with its operands; `=` is an operand that equals an earlier one."""
    seen: set[str] = set()
    texts: list[str] = []
    for operand in node.operands:
        texts.append("=" if operand.digest in seen else operand.label)
        seen.add(operand.digest)
    return f"{node.label}({','.join(texts)})"


def _comparable(first: str, second: str) -> tuple[Structure, Structure]:
    one, two = structure(first), structure(second)
    return (one, two) if one.parsed and two.parsed else (token_structure(first), token_structure(second))


def _kind(first: Structure, second: Structure) -> Kind | None:
    if first.digest == second.digest:
        return "structure"
    if first.operators == second.operators and _similarity(first, second) >= THRESHOLD:
        return "similar"
    return None


def _similarity(first: Structure, second: Structure) -> float:
    if first.digest == second.digest:
        return 1.0
    union = (first.features | second.features).total()
    return (first.features & second.features).total() / union if union else 0.0


def _tokens(source: str) -> Iterable[tuple[str, str]]:
    for count, match in enumerate(_TOKEN.finditer(source)):
        if count > _MAX_TOKENS:
            return
        kind = match.lastgroup or ""
        if kind not in ("comment", "skip"):
            yield kind, match[0]
