"""Retrieval: exclusion of leaks and forbidden kernels, recorded groups, leak rate."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import attrs
import pytest

from kernelrl_core.environment.retrieval import Retrieval
from kernelrl_core.errors import InfrastructureError, KernelRLError, PluginError
from kernelrl_core.interfaces.retrievers import Retriever
from kernelrl_core.recipe.schema import RetrieverUse
from kernelrl_core.types import Example, ExcludedExample, Outcome, ShownExample, Task
from kernelrl_testing.values import make_turn

TASK = Task("train/0", "the reference")


def example(name: str, reference: str = "another reference", kernel: str = "a kernel") -> Example:
    return Example(reference, kernel, name, "corpus@1", 0.5, name)


def excluded(name: str, reason: Any) -> ExcludedExample:
    return ExcludedExample(name, "corpus@1", 0.5, reason)


class Corpus(Retriever):
    """Yields the given examples; raises those that are exceptions."""

    def __init__(self, found: Iterable[Example | BaseException]) -> None:
        self.found = found
        self.searches: list[tuple[str, str]] = []

    def search(self, task: Task, backend: str) -> Iterator[Example]:
        self.searches.append((task.id, backend))
        for one in self.found:
            if isinstance(one, BaseException):
                raise one
            yield one


class Guard:
    """Finds leaks by the word of the example's reference."""

    def leak(
        self, task: Task, reference: str, name: str, solves: Sequence[str]
    ) -> Literal["", "leak_task", "leak_held_out"]:
        if reference == "held-out":
            return "leak_held_out"
        return "leak_task" if reference == task.reference else ""


def retrieval(found: Iterable[Example | BaseException], held_out: Sequence[Task] = (), **use: Any) -> Retrieval:
    return Retrieval(
        Corpus(found),
        RetrieverUse("fake", **{"k": 2, **use}),
        backend="triton",
        train_split="train",
        guard=Guard(),  # type: ignore[arg-type]
        held_out=held_out,
        forbids=lambda kernel, reference: "forbidden" in kernel,
    )


def ids(examples: Sequence[Example | ExcludedExample]) -> list[str]:
    return [one.id for one in examples]


def test_first_k_examples_are_retrieved_for_the_backend() -> None:
    made = retrieval([example("a"), example("b"), example("c")])
    assert ids(made.search(TASK).examples) == ["a", "b"]
    assert isinstance(made.retriever, Corpus)
    assert made.retriever.searches == [("train/0", "triton")]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (example("x", TASK.reference), "leak_task"),
        (example("x", "held-out"), "leak_held_out"),
        (example("x", kernel="a forbidden kernel"), "forbidden"),
    ],
)
def test_excluded_example_is_replaced_by_the_next_and_recorded(bad: Example, reason: str) -> None:
    found = retrieval([example("a"), bad, example("b"), example("c")]).search(TASK)
    assert ids(found.examples) == ["a", "b"]
    assert found.excluded == (excluded("x", reason),)


@pytest.mark.parametrize(("split", "expected"), [("train", ["own", "a"]), ("held_out", ["a"])])
def test_guard_held_out_lets_only_a_training_task_see_its_own_solution(split: str, expected: list[str]) -> None:
    made = retrieval([example("own", TASK.reference), example("other", "held-out"), example("a")], guard="held_out")
    assert ids(made.search(attrs.evolve(TASK, split=split)).examples) == expected


def test_nothing_is_retrieved_if_all_examples_are_excluded() -> None:
    found = retrieval([example(name, "held-out") for name in "abc"]).search(TASK)
    assert found.examples == ()
    assert ids(found.excluded) == ["a", "b", "c"]


def test_fewer_examples_than_k_are_retrieved_from_a_small_corpus() -> None:
    assert ids(retrieval([example("a")], k=5).search(TASK).examples) == ["a"]


def test_endless_search_ends() -> None:
    made = retrieval(example(str(number), "held-out") for number in itertools.count())
    assert len(made.search(TASK).excluded) == made.bound


def test_example_without_id_gets_one_from_its_sources() -> None:
    first, second = retrieval([Example("r", "k"), Example("r", "other")]).search(TASK).examples
    assert first.id
    assert first.id != second.id
    assert ids(retrieval([Example("r", "k")]).search(TASK).examples) == [first.id]


def test_recorded_group_sees_its_examples_although_the_retriever_has_learned() -> None:
    turn = make_turn(Outcome.CORRECT, examples=(ShownExample("c", "corpus@1", 0.9), ShownExample("b", "corpus@1", 0.1)))
    found = retrieval([example("a"), example("b"), example("c")]).recorded(TASK, turn)
    assert [(one.id, one.similarity) for one in found.examples] == [("c", 0.9), ("b", 0.1)]


def test_recorded_group_includes_examples_dropped_for_length_and_keeps_the_reasons() -> None:
    left_out = (excluded("x", "leak_task"), excluded("b", "length"))
    turn = make_turn(Outcome.CORRECT, examples=(ShownExample("a", "corpus@1", 0.5),), excluded_examples=left_out)
    found = retrieval([example("b"), example("a")]).recorded(TASK, turn)
    assert ids(found.examples) == ["a", "b"]
    assert found.excluded == left_out[:1]


def test_recorded_group_without_retrieved_examples_searches_nothing() -> None:
    turn = make_turn(Outcome.CORRECT, examples=(ShownExample("", "backend"),))
    assert retrieval([example("a")]).recorded(TASK, turn).examples == ()


def test_recorded_example_that_is_gone_is_an_error() -> None:
    turn = make_turn(Outcome.CORRECT, examples=(ShownExample("gone", "corpus@1"),))
    with pytest.raises(KernelRLError, match="example 'gone', which retriever 'fake' no longer finds"):
        retrieval([example("a")]).recorded(TASK, turn)


def test_leak_rate_counts_the_first_k_examples_of_each_task() -> None:
    made = retrieval([example("x", TASK.reference), example("a"), example("y", "held-out")])
    other = attrs.evolve(TASK, reference="other")
    assert made.leak_rate([TASK, other]) == 0.25
    assert made.leak_line([TASK, other]) == (
        "retriever 'fake': 25% of the first 2 examples for 2 tasks are leaks and excluded"
    )


def test_leak_line_counts_held_out_tasks_that_are_compared_by_their_source_only() -> None:
    compared, other = attrs.evolve(TASK, reference="compared"), attrs.evolve(TASK, reference="other")
    made = retrieval([example("a")], held_out=(compared, other))
    made.retriever.compared = lambda: frozenset({compared.sha256})  # type: ignore[method-assign]
    assert made.leak_line([TASK]).endswith("; 1 of 2 held-out tasks are compared by their source only")


def test_leak_line_reports_an_index_without_kernels_for_the_backend() -> None:
    assert "finds no example for backend 'triton'" in retrieval([]).leak_line([TASK])


@pytest.mark.parametrize(
    ("raised", "error", "message"),
    [
        (ValueError("planted"), KernelRLError, "retriever 'fake' failed in search: ValueError: planted"),
        (InfrastructureError("away"), PluginError, "away"),
    ],
)
def test_failing_search_names_the_retriever(raised: BaseException, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        retrieval([example("a"), raised]).search(TASK)


def test_a_search_that_yields_no_example_names_the_retriever() -> None:
    with pytest.raises(KernelRLError, match="retriever 'fake' returned str from search, not Example"):
        retrieval(["a kernel"]).search(TASK)  # type: ignore[list-item]
