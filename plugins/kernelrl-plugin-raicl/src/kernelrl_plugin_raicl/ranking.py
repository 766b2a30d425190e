"""Order of the examples of a search: one kernel per reference first, speedups, diversity, contrast, length."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from kernelrl_plugin_raicl.index.dense import Dense
from kernelrl_plugin_raicl.index.embedder import Vectors
from kernelrl_plugin_raicl.index.opening import Index
from kernelrl_plugin_raicl.index.store import Rows, Store
from kernelrl_plugin_raicl.index.words import Words

__all__ = ["Arrangement", "Part", "arranged", "dense_parts", "fused_parts", "lexical_parts"]

Part: TypeAlias = tuple[Rows, Vectors]
"""Rows and their similarities, best first; ties are in ascending order of the rows. A later part is not better."""

POOL = 32
"""Number of references that are re-ordered together."""

_FIRST_PART = 256
_FUSED = 200
_CONTRAST = 1.2
_GREATEST_LOG_SPEEDUP = 3.0


@attrs.frozen
class Arrangement:
    """Options of the order; see `IndexConfig`."""

    speedup_weight: float = 0.0
    diversity: float = 0.0
    contrast: bool = False
    max_tokens: int | None = None
    bonus: Callable[[int], float] | None = None
    """Number that is added to the relevance of a row."""


def lexical_parts(index: Index, query: str, backend: str) -> Iterator[Part]:
    """Rows of a backend by BM25."""
    return _by_score(index.rows_of(backend), index.lexical.scores(query))


def dense_parts(index: Index, dense: Dense, query: Vectors, backend: str, first: int = 2 * POOL) -> Iterator[Part]:
    """Rows of a backend by the cosine of their reference; about `first` references in the first part."""
    wanted = index.store.backends.index(backend) if len(index.rows_of(backend)) else -1
    for references, cosines in dense.search(query, backend, first):
        groups = [rows[index.store.backend[rows] == wanted] for rows in map(index.store.rows_with, references)]
        yield np.concatenate(groups), np.repeat(cosines, [len(rows) for rows in groups])


def fused_parts(
    index: Index, dense: Dense, query: str, vector: Vectors, backend: str, lexical_weight: float
) -> Iterator[Part]:
    """Weighted mean of the lexical similarity and the cosine, for the first 200 references of both searches.

    The rest follows in the order of the lexical search, with similarity 0.

    Source: Bruch, Gai, Ingber, ACM TOIS 2023 (arXiv 2210.11934): a convex combination of scores finds more than
    reciprocal rank fusion.
    """
    scores = index.lexical.scores(query)
    lexical = _by_score(index.rows_of(backend), scores)
    first_lexical = _first_references(index.store, lexical)
    near = dense_parts(index, dense, vector, backend, _FUSED + 20)  # more, because ties at the end are dropped
    fused = np.union1d(first_lexical, _first_references(index.store, near))
    cosines = dense.cosines(vector, index.store.reference[fused], backend)
    yield _sorted(fused, (lexical_weight * scores[fused] + (1 - lexical_weight) * cosines).astype(np.float32))
    for rows in itertools.chain((first_lexical,), (rows for rows, _ in lexical)):
        rest = rows[~np.isin(rows, fused)]
        yield rest, np.zeros(len(rest), np.float32)


def arranged(store: Store, parts: Iterable[Part], options: Arrangement) -> Iterator[tuple[int, float]]:
    """Rows with their similarities, in the order in which examples are offered.

    One kernel of each reference comes first, two with `contrast`; the other kernels follow after all references.
    Within a pool of references with neighbouring ranks, speedup, bonus and diversity change the order.
    """
    later: list[tuple[int, float]] = []
    yielded: set[int] = set()
    known: set[int] = set()
    for rows, similarities in parts:
        groups: dict[int, list[tuple[int, float]]] = {}
        if options.max_tokens is not None:
            short = store.tokens[rows] <= options.max_tokens
            rows, similarities = rows[short], similarities[short]
        numbers = store.reference[rows]
        for row, number, similarity in zip(rows.tolist(), numbers.tolist(), similarities.tolist(), strict=True):
            if number in known:
                later.append((row, similarity))
            else:
                groups.setdefault(number, []).append((row, similarity))
        known.update(groups)
        pools = list(groups.values())
        for start in range(0, len(pools), POOL):
            for group, (row, similarity) in _pool(store, pools[start : start + POOL], options):
                chosen = _contrasting(store, row, options) if options.contrast else (row,)
                yielded.update(chosen)
                yield from ((each, similarity) for each in chosen)
                later += group
    yield from ((row, similarity) for row, similarity in later if row not in yielded)


def _pool(
    store: Store, groups: list[list[tuple[int, float]]], options: Arrangement
) -> Iterator[tuple[list[tuple[int, float]], tuple[int, float]]]:
    """Each group with its best row, in the order of relevance and diversity."""
    greatest = max(similarity for group in groups for _, similarity in group) or 1.0

    def relevance(entry: tuple[int, float]) -> float:
        row, similarity = entry
        bonus = options.bonus(row) if options.bonus is not None else 0.0
        return similarity / greatest + options.speedup_weight * _log_speedup(store, row) + bonus

    best = []
    for group in groups:
        entry = max(group, key=lambda entry: (relevance(entry), -entry[0]))
        best.append((relevance(entry), entry, group))
    best.sort(key=lambda item: (-item[0], item[1][0]))
    if not options.diversity:
        yield from ((group, entry) for _, entry, group in best)
        return
    words = Words()
    texts = [frozenset(words.all(store.record(entry[0]).reference)) for _, entry, _ in best]
    nearest = [0.0] * len(best)
    left = list(range(len(best)))
    while left:
        at = max(left, key=lambda i: ((1 - options.diversity) * best[i][0] - options.diversity * nearest[i], -i))
        left.remove(at)
        for i in left:
            nearest[i] = max(nearest[i], _common(texts[i], texts[at]))
        yield best[at][2], best[at][1]


def _contrasting(store: Store, row: int, options: Arrangement) -> tuple[int, ...]:
    """The slowest and the fastest kernel with the reference and backend of a row; the row alone if they are alike."""
    rows = store.rows_with(int(store.reference[row]))
    rows = rows[(store.backend[rows] == store.backend[row]) & (store.speedup[rows] > 0)]
    if options.max_tokens is not None:
        rows = rows[store.tokens[rows] <= options.max_tokens]
    if not len(rows):
        return (row,)
    speedups = store.speedup[rows]
    slow, fast = int(rows[np.argmin(speedups)]), int(rows[np.argmax(speedups)])
    return (slow, fast) if store.speedup[fast] >= _CONTRAST * store.speedup[slow] else (row,)


def _by_score(rows: Rows, scores: npt.NDArray[np.float32]) -> Iterator[Part]:
    scores = scores[rows]
    rest = np.ones(len(rows), bool)
    if len(rows) > _FIRST_PART:
        least = np.partition(scores, len(rows) - _FIRST_PART)[len(rows) - _FIRST_PART]
        rest = scores < least
        yield _sorted(rows[~rest], scores[~rest])
    if rest.any():
        yield _sorted(rows[rest], scores[rest])


def _first_references(store: Store, parts: Iterator[Part]) -> Rows:
    """Rows of a search until they have enough references for the fusion."""
    found = np.empty(0, np.int64)
    for rows, _ in parts:
        found = np.concatenate((found, rows))
        if len(np.unique(store.reference[found])) >= _FUSED:
            break
    return found


def _log_speedup(store: Store, row: int) -> float:
    speedup = float(store.speedup[row])
    if not speedup > 0:
        return 0.0
    return float(np.clip(np.log2(speedup), -_GREATEST_LOG_SPEEDUP, _GREATEST_LOG_SPEEDUP)) / _GREATEST_LOG_SPEEDUP


def _common(left: frozenset[str], right: frozenset[str]) -> float:
    return len(left & right) / max(1, len(left | right))


def _sorted(rows: Rows, scores: npt.NDArray[np.float32]) -> Part:
    order = np.argsort(-scores, kind="stable")
    return rows[order], scores[order]
