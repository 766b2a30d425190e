"""The retriever `overlap`."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from kernelrl_core.api.retrievers import Example, Retriever, Task
from kernelrl_plugin_overlap.corpus import CORPUS
from kernelrl_plugin_overlap.options import OverlapConfig


class Overlap(Retriever):
    """Similarity: number of common words of two references, divided by the number of all their words."""

    def __init__(self, config: OverlapConfig) -> None:
        self._min_similarity = config.min_similarity

    def search(self, task: Task, backend: str) -> Iterator[Example]:
        examples = CORPUS.get(backend, ())
        found = [attrs.evolve(example, similarity=_similarity(task, example)) for example in examples]
        for example in sorted(found, key=lambda example: example.similarity or 0.0, reverse=True):
            if (example.similarity or 0.0) >= self._min_similarity:
                yield example

    def identity(self) -> Mapping[str, Any]:
        return {"corpus": "overlap@1"}


def _similarity(task: Task, example: Example) -> float:
    wanted, offered = (set(re.findall(r"\w+", text)) for text in (task.reference, example.reference))
    return len(wanted & offered) / len(wanted | offered)
