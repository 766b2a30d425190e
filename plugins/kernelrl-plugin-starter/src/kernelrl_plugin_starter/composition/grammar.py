"""Compositions of parts, drawn at random, and their split by pairs of parts.

Some pairs of families are reserved. Held-out compositions are those that contain a reserved pair. So a held-out task
always combines two parts that no training task and no demonstration combines, in any order and at any distance. Every
part occurs in training.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import random
from collections.abc import Iterator, Sequence

from kernelrl_plugin_starter.composition.parts import PARTS, Kind, Part
from kernelrl_plugin_starter.composition.values import DRAWN, Value

__all__ = ["Composition", "compositions", "has_reserved_pair", "name_of", "single_parts"]

Composition = tuple[Part, ...]

_RESERVED_SHARE = 0.12
"""Share of the pairs of families that are reserved."""
_FRUITLESS_DRAWS = 3000
"""After so many draws without a new composition, there are hardly any left."""

_MIDDLES: tuple[tuple[Kind, int], ...] = (("row", 6), ("scan", 2), ("product", 3), ("element", 4))
"""The kind of a part that a composition has at least once, with its weight; the others are elementwise."""
_LAST_REDUCES = 0.25
"""Share of the compositions with a reduction at the end, where the middle permits it."""
_SECOND_ROW = 0.2
"""Share of the further parts that are row operations."""

_WEIGHTS = {"softmax": 4, "softmin": 3, "quiet_softmax": 3, "log_softmax": 3, "layer_norm": 2, "rms_norm": 2}
"""Weights of parts among those of their kind; 1 for the others. A softmax fits at few places."""

_OF_KIND: dict[Kind, tuple[Part, ...]] = {
    kind: tuple(part for part in PARTS.values() if part.kind == kind)
    for kind in ("element", "pair", "row", "scan", "reduction", "product")
}


def name_of(composition: Composition) -> str:
    """Names of the parts, in their order."""
    return "-".join(part.name for part in composition)


def has_reserved_pair(composition: Composition, seed: int) -> bool:
    """Whether two parts of the composition are of a reserved pair of families."""
    families = sorted({part.family for part in composition})
    return any(_is_reserved(one, other, seed) for one, other in itertools.combinations(families, 2))


@functools.cache
def _is_reserved(one: str, other: str, seed: int) -> bool:
    digest = hashlib.blake2b(f"{seed} {one} {other}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < _RESERVED_SHARE * 2**64


def single_parts() -> list[Composition]:
    """A composition of each part that a chain may begin with, alone."""
    return [(part,) for part in PARTS.values() if part.accepts(DRAWN)]


def compositions(lengths: Sequence[int], seed: int, *, held_out: bool) -> Iterator[Composition]:
    """Distinct compositions with the given numbers of parts, in a fixed random order, until hardly any are left.

    Args:
        held_out: whether they have a reserved pair; otherwise they have none.
    """
    draw = random.Random(f"{seed} {'held out' if held_out else 'training'}")
    seen: set[str] = set()
    fruitless = 0
    while fruitless < _FRUITLESS_DRAWS:
        drawn = _drawn(draw, draw.choice(lengths))
        fruitless += 1
        if drawn is None or has_reserved_pair(drawn, seed) != held_out or name_of(drawn) in seen:
            continue
        fruitless = 0
        seen.add(name_of(drawn))
        yield drawn


def _drawn(draw: random.Random, length: int) -> Composition | None:
    """A random composition; None if no part fits at some place."""
    kinds = _kinds(draw, length)
    value = DRAWN
    chosen: list[Part] = []
    for place, kind in enumerate(kinds):
        families = {part.family for part in chosen}
        operands = {part.operand for part in chosen if part.operand}
        accepting = _accepting(kind, value, "product" in kinds[place:])
        fitting = [part for part in accepting if part.family not in families and part.operand not in operands]
        if not fitting:
            return None
        weights = [_WEIGHTS.get(part.name, 1) for part in fitting]
        part = draw.choices(fitting, weights)[0]
        chosen.append(part)
        value = part.after(value)
    return tuple(chosen)


def _kinds(draw: random.Random, length: int) -> list[Kind]:
    names = [kind for kind, _ in _MIDDLES]
    weights = [weight for _, weight in _MIDDLES]
    middle = draw.choices(names, weights)[0]
    kinds: list[Kind] = []
    for _ in range(length - 1):
        if middle in ("row", "product") and draw.random() < _SECOND_ROW:
            kinds.append("row")
        else:
            kinds.append(draw.choice(("element", "pair")))
    kinds.insert(draw.randrange(length), middle)
    if draw.random() < _LAST_REDUCES and kinds[-1] in ("element", "pair"):
        kinds[-1] = "reduction"
    return kinds


@functools.cache
def _accepting(kind: Kind, value: Value, before_product: bool) -> tuple[Part, ...]:
    """The parts of a kind that accept a value.

    Args:
        before_product: a matrix product follows, so a further input would have other columns than its result.
    """
    barred = ("z", "w") if before_product else ()
    return tuple(part for part in _OF_KIND[kind] if part.operand not in barred and part.accepts(value))
