"""Dense search: one FAISS index of reference embeddings per backend."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias

import faiss
import numpy as np
import numpy.typing as npt

from kernelrl_core.api.config import replace_directory
from kernelrl_plugin_raicl.index.embedder import Embedder, Vectors
from kernelrl_plugin_raicl.index.manifest import unusable
from kernelrl_plugin_raicl.index.store import Store

__all__ = ["Dense", "FaissType", "embed_references", "write_dense"]

FaissType: TypeAlias = Literal["flat", "hnsw", "ivf"]

_DIRECTORY = "dense"
_SHARD = 512
_HNSW_LINKS, _HNSW_BUILD, _HNSW_SEARCH = 32, 80, 128
_TRAINING_VECTORS_PER_LIST = 39
_SAME_MODEL = 0.99
"""Least cosine between probes of one model, which differ by device and number format."""


def embed_references(work: Path, store: Store, embedder: Embedder, progress: Callable[[int, int], None]) -> Vectors:
    """[references, dimension] embeddings of the different references. Finished parts of an earlier call are read.

    Args:
        work: directory for the finished parts.
        progress: called with the numbers of finished and of all references.
    """
    work.mkdir(exist_ok=True)
    texts = list(store.references())
    order = sorted(range(len(texts)), key=lambda number: (len(texts[number]), number))
    vectors = np.empty((len(texts), embedder.dimension), np.float32)
    for start in range(0, len(order), _SHARD):
        numbers = order[start : start + _SHARD]
        path = work / f"{start // _SHARD:06}.npy"
        if not path.exists():
            partial = path.with_suffix(".part")
            with partial.open("wb") as stream:
                np.save(stream, embedder.documents([texts[number] for number in numbers]), allow_pickle=False)
            partial.rename(path)
        vectors[numbers] = np.load(path, allow_pickle=False)
        progress(start + len(numbers), len(order))
    return vectors


def write_dense(directory: Path, store: Store, vectors: Vectors, probe: Vectors, kind: FaissType) -> dict[str, Any]:
    """Write a FAISS index per backend; returns its facts for the manifest.

    Equal calls write equal files, except for `hnsw`, whose graph depends on the timing of threads.

    Args:
        vectors: [references, dimension] with the norm 1.
        probe: [dimension] `Embedder.probe`.
    """
    partial = directory / f"{_DIRECTORY}.part"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    np.save(partial / "probe.npy", probe, allow_pickle=False)
    for number, backend in enumerate(store.backends):
        chosen = vectors[np.unique(store.reference[store.rows_of(backend)])]
        faiss.write_index(_index(chosen, kind), str(partial / f"{number}.faiss"))
    replace_directory(partial, directory / _DIRECTORY, sync=False)
    return {"type": kind, "library": f"faiss {faiss.__version__}", "vectors": len(vectors)}


def _index(vectors: Vectors, kind: FaissType) -> Any:
    n, dimension = vectors.shape
    index: Any
    if kind == "hnsw":
        index = faiss.IndexHNSWFlat(dimension, _HNSW_LINKS, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction, index.hnsw.efSearch = _HNSW_BUILD, _HNSW_SEARCH
    elif kind == "ivf" and n >= 2 * _TRAINING_VECTORS_PER_LIST:
        lists = min(int(np.sqrt(n)), n // _TRAINING_VECTORS_PER_LIST)
        index = faiss.IndexIVFFlat(faiss.IndexFlatIP(dimension), dimension, lists, faiss.METRIC_INNER_PRODUCT)
        index.nprobe = max(1, lists // 4)
        index.train(vectors)
    else:
        index = faiss.IndexFlatIP(dimension)
    index.add(vectors)
    return index


class Dense:
    """Cosine similarities of the references of an index to a query. Loads the index of a backend when it is searched.

    Raises:
        UsageError: the dense index is damaged, or is of another embedder.
    """

    def __init__(self, directory: Path, facts: dict[str, Any], store: Store) -> None:
        self._directory, self._facts, self._store = directory, facts, store
        self._loaded: dict[str, tuple[Any, npt.NDArray[np.int32]]] = {}

    def require_embedder(self, embedder: Embedder) -> None:
        """Compare an embedder with that of the index.

        Raises:
            UsageError: another dimension, or another model.
        """
        expected = self._facts["dimension"]
        if embedder.dimension != expected:
            raise self._unusable(f"has {expected} dimensions; embedder {embedder.name} has {embedder.dimension}")
        try:
            probe = np.load(self._directory / _DIRECTORY / "probe.npy", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise self._unusable(f"probe.npy cannot be read: {error}") from None
        if probe.shape != (expected,) or float(probe @ embedder.probe) < _SAME_MODEL:
            raise self._unusable(
                f"was built with another model than {embedder.name}: embeddings of one text have the cosine "
                f"{float(probe @ embedder.probe) if probe.shape == (expected,) else float('nan'):.2f}"
            )

    def search(self, query: Vectors, backend: str, first: int = 64) -> Iterator[tuple[npt.NDArray[np.int32], Vectors]]:
        """Numbers of references of `backend` and their cosines, best first, in parts. Ties are in ascending order.

        Args:
            query: [dimension] with the norm 1.
            first: number of references in the first part, or a few less.
        """
        index, numbers = self._index(backend)
        seen = np.zeros(len(numbers), bool)
        wanted = first
        while not seen.all():
            wanted = min(wanted, len(numbers))
            cosines, found = (array[0] for array in index.search(query[None], wanted, params=_wide(index, wanted)))
            valid = found >= 0
            cosines, found = cosines[valid], found[valid]
            last = wanted == len(numbers)
            if not last and len(found) == wanted and cosines[0] > cosines[-1]:
                # Which of equal cosines are found at the end is arbitrary; the next part has all of them.
                found, cosines = found[cosines > cosines[-1]], cosines[cosines > cosines[-1]]
            fresh = ~seen[found]
            found, cosines = found[fresh], cosines[fresh]
            seen[found] = True
            order = np.lexsort((found, -cosines))
            if len(order):
                yield numbers[found[order]], cosines[order]
            if last:
                break
            wanted *= 8
        missed = np.flatnonzero(~seen)
        if len(missed):  # the links of an HNSW index need not reach every vector
            cosines = index.reconstruct_batch(missed) @ query
            order = np.lexsort((missed, -cosines))
            yield numbers[missed[order]], cosines[order]

    def cosines(self, query: Vectors, references: npt.NDArray[np.int32], backend: str) -> Vectors:
        """[references] cosines of references of `backend`, given by their numbers.

        Args:
            query: [dimension] with the norm 1.
        """
        index, numbers = self._index(backend)
        found: Vectors = index.reconstruct_batch(np.searchsorted(numbers, references)) @ query
        return found

    def _index(self, backend: str) -> tuple[Any, npt.NDArray[np.int32]]:
        loaded = self._loaded.get(backend)
        if loaded is None:
            numbers = np.unique(self._store.reference[self._store.rows_of(backend)])
            path = self._directory / _DIRECTORY / f"{self._store.backends.index(backend)}.faiss"
            try:
                index = faiss.read_index(str(path))
            except RuntimeError as error:
                raise self._unusable(f"{path.name} cannot be read: {str(error)[:200]}") from None
            if index.d != self._facts["dimension"] or index.ntotal != len(numbers):
                message = f"{path.name} has {index.ntotal} vectors of {index.d} dimensions; the manifest says "
                raise self._unusable(f"{message}{len(numbers)} of {self._facts['dimension']}")
            if isinstance(index, faiss.IndexIVF):
                index.make_direct_map()  # for `cosines`
            loaded = self._loaded[backend] = index, numbers
        return loaded

    def _unusable(self, problem: str) -> Exception:
        return unusable(self._directory, problem, dense=True)


def _wide(index: Any, wanted: int) -> Any:
    """Search parameters that find `wanted` vectors; None: those of the index suffice."""
    if isinstance(index, faiss.IndexHNSW) and wanted > index.hnsw.efSearch:
        return faiss.SearchParametersHNSW(efSearch=wanted)
    if isinstance(index, faiss.IndexIVF) and wanted > index.ntotal // index.nlist * index.nprobe // 2:
        return faiss.SearchParametersIVF(nprobe=index.nlist)
    return None
