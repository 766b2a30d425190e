"""Demonstrations show the examples that training would retrieve."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import attrs

from kernelrl_core.environment.demonstrations import Demonstrations
from kernelrl_core.environment.retrieval import RetrievedExamples
from kernelrl_core.interfaces.backends import BackendFacts
from kernelrl_core.prompts import Composer
from kernelrl_core.recipe.schema import RetrieverUse, TrainSettings
from kernelrl_core.types import Demonstration, EvaluationSettings, Example, Outcome, Task, Turn
from kernelrl_testing.fakes import FakeEnvironment, FakeTasks
from kernelrl_testing.training import make_recipe


class Tasks(FakeTasks):
    def demonstrations(self, task: Task) -> Sequence[Demonstration]:
        return [Demonstration("class ModelNew: ...\n", "fake", Outcome.CORRECT)]


class Environment(FakeEnvironment):
    def __init__(self, *kernels: str, retrieves: bool = True) -> None:
        recipe = make_recipe(retriever=RetrieverUse("fake") if retrieves else None)
        facts = BackendFacts("Fake", (), "Write a kernel.", Example("class Model: ...", "class ModelNew:  # own"))
        composer = Composer(recipe.prompt, recipe.history, facts, (), EvaluationSettings())
        super().__init__(recipe, tasks=Tasks(), composer=composer)
        self.kernels, self.searches = kernels, 0

    async def examples(self, task: Task, recorded: Turn | None = None) -> RetrievedExamples:
        self.searches += 1
        return RetrievedExamples(tuple(Example("class Model: ...", kernel, id=kernel) for kernel in self.kernels))


def prompts(environment: Environment) -> list[str]:
    found = asyncio.run(Demonstrations(environment).examples())  # type: ignore[arg-type]
    return ["".join(message.content for message in one.messages) for one in found]


def key(environment: Environment) -> str:
    return asyncio.run(Demonstrations(environment).key())  # type: ignore[arg-type]


def test_prompts_of_the_warm_start_show_retrieved_examples() -> None:
    assert all("# near" in text and "# own" not in text for text in prompts(Environment("class ModelNew:  # near")))


def test_prompts_show_the_example_of_the_backend_if_nothing_is_retrieved() -> None:
    for environment in (Environment(), Environment("class ModelNew:  # near", retrieves=False)):
        assert all("# own" in text for text in prompts(environment))


def test_key_covers_the_retrieved_examples() -> None:
    assert key(Environment("class ModelNew:  # a")) == key(Environment("class ModelNew:  # a"))
    assert key(Environment("class ModelNew:  # a")) != key(Environment("class ModelNew:  # b"))


def test_examples_are_retrieved_once_per_task() -> None:
    environment = Environment("class ModelNew:  # near")
    demonstrations = Demonstrations(environment)  # type: ignore[arg-type]

    async def scene() -> None:
        await demonstrations.key()
        await demonstrations.examples()

    asyncio.run(scene())
    assert environment.searches == 4  # not those of the held-out tasks, which are excluded


def test_demonstrations_of_tasks_that_nearly_equal_held_out_ones_are_excluded() -> None:
    environment = Environment(retrieves=False)
    assert len(prompts(environment)) == 4
    train, held_out = environment.tasks.tasks("train"), environment.tasks.tasks("held_out")
    leak = attrs.evolve(train[0], reference=held_out[0].reference)
    environment.tasks = Tasks([leak, *train[1:], *held_out])
    assert len(prompts(environment)) == 3
    environment.recipe = attrs.evolve(environment.recipe, train=TrainSettings(decontaminate=False))
    assert len(prompts(environment)) == 8
