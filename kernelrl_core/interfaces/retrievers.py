'''Retrievers: find worked examples for a task.

`search` yields examples, best first. The core excludes leaks (examples that contain the solution of the given task or
of a held-out task) and kernels that break a stated rule, and shows the first `retriever.k` others in the prompt. All
episodes of a group see the same examples. A retriever that learns during a run gets the rows of `credits.jsonl` in
`observe`; checkpoints contain its `state`.

    # src/kernelrl_plugin_overlap/__init__.py
    """Retriever `overlap` for kernelrl."""

    from kernelrl_core.api import Component, hookimpl


    @hookimpl
    def kernelrl_retrievers() -> list[Component]:
        return [
            Component(
                "overlap",
                target="kernelrl_plugin_overlap.retriever:Overlap",
                config="kernelrl_plugin_overlap.options:OverlapConfig",
                summary="Examples whose references share the most words with the task",
            )
        ]

    # src/kernelrl_plugin_overlap/options.py
    """Options of the retriever `overlap`."""

    import attrs

    from kernelrl_core.api.config import Fraction
    from kernelrl_core.api.retrievers import RetrieverConfig


    @attrs.frozen
    class OverlapConfig(RetrieverConfig):
        """Options."""

        min_similarity: Fraction = Fraction(0.0)
        """Least share of common words of an example."""

    # src/kernelrl_plugin_overlap/corpus.py
    """The worked examples of the retriever `overlap`."""

    from kernelrl_core.api.retrievers import Example

    REFERENCE = """\\
    import torch


    class Model(torch.nn.Module):
        def forward(self, x):
            return {torch}
    """
    TRITON = """\\
    import torch
    import triton
    import triton.language as tl


    @triton.jit
    def kernel(source, target, size, block: tl.constexpr):
        at = tl.program_id(0) * block + tl.arange(0, block)
        x = tl.load(source + at, mask=at < size)
        tl.store(target + at, {triton}, mask=at < size)


    class ModelNew(torch.nn.Module):
        def forward(self, x):
            target = torch.empty_like(x)
            kernel[(triton.cdiv(x.numel(), 1024),)](x, target, x.numel(), 1024)
            return target
    """


    def _elementwise(name: str, reference: str, kernel: str) -> Example:
        sources = REFERENCE.format(torch=reference), TRITON.format(triton=kernel)
        return Example(*sources, name=name, origin="overlap@1", id=f"overlap/{name}")


    CORPUS = {
        "triton": (
            _elementwise("relu", "torch.relu(x)", "tl.maximum(x, 0.0)"),
            _elementwise("square", "x * x", "x * x"),
        )
    }
    """Backend -> its examples."""

    # src/kernelrl_plugin_overlap/retriever.py
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
        wanted, offered = (set(re.findall(r"\\w+", text)) for text in (task.reference, example.reference))
        return len(wanted & offered) / len(wanted | offered)

    # tests/test_overlap.py
    """Contract and order of the retriever `overlap`."""

    from kernelrl_core.testing.contracts import RetrieverContract
    from kernelrl_core.testing.values import make_task
    from kernelrl_plugin_overlap.corpus import CORPUS
    from kernelrl_plugin_overlap.options import OverlapConfig
    from kernelrl_plugin_overlap.retriever import Overlap


    class TestContract(RetrieverContract):
        component = "overlap"


    def test_the_example_for_the_same_task_comes_first() -> None:
        _, square = CORPUS["triton"]
        task = make_task("mine", square.reference)
        best, other = Overlap(OverlapConfig()).search(task, "triton")
        assert (best.id, best.similarity) == (square.id, 1.0)
        assert other.similarity is not None
        assert other.similarity < 1.0


    def test_there_are_no_examples_for_another_backend() -> None:
        assert list(Overlap(OverlapConfig()).search(make_task(), "cpp")) == []

In a recipe:

    retriever: {use: overlap, k: 1, min_similarity: 0.1}
'''

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
