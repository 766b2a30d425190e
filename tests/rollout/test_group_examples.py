"""Retrieved examples of a group: retrieved once, the same for all episodes, also after an interruption."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from kernelrl_core.environment.retrieval import RetrievedExamples
from kernelrl_core.errors import PluginError
from kernelrl_core.recipe.schema import EpisodeSettings, RetrieverUse
from kernelrl_core.rollout.groups import session_rollout
from kernelrl_core.rollout.session import Session
from kernelrl_core.types import Example, Group, Outcome, SampleId, Task, Turn
from kernelrl_testing.fakes import FakeEnvironment, FakePolicy, numbered_tasks
from kernelrl_testing.training import make_recipe
from kernelrl_testing.waiting import takes_async

TASKS = numbered_tasks(train=2)
RECIPE = make_recipe(retriever=RetrieverUse("fake"), episode=EpisodeSettings(turns=2))


class Environment(FakeEnvironment):
    """Retrieves an example with a new id in every search, like a retriever that learns; fails the first `failures`
    times."""

    def __init__(self, failures: int = 0) -> None:
        super().__init__(RECIPE)
        self.failures = failures
        self.searches: list[str] = []
        self.recorded: list[Turn] = []

    async def examples(self, task: Task, recorded: Turn | None = None) -> RetrievedExamples:
        await takes_async(0.01)
        if recorded is not None:
            self.recorded.append(recorded)
            return RetrievedExamples(tuple(Example("r", "k", id=one.id) for one in recorded.examples))
        self.searches.append(task.id)
        if len(self.searches) <= self.failures:
            raise PluginError("the index is away")
        return RetrievedExamples((Example("r", "k", id=f"search {len(self.searches)}"),))


class Recorder:
    def __init__(self) -> None:
        self.turns: dict[SampleId, Turn] = {}

    def require_budget(self) -> None: ...

    async def begin(self, purpose: str, where: SampleId) -> None: ...

    async def record(self, purpose: str, turn: Turn) -> None:
        self.turns[turn.id] = turn


def rollout(environment: Environment, finished: Mapping[SampleId, Turn] | None = None) -> list[Group]:
    async def scene() -> list[Group]:
        session: Any = Session(environment, FakePolicy())  # type: ignore[arg-type]
        made = session_rollout(session, TASKS, 3, Recorder(), purpose="train", step=0, finished=finished or {})
        async with made:
            return [group async for group in made]

    return asyncio.run(scene())


def shown(group: Group) -> list[list[str]]:
    """Ids of the examples of the first turn of each episode."""
    return [[example.id for example in episode.turns[0].examples] for episode in group.episodes]


def test_examples_are_retrieved_once_per_group() -> None:
    environment = Environment()
    groups = rollout(environment)
    assert sorted(environment.searches) == [task.id for task in TASKS]
    assert [len({tuple(ids) for ids in shown(group)}) for group in groups] == [1, 1]


def test_resumed_group_sees_the_examples_of_its_recorded_turn() -> None:
    whole = rollout(Environment())
    first = whole[0].episodes[1].turns[0]
    environment = Environment()
    groups = rollout(environment, {first.id: first})
    assert environment.searches == [TASKS[1].id]
    assert {ids for (ids,) in shown(groups[0])} == {first.examples[0].id}


def test_masked_turn_does_not_decide_the_examples_of_a_resumed_group() -> None:
    whole = rollout(Environment(failures=1))
    lost = next(e.turns[0] for group in whole for e in group.episodes if e.turns[0].masked)
    environment = Environment()
    rollout(environment, {lost.id: lost})
    assert environment.recorded == []


def test_failing_retrieval_masks_an_episode_and_is_tried_again_for_the_next() -> None:
    environment = Environment(failures=1)
    group, _ = rollout(environment)
    ((turn,),) = (episode.turns for episode in group.episodes if episode.turns[0].masked)
    assert (turn.outcome, turn.lost_at, turn.message) == (Outcome.INFRA_ERROR, "plugin", "the index is away")
    others = [ids for ids in shown(group) if ids]
    assert len(others) == 2
    assert others[0] == others[1]


def test_later_turns_show_no_examples_by_default() -> None:
    for group in rollout(Environment()):
        for episode in group.episodes:
            assert episode.turns[0].examples != ()
            assert episode.turns[1].examples == ()
