"""Retrievers that search an index."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from kernelrl_core.api.retrievers import Example, Retriever, Task
from kernelrl_plugin_raicl.config import Bm25Config, FaissConfig, HybridConfig, IndexConfig, ValueConfig
from kernelrl_plugin_raicl.index.opening import Index, open_index

if TYPE_CHECKING:
    from kernelrl_plugin_raicl.index.dense import Dense
    from kernelrl_plugin_raicl.index.embedder import Embedder
    from kernelrl_plugin_raicl.ranking import Arrangement, Part

__all__ = ["Bm25", "Faiss", "Hybrid", "Value"]

_CACHED_QUERIES = 4096


class _Search(Retriever):
    """Searches an index, which is opened when it is first needed: `validate` needs none.

    Args:
        embedder: embedder of the index if the caller has loaded it; None: loaded when it is first needed.
    """

    def __init__(
        self, config: IndexConfig, method: Literal["bm25", "faiss", "hybrid"], embedder: Embedder | None = None
    ) -> None:
        self._config, self._method = config, method
        self._given = embedder
        self._lock = threading.RLock()
        self._opened: Index | None = None
        self._dense: Dense | None = None

    def search(self, task: Task, backend: str) -> Iterator[Example]:
        from kernelrl_plugin_raicl.ranking import arranged

        store = self._index.store
        for row, similarity in arranged(store, self._parts(task.reference, backend), self._arrangement()):
            record = store.record(row)
            yield Example(
                reference=record.reference,
                kernel=record.kernel,
                name=record.name,
                origin=record.origin,
                similarity=similarity,
                id=record.id,
                speedup=record.speedup,
                solves=self._index.behaviour.solved_by(int(store.reference[row])),
            )

    def compared(self) -> frozenset[str]:
        return self._index.behaviour.tasks

    def identity(self) -> Mapping[str, Any]:
        return {"manifest_sha256": self._index.sha256}

    @property
    def _index(self) -> Index:
        with self._lock:
            if self._opened is None:
                self._opened = open_index(self._config.index)
            return self._opened

    def _arrangement(self) -> Arrangement:
        from kernelrl_plugin_raicl.ranking import Arrangement

        config = self._config
        return Arrangement(config.speedup_weight, config.diversity, config.contrast, config.max_tokens)

    def _parts(self, query: str, backend: str) -> Iterator[Part]:
        from kernelrl_plugin_raicl.ranking import dense_parts, fused_parts, lexical_parts

        index = self._index
        index.rows_of(backend)  # before a model is loaded
        if self._method == "bm25":
            return lexical_parts(index, query, backend)
        dense = self._vectors()
        vector = self._embed(query)
        if self._method == "faiss":
            return dense_parts(index, dense, vector, backend)
        assert isinstance(self._config, HybridConfig)
        return fused_parts(index, dense, query, vector, backend, self._config.lexical_weight)

    def _vectors(self) -> Dense:
        with self._lock:
            if self._dense is None:
                from kernelrl_plugin_raicl.index.dense import Dense
                from kernelrl_plugin_raicl.index.embedder import Embedder, Prefixes

                assert isinstance(self._config, FaissConfig)
                facts = self._index.require_vectors()
                dense = Dense(self._index.directory, facts, self._index.store)
                embedder = self._given or Embedder(
                    self._config.embedder or facts["embedder"],
                    device=self._config.device,
                    prefixes=Prefixes(facts["query_prefix"], facts["document_prefix"]),
                    max_tokens=facts["max_tokens"],
                )
                dense.require_embedder(embedder)
                self._embed = functools.lru_cache(_CACHED_QUERIES)(embedder.query)
                self._dense = dense
            return self._dense


class Bm25(_Search):
    """Lexical search. Similarity: the BM25 score divided by its upper bound for the task."""

    def __init__(self, config: Bm25Config) -> None:
        super().__init__(config, "bm25")


class Faiss(_Search):
    """Dense search. Similarity: the cosine of the embeddings of the references."""

    def __init__(self, config: FaissConfig, embedder: Embedder | None = None) -> None:
        super().__init__(config, "faiss", embedder)


class Hybrid(_Search):
    """Lexical and dense search. Similarity: the weighted mean of theirs."""

    def __init__(self, config: HybridConfig, embedder: Embedder | None = None) -> None:
        super().__init__(config, "hybrid", embedder)


class Value(_Search):
    """Prefers examples that helped in this run: upper-confidence bounds of their usefulness.

    The usefulness of an example is the mean, over the samples whose prompt showed it, of the return minus the mean
    return of the task's earlier samples. The advantage of the recipe does not serve: all samples of a group see the
    same examples, and an advantage that is centred in the group has the mean 0. The first group of a task gives no
    difference.

    To the relevance of an example, `value_weight * (sum / (n + prior) + exploration * sqrt(log(1 + N) / (1 + n)))` is
    added, with the sum of its differences, its number of samples n, and N samples in total.
    """

    def __init__(self, config: ValueConfig, embedder: Embedder | None = None) -> None:
        super().__init__(config, config.base, embedder)
        self._options = config
        self._examples: dict[str, tuple[int, float]] = {}
        self._tasks: dict[str, tuple[int, float]] = {}
        self._total = 0
        self._rows: dict[str, int] = {}

    def observe(self, rows: Sequence[Mapping[str, Any]]) -> None:
        returns: dict[str, list[float]] = {}
        for row in rows:
            value, task = row.get("return"), row.get("task_id")
            if value is None or task is None:
                continue
            returns.setdefault(task, []).append(value)
            if task in self._tasks:
                n, total = self._tasks[task]
                self._add(row.get("examples", ()), value - total / n)
        for task, values in returns.items():
            n, total = self._tasks.get(task, (0, 0.0))
            self._tasks[task] = n + len(values), total + math.fsum(values)

    def state(self) -> Mapping[str, Any]:
        return {
            "total": self._total,
            "examples": {id_: list(entry) for id_, entry in sorted(self._examples.items())},
            "tasks": {id_: list(entry) for id_, entry in sorted(self._tasks.items())},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._total = int(state["total"])
        self._examples = {id_: (int(n), float(total)) for id_, (n, total) in state["examples"].items()}
        self._tasks = {id_: (int(n), float(total)) for id_, (n, total) in state["tasks"].items()}

    def _add(self, examples: Sequence[str], difference: float) -> None:
        for id_ in examples:
            n, total = self._examples.get(id_, (0, 0.0))
            self._examples[id_] = n + 1, total + difference
            self._total += 1

    def _arrangement(self) -> Arrangement:
        import attrs

        shown = {self._row(id_): entry for id_, entry in self._examples.items()}
        options, total = self._options, self._total

        def bonus(row: int) -> float:
            n, difference = shown.get(row, (0, 0.0))
            bound = options.exploration * math.sqrt(math.log1p(total) / (1 + n))
            return options.value_weight * (difference / (n + options.prior) + bound)

        return attrs.evolve(super()._arrangement(), bonus=bonus)

    def _row(self, id_: str) -> int | None:
        if id_ not in self._rows:
            row = self._index.store.row_of(id_)
            if row is None:
                return None
            self._rows[id_] = row
        return self._rows[id_]
