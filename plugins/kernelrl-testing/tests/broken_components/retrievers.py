from __future__ import annotations

import random
from typing import Any

from broken_components import Broken
from kernelrl_core.api.retrievers import Example, Retriever, Task

KERNEL = "class ModelNew: ...\n"


class Found(Retriever):
    def search(self, task: Task, backend: str) -> Any:
        if backend == "triton":
            yield Example("reference", KERNEL, id="one")


class Texts(Found):
    def search(self, task: Task, backend: str) -> Any:
        yield from [KERNEL] if backend == "triton" else []


class Random(Found):
    def search(self, task: Task, backend: str) -> Any:
        for example in super().search(task, backend):
            yield Example(example.reference, KERNEL, str(random.random()))


class Forgets(Found):
    seen = 0

    def observe(self, rows: Any) -> None:
        self.seen += 1

    def search(self, task: Task, backend: str) -> Any:
        for example in super().search(task, backend):
            yield Example(example.reference, KERNEL, str(self.seen))


class AnyBackend(Found):
    def search(self, task: Task, backend: str) -> Any:
        return super().search(task, "triton")


class SameId(Found):
    def search(self, task: Task, backend: str) -> Any:
        for example in super().search(task, backend):
            yield from (example, example)


class WorstFirst(Found):
    def search(self, task: Task, backend: str) -> Any:
        if backend == "triton":
            yield from (Example(f"{n}", KERNEL, id=f"{n}", similarity=n / 9) for n in range(3))


class Insensitive(Found):
    """Finds the same example for any task, its own reference included."""

    def search(self, task: Task, backend: str) -> Any:
        if backend == "triton":
            first = "other" if task.reference == "some" else "some"
            yield Example(first, KERNEL, id=first, similarity=0.5)


class Live(Found):
    def identity(self) -> Any:
        return {"read_at": random.random()}


class Opaque(Found):
    def identity(self) -> Any:
        return {"examples": {1, 2}}


BROKEN = [
    Broken("retrievers", "retrievers.Found", ()),
    Broken("retrievers", "retrievers.WorstFirst", (), attributes={"by_similarity": False}),
    Broken("retrievers", "retrievers.Texts", ["finds_examples"]),
    Broken("retrievers", "retrievers.Random", ["search_is_repeatable", "state_is_plain_and_restores"]),
    Broken("retrievers", "retrievers.Forgets", ["state_is_plain_and_restores"]),
    Broken("retrievers", "retrievers.AnyBackend", ["examples_are_those_of_the_backend"]),
    Broken("retrievers", "retrievers.SameId", ["ids_are_unique"]),
    Broken("retrievers", "retrievers.WorstFirst", ["the_best_example_is_first"]),
    Broken("retrievers", "retrievers.Insensitive", ["the_best_example_is_first"]),
    Broken("retrievers", "retrievers.Live", ["identity_is_plain_and_repeatable"]),
    Broken("retrievers", "retrievers.Opaque", ["identity_is_plain_and_repeatable"]),
]
