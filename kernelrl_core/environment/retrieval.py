"""Retrieval: examples for the prompts of a task, without leaks and without kernels that break a stated rule."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import attrs

from kernelrl_core.errors import KernelRLError, UsageError
from kernelrl_core.interfaces.retrievers import Retriever
from kernelrl_core.interfaces.tasks import TaskSource
from kernelrl_core.plugins.boundary import plugin_boundary, returned
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.recipe.schema import Recipe, RetrieverUse
from kernelrl_core.tasks.leaks import LeakGuard
from kernelrl_core.tasks.selection import listed
from kernelrl_core.types import Example, ExcludedExample, Task, Turn, sha256_text

__all__ = ["SAMPLED_TASKS", "Retrieval", "RetrievedExamples", "make_retrieval"]

SAMPLED_TASKS = 20
"""Number of tasks for which the leak rate is estimated."""

_NO_TASK = Task("", "")
"""Equals no example, so that the guard finds only leaks of held-out tasks."""

_CACHED = 4096
"""Number of results of the guard, and of the check for stated rules, that are kept."""


@attrs.frozen
class RetrievedExamples:
    """Examples for the prompts of a group."""

    examples: tuple[Example, ...] = ()
    """At most `retriever.k`, best first, each with an id. A prompt may show fewer, if its context is short."""
    excluded: tuple[ExcludedExample, ...] = ()
    """Better examples that the guard or a stated rule excluded."""


class Retrieval:
    """A retriever with the guard against leaks. Its methods block: call them in worker threads.

    Args:
        use: the recipe's `retriever` block.
        backend: name of the recipe's backend.
        train_split: split of the training tasks, which `retriever.guard: held_out` lets see their own solutions.
        held_out: the tasks that the guard knows.
        forbids: whether a kernel breaks a stated rule; its arguments are kernel and reference.
    """

    def __init__(
        self,
        retriever: Retriever,
        use: RetrieverUse,
        *,
        backend: str,
        train_split: str,
        guard: LeakGuard,
        held_out: Sequence[Task] = (),
        forbids: Callable[[str, str], bool],
    ) -> None:
        self.retriever, self.use = retriever, use
        self._backend, self._train_split = backend, train_split
        self._held_out = held_out
        # Corpora contain many kernels for one reference, and the same examples are found for many tasks.
        self._leak_of = functools.lru_cache(_CACHED)(guard.leak)
        self._forbids = functools.lru_cache(_CACHED)(forbids)

    @property
    def bound(self) -> int:
        """Number of examples after which a search ends, if fewer than `retriever.k` have passed."""
        return max(1000, 50 * self.use.k)

    def search(self, task: Task) -> RetrievedExamples:
        """Up to `retriever.k` examples for a task. The search continues until as many have passed or none is left.

        Raises:
            InfrastructureError: a service of the retriever failed.
            KernelRLError: the retriever failed.
        """
        passed: list[Example] = []
        excluded: list[ExcludedExample] = []
        for example in itertools.islice(self._found(task), self.bound):
            if reason := self._reason(task, example):
                excluded.append(ExcludedExample(example.id, example.origin, example.similarity, reason))
                continue
            passed.append(example)
            if len(passed) == self.use.k:
                break
        return RetrievedExamples(tuple(passed), tuple(excluded))

    def recorded(self, task: Task, turn: Turn) -> RetrievedExamples:
        """The examples that the group of a recorded first turn was shown, even if the retriever has learned since.

        Raises:
            KernelRLError: the retriever failed, or no longer finds one of them.
        """
        dropped = [example for example in turn.excluded_examples if example.reason == "length"]
        similarity = {example.id: example.similarity for example in turn.examples if example.id}
        similarity |= {example.id: example.similarity for example in dropped}
        found: dict[str, Example] = {}
        search = self._found(task)
        while len(found) < len(similarity) and (example := next(search, None)) is not None:
            if example.id in similarity:
                found[example.id] = attrs.evolve(example, similarity=similarity[example.id])
        if missing := [id_ for id_ in similarity if id_ not in found]:
            raise KernelRLError(
                f"sample {turn.id} of the journal showed example {missing[0]!r}, which {self.label} no longer finds",
                fix="restore the index that the run started with, or start a new run",
                see="inputs-changed",
            )
        others = tuple(example for example in turn.excluded_examples if example.reason != "length")
        return RetrievedExamples(tuple(found[id_] for id_ in similarity), others)

    def leak_line(self, tasks: Sequence[Task]) -> str:
        """A line for the user: share of leaks among the examples found for some of these tasks.

        Raises:
            KernelRLError: the retriever failed.
        """
        sampled = tasks[:SAMPLED_TASKS]
        rate, k = self.leak_rate(sampled), self.use.k
        if rate is None:
            return f"{self.label} finds no example for backend {self._backend!r}; prompts show the backend's own"
        line = f"{self.label}: {rate:.0%} of the first {k} examples for {len(sampled)} tasks are leaks and excluded"
        with plugin_boundary(self.label, "compared"):
            compared = self.retriever.compared()
        n_left = sum(task.sha256 not in compared for task in self._held_out)
        if n_left:
            line += f"; {n_left} of {len(self._held_out)} held-out tasks are compared by their source only"
        return line

    def leak_rate(self, tasks: Sequence[Task]) -> float | None:
        """Share of leaks among the first `retriever.k` examples that the retriever finds for each task; None if it
        finds none.

        Raises:
            KernelRLError: the retriever failed.
        """
        leaks = [
            bool(self._leak(task, example))
            for task in tasks
            for example in itertools.islice(self._found(task), self.use.k)
        ]
        return sum(leaks) / len(leaks) if leaks else None

    @property
    def label(self) -> str:
        """Name of the retriever in messages."""
        return f"retriever {self.use.use!r}"

    def _found(self, task: Task) -> Iterator[Example]:
        with plugin_boundary(self.label, "search"):
            search = iter(self.retriever.search(task, self._backend))
        while True:
            with plugin_boundary(self.label, "search"):
                found = next(search, None)
            if found is None:
                return
            example = returned(found, Example, self.label, "search")
            yield example if example.id else attrs.evolve(example, id=_derived_id(example))

    def _reason(self, task: Task, example: Example) -> Literal["", "leak_task", "leak_held_out", "forbidden"]:
        if leak := self._leak(task, example):
            return leak
        return "forbidden" if self._forbids(example.kernel, example.reference) else ""

    def _leak(self, task: Task, example: Example) -> Literal["", "leak_task", "leak_held_out"]:
        sees_its_own = self.use.guard == "held_out" and task.split == self._train_split
        return self._leak_of(_NO_TASK if sees_its_own else task, example.reference, example.name, example.solves)


def make_retrieval(
    recipe: Recipe, registry: Registry, tasks: TaskSource, forbids: Callable[[str, str], bool]
) -> Retrieval | None:
    """The retrieval of a recipe; None without a retriever. The guard knows all tasks of `eval.split`.

    Args:
        tasks: task source of the recipe.
        forbids: whether a kernel breaks a stated rule; its arguments are kernel and reference.

    Raises:
        MissingPrerequisite: a prerequisite of the retriever is missing.
        UsageError: the retriever rejects its options.
        KernelRLError: the task source failed.
    """
    if recipe.retriever is None:
        return None
    try:
        held_out = listed(tasks, recipe.eval.split)
    except UsageError:  # the source has no such split; a recipe that evaluates on it is refused elsewhere
        held_out = ()
    return Retrieval(
        registry.make("retrievers", recipe.retriever),
        recipe.retriever,
        backend=recipe.backend.use.rpartition(":")[2],
        train_split=recipe.train.split,
        guard=LeakGuard(held_out),
        held_out=held_out,
        forbids=forbids,
    )


def _derived_id(example: Example) -> str:
    return sha256_text(f"{example.reference}\0{example.kernel}")[:16]
