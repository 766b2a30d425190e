"""Retrievers: finders of worked examples for a task.

The core shows as many of the examples in the prompt as the recipe asks for.

    # my_plugin/__init__.py
    from kernelrl_core.api import Component, hookimpl

    @hookimpl
    def kernelrl_retrievers():
        return [Component("longest", "my_plugin.longest:Longest")]

    # my_plugin/longest.py
    from kernelrl_core.api.retrievers import Example, Retriever

    CORPUS = (
        Example(reference="def f(x): return x + 1", kernel="# one", name="add", origin="mine@1"),
        Example(reference="def f(x): return x.relu().sum()", kernel="# two", name="relu_sum", origin="mine@1"),
    )

    class Longest(Retriever):
        def search(self, task, backend):
            yield from sorted(CORPUS, key=lambda example: -len(example.reference))
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from kernelrl_core.interfaces.config import ComponentConfig
from kernelrl_core.types.tasks import Example, Task

__all__ = ["Retriever", "RetrieverConfig"]


@attrs.frozen
class RetrieverConfig(ComponentConfig):
    """Options of a retriever."""


class Retriever(ABC):
    """Finds worked examples for a task."""

    @abstractmethod
    def search(self, task: Task, backend: str) -> Iterator[Example]:
        """Examples for `backend`, best first. Called, and iterated, in a worker thread.

        The core takes as many as `retriever.k` says and stops; a long corpus should be searched lazily.
        """

    def observe(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Learn from a finished step: its rows of `credits.jsonl`, in canonical order."""

    def state(self) -> Mapping[str, Any]:
        """Plain data that a checkpoint keeps: whatever `observe` learned. Empty: nothing."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned, in another process."""
