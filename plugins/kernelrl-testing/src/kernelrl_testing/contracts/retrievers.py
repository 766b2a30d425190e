"""The contract of retrievers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar

from kernelrl_core.errors import KernelRLError
from kernelrl_core.types import Example, Task
from kernelrl_testing.contracts.base import ComponentContract
from kernelrl_testing.contracts.breaches import calling, require
from kernelrl_testing.values import make_task

__all__ = ["RetrieverContract"]

_ROUNDING = 1e-6
_FIX_SEARCH = "yield Example objects, best first, for any task that parses"
_FIX_PLAIN = "return text, finite numbers, lists and mappings with text as keys"


class RetrieverContract(ComponentContract):
    """A retriever finds the same examples for a task until it observes a step, best first and for one backend."""

    kind = "retrievers"
    limit_s: ClassVar[float] = 900.0
    backend: ClassVar[str] = "triton"
    at_most: ClassVar[int] = 20
    """Examples that are taken of each search."""
    by_similarity: ClassVar[bool] = True
    """Whether the options order examples by `Example.similarity`, where they have one."""

    def tasks(self) -> Sequence[Task]:
        """The tasks that are searched for."""
        return (make_task(), make_task("other", "class Model: ...\n"))

    def found(self, retriever: Any) -> list[list[Example]]:
        """The best examples for each task."""
        return [self._search(retriever, task, self.backend) for task in self.tasks()]

    def test_finds_examples(self) -> None:
        for example in (example for examples in self.found(self.make()) for example in examples):
            require(isinstance(example, Example), f"search yields {example!r}, not an Example", _FIX_SEARCH)
            require(example.kernel.strip(), f"example {example.id!r} has no kernel", "yield complete examples only")

    def test_ids_are_unique(self) -> None:
        for examples in self.found(self.make()):
            ids = Counter(example.id for example in examples if isinstance(example, Example) and example.id)
            twice = [one for one, count in ids.items() if count > 1]
            require(not twice, f"a search yields the id {', '.join(twice[:3])} twice", "give each example its own id")

    def test_the_best_example_is_first(self) -> None:
        retriever = self.make()
        for examples in self.found(retriever):
            similar = [one.similarity for one in examples if isinstance(one, Example) and one.similarity is not None]
            if not self.by_similarity or len(similar) < len(examples):
                continue
            falls = all(one >= other - _ROUNDING for one, other in pairwise(similar))
            message = f"the similarities of a search rise: {', '.join(f'{one:.3g}' for one in similar[:5])}"
            require(falls, message, "yield the most similar example first")
            for example in examples[:1]:
                own = self._search(retriever, make_task("own", example.reference), self.backend)
                first = own[0].reference == example.reference if own else False
                message = f"a search with the reference of example {example.id!r} does not yield that example first"
                require(first, message, "compute a similarity that is greatest for an equal reference")

    def test_examples_are_those_of_the_backend(self) -> None:
        retriever = self.make()
        for task in self.tasks():
            try:
                found = self._search(retriever, task, "no_such_backend", unguarded=True)
            except KernelRLError:
                continue
            message = f"a search for the backend 'no_such_backend' yields {len(found)} examples"
            require(not found, message, "yield only kernels of the backend that search gets, and none for another")

    def test_identity_is_plain_and_repeatable(self) -> None:
        with calling("identity as JSON", _FIX_PLAIN):
            identity = self.make().identity()
            plain = json.loads(json.dumps(identity, allow_nan=False))
        require(plain == identity, f"identity changes as JSON: {identity!r}", _FIX_PLAIN)
        fix = "derive identity from the data that are searched, such as their hash"
        require(identity == self.make().identity(), "identity differs between two instances", fix)

    def test_search_is_repeatable(self) -> None:
        retriever = self.make()
        same = self.found(retriever) == self.found(retriever) == self.found(self.make())
        require(same, "equal searches yield different examples", "break ties by id; draw nothing at random")

    def test_state_is_plain_and_restores(self) -> None:
        retriever, other = self.make(), self.make()
        with calling("observe, state or restore", "accept any rows, and restore what state returns as JSON"):
            retriever.observe(())
            retriever.observe(self._rows(retriever))
            other.restore(json.loads(json.dumps(retriever.state(), allow_nan=False)))
        fix = "return in state everything that observe changes, and set it in restore"
        require(self.found(other) == self.found(retriever), "a restored retriever finds other examples", fix)

    def _rows(self, retriever: Any) -> list[dict[str, Any]]:
        """Rows of `credits.jsonl`: one with the examples that were found, one without, and a masked one."""
        shown = [example.id for example in self.found(retriever)[0] if isinstance(example, Example)][:2]
        row = {"sample": "0.0.0.0", "return": 1.0, "advantage": 0.5, "reward": 1.0, "excluded": ""}
        masked = {**row, "return": None, "advantage": None, "reward": None, "excluded": "masked"}
        return [{**row, "examples": shown, "task_id": "task"}, row, masked]

    def _search(self, retriever: Any, task: Task, backend: str, *, unguarded: bool = False) -> list[Any]:
        def search() -> list[Any]:
            return [example for _, example in zip(range(self.at_most), retriever.search(task, backend), strict=False)]

        if unguarded:
            return search()
        with calling("search", _FIX_SEARCH):
            return search()
