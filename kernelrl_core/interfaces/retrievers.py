"""Retrievers: find worked examples for a task.

`search` yields examples, best first. The core excludes leaks (examples that contain the solution of the given task or
of a held-out task) and kernels that break a stated rule, and shows the first `retriever.k` others in the prompt. All
episodes of a group see the same examples. A retriever that learns during a run gets the rows of `credits.jsonl` in
`observe`; checkpoints contain its `state`.

`kernelrl plugins new retrievers NAME` writes a sample plugin.
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
        """Examples for `backend`, best first. Called and iterated in worker threads, possibly concurrently.

        The core stops iterating when `retriever.k` examples are left after exclusions, so a generator can search a long
        corpus lazily. Equal calls between two calls of `observe` yield equal examples. A resumed run searches for the
        examples that a group was shown before by their ids, so `observe` may change their order, not remove them.
        """

    def identity(self) -> Mapping[str, Any]:
        """Identity of the searched data as plain data, such as the hash of an index manifest. Empty: none.

        The core stores it in `provenance.json`. `kernelrl resume` refuses another identity, and so does `kernelrl eval
        RUN` unless an override changes the retriever.
        """
        return {}

    def compared(self) -> frozenset[str]:
        """Content hashes of the tasks with which the references were compared by their outputs (`Example.solves`)."""
        return frozenset()

    def observe(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Process the rows of `credits.jsonl` of a finished step, in canonical order.

        A row of a sample whose prompt showed retrieved examples has their ids in `examples`, and the id of its task in
        `task_id`. Other rows have neither.
        """

    def state(self) -> Mapping[str, Any]:
        """State learned in `observe`, as plain data, for the checkpoint. Empty: no state."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the return value of `state`, in another process."""
