"""Lexical search: BM25 over the words of references and kernels."""

from __future__ import annotations

import logging
import math
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelrl_plugin_raicl.index.manifest import unusable
from kernelrl_plugin_raicl.index.store import Store
from kernelrl_plugin_raicl.index.words import VERSION, Words

__all__ = ["Lexical", "write_lexical"]

# bm25s initialises JAX where it is installed, which reserves most of the GPU memory; only its numpy code is used here.
_jax = sys.modules.get("jax")
sys.modules["jax"] = None  # type: ignore[assignment]
try:
    import bm25s
finally:
    if _jax is None:
        del sys.modules["jax"]
    else:
        sys.modules["jax"] = _jax

logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets DEBUG

_DIRECTORY = "lexical"
_MOST_RECORDS = 0.5


def write_lexical(directory: Path, store: Store) -> dict[str, Any]:
    """Write the lexical index of all records; returns its facts for the manifest.

    A document has every operator of the reference and of the kernel once. Words in more than half of the records tell
    nothing and are excluded.
    """
    words, documents = _documents(store)
    frequency = np.bincount(np.concatenate(documents), minlength=len(words)) if documents else np.zeros(0)
    limit = max(1.0, _MOST_RECORDS * len(store))
    vocabulary: dict[str, int] = {}
    renumbered = np.full(len(words), -1, np.int32)
    for number in sorted(range(len(words)), key=words.__getitem__):
        if frequency[number] <= limit:
            renumbered[number] = vocabulary.setdefault(words[number], len(vocabulary))
    scorer = bm25s.BM25()
    if vocabulary:
        known = (renumbered[document] for document in documents)
        corpus = [document[document >= 0].tolist() for document in known]
        scorer.index((corpus, vocabulary), create_empty_token=False, show_progress=False)
    else:
        scorer.scores = _empty(len(store))
        scorer.vocab_dict, scorer.nonoccurrence_array = {}, None
    partial = directory / f"{_DIRECTORY}.part"
    shutil.rmtree(partial, ignore_errors=True)
    scorer.save(partial, show_progress=False)
    partial.rename(directory / _DIRECTORY)
    return {
        "library": f"bm25s {bm25s.__version__}",
        "method": scorer.method,
        "k1": scorer.k1,
        "b": scorer.b,
        "words": VERSION,
        "vocabulary": len(vocabulary),
    }


def _documents(store: Store) -> tuple[list[str], list[npt.NDArray[np.int32]]]:
    """Different words, and of each record the numbers of its words."""
    words, numbers = Words(), dict[str, int]()
    documents = []
    for record in map(store.record, range(len(store))):
        document = dict.fromkeys((*words.all(record.reference), *words.all(record.kernel)))
        found = [numbers.setdefault(word, len(numbers)) for word in document]
        documents.append(np.array(found, np.int32))
    return list(numbers), documents


class Lexical:
    """BM25 scores of all records for a query. Arrays are memory-mapped.

    Raises:
        UsageError: the lexical index is damaged, or has words of another version.
    """

    def __init__(self, directory: Path, facts: dict[str, Any], n_records: int) -> None:
        if facts.get("words") != VERSION:
            raise unusable(directory, f"splits words by version {facts.get('words')}; this release by {VERSION}")
        try:
            self._scorer = bm25s.BM25.load(directory / _DIRECTORY, mmap=True, allow_pickle=False, show_progress=False)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise unusable(directory, f"the lexical index cannot be read: {error}") from None
        if self._scorer.scores["num_docs"] != n_records:
            raise unusable(directory, "the lexical index has another number of records than the table")
        frequency = np.diff(np.asarray(self._scorer.scores["indptr"]))
        self._idf = np.log(1 + (n_records - frequency + 0.5) / (frequency + 0.5))
        self._words = Words()

    def scores(self, query: str) -> npt.NDArray[np.float32]:
        """[records] similarity of each record to a source, from 0 to 1: the BM25 score divided by its upper bound.

        The query is the set of the source's words; the rarest one counts twice, because an example of a rare operator
        teaches more than one of several common operators. The bound is the score of a document that repeats all words
        endlessly; words that no record has do not count.
        """
        numbers = sorted(self._scorer.get_tokens_ids(list(self._words.all(query))))
        if numbers:
            numbers.append(max(numbers, key=lambda number: self._idf[number]))
        bound = math.fsum(self._idf[numbers])
        if not numbers or bound <= 0:
            return np.zeros(self._scorer.scores["num_docs"], np.float32)
        found: npt.NDArray[np.float32] = self._scorer.get_scores_from_ids(numbers)
        return found / np.float32(bound)


def _empty(n_records: int) -> dict[str, Any]:
    return {
        "data": np.empty(0, np.float32),
        "indices": np.empty(0, np.int32),
        "indptr": np.zeros(1, np.int64),
        "num_docs": n_records,
    }
