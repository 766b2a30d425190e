"""Search: which kernels the replies of a round continue from, and the budget."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pytest

from kernelrl_core.errors import InfrastructureError
from kernelrl_core.heldout.search import best_paths, mates
from kernelrl_core.heldout.split import rollout_split
from kernelrl_core.monitoring.costs import BudgetReached
from kernelrl_core.plugins.boundary import first_error
from kernelrl_core.recipe.schema import EpisodeSettings, EvalSettings, PositiveInt, SearchSettings
from kernelrl_core.rollout.session import Session
from kernelrl_core.types import Extraction, Group, Outcome, SampleId, Score, Turn, Verdict
from kernelrl_testing.fakes import FakeEnvironment, FakePolicy, FakeTasks, numbered_tasks
from kernelrl_testing.training import make_recipe
from kernelrl_testing.values import make_candidate, make_evaluation, make_turn

BEAM, REFINE, BEST_OF_N, ISLANDS = (
    SearchSettings("beam", PositiveInt(2)),
    SearchSettings("refine"),
    SearchSettings("best_of_n"),
    SearchSettings("islands", islands=PositiveInt(2), parents=PositiveInt(1)),
)


class Recorder:
    def __init__(self, replies: int = 1000) -> None:
        self.recorded: list[Turn] = []
        self._replies = replies

    def require_budget(self) -> None:
        if not self._replies:
            raise BudgetReached("the budget is spent")
        self._replies -= 1

    async def begin(self, purpose: Literal["train", "eval"], where: SampleId) -> None: ...

    async def record(self, purpose: Literal["train", "eval"], turn: Turn) -> None:
        self.recorded.append(turn)


class Search:
    """A search of one task with three rounds of two replies; `shown` has the feedback in the prompt of each reply."""

    def __init__(
        self,
        settings: SearchSettings | None,
        replies: Sequence[str | BaseException],
        *,
        stop: Any = "never",
        finished: Mapping[SampleId, Turn] | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        recipe = make_recipe(
            episode=EpisodeSettings(PositiveInt(3), stop),
            eval=EvalSettings(samples=PositiveInt(2), search=settings),
        )
        self.policy, self.recorder = FakePolicy(replies=replies), recorder or Recorder()
        environment: Any = FakeEnvironment(recipe, tasks=FakeTasks(numbered_tasks(held_out=1)))
        session = Session(environment, self.policy)
        done = finished or {}
        work = rollout_split(session, self.recorder, lambda event: None, update=0, finished=lambda tasks: done)
        self.group: Group = asyncio.run(work)[0]
        self.turns = [turn for episode in self.group.episodes for turn in episode.turns]

    @property
    def shown(self) -> list[list[str]]:
        return [[message.content for message in prompt.messages[1:]] for prompt, _ in self.policy.requests]


def path(number: int, score: float = 0.0, speedup: float | None = None, **fields: Any) -> tuple[Turn, ...]:
    """A path of one turn with a kernel of its own; correct if it has a speedup."""
    outcome = fields.pop("outcome", Outcome.CORRECT if speedup is not None else Outcome.INCORRECT)
    fields.setdefault("extraction", Extraction(make_candidate(f"kernel {number}")))
    evaluation = make_evaluation(outcome, speedup=speedup)
    return (make_turn(outcome, id=SampleId(0, 0, 0, number), evaluation=evaluation, score=Score(score), **fields),)


def test_correct_kernels_come_first_then_speedup_then_score_then_order() -> None:
    found = [path(0, 0.9), path(1, 0.1, 2.0), path(2, 0.1, 3.0), path(3, 0.9), path(4, 0.2, 2.0)]
    wide = SearchSettings("beam", PositiveInt(5))
    assert [one[-1].id.turn for one in best_paths(found, wide)] == [2, 4, 1, 0, 3]


def test_the_speedup_of_a_suspect_counts_as_at_most_one() -> None:
    found = [path(0, speedup=50.0, verdict=Verdict.SUSPECT), path(1, speedup=1.2)]
    assert [one[-1].id.turn for one in best_paths(found, REFINE)] == [1]


def test_of_equal_kernels_the_first_counts() -> None:
    same = Extraction(make_candidate("the same"))
    found = [path(0, speedup=2.0, extraction=same), path(1, speedup=2.0, extraction=same), path(2, speedup=1.0)]
    assert [one[-1].id.turn for one in best_paths(found, BEAM)] == [0, 2]


def test_replies_without_a_kernel_are_continued_only_where_no_reply_has_one() -> None:
    nothing = path(0, 0.5, outcome=Outcome.FORMAT_ERROR, extraction=Extraction(None))
    assert [one[-1].id.turn for one in best_paths([nothing, path(1)], BEAM)] == [1]
    assert [one[-1].id.turn for one in best_paths([nothing], BEAM)] == [0]


def test_lost_replies_are_never_continued() -> None:
    assert best_paths([path(0, outcome=Outcome.INFRA_ERROR)], REFINE) == [()]


def test_best_of_n_samples_first_turns_only() -> None:
    found = Search(BEST_OF_N, ["wrong", "right 1", "wrong", "wrong", "right 2", "wrong"])
    assert found.shown == [[]] * 6
    assert [turn.id for turn in found.turns] == [SampleId(0, 0, 0, number) for number in range(6)]
    assert len({settings.seed for _, settings in found.policy.requests}) == 6


def test_refine_continues_from_the_best_kernel_of_all_rounds() -> None:
    found = Search(REFINE, ["wrong", "right 1", "wrong", "wrong", "right 3", "wrong"])
    assert found.shown == [[], [], *[["turn 1 was correct"]] * 4]


def test_a_path_shows_the_turns_that_led_to_its_kernel() -> None:
    found = Search(REFINE, ["wrong", "right 1", "right 2", "wrong", "wrong", "wrong"])
    led = ["turn 1 was correct", "turn 2 was correct"]
    assert found.shown[4:] == [led, led]


def test_beam_divides_the_replies_between_the_best_kernels() -> None:
    found = Search(BEAM, ["right 1", "right 2", "right 3", "wrong", "wrong", "wrong"])
    assert found.shown[2:4] == [["turn 1 was correct"], ["turn 0 was correct"]]
    assert found.shown[4:] == [["turn 1 was correct", "turn 2 was correct"], ["turn 1 was correct"]]


@pytest.mark.parametrize("settings", [None, BEST_OF_N, REFINE, BEAM, ISLANDS])
def test_every_method_spends_the_same_number_of_replies(settings: SearchSettings | None) -> None:
    found = Search(settings, ["right 2", *["wrong"] * 5])
    assert len(found.policy.requests) == len(found.turns) == len(found.recorder.recorded) == 6
    assert len(found.group.episodes) == (2 if settings is None else 1)


def test_the_search_ends_after_a_round_where_an_episode_would_stop() -> None:
    assert len(Search(BEST_OF_N, ["wrong", "wrong", "right", "wrong"], stop="correct").turns) == 4


def test_an_attempt_names_the_turns_that_it_continues_from() -> None:
    found = Search(REFINE, ["wrong", "right 1", "right 2", "wrong", "wrong", "wrong"])
    assert [turn.parents for turn in found.turns] == [(), (), (1,), (1,), (1, 2), (1, 2)]


def test_turns_outside_of_a_search_name_no_parents() -> None:
    found = Search(None, ["wrong"] * 6)
    assert [turn.parents for turn in found.turns] == [()] * 6


def test_islands_continue_from_their_own_kernels_until_the_best_ones_move() -> None:
    found = Search(ISLANDS, ["right 1", "wrong", "wrong", "wrong", "wrong", "wrong"])
    # After two rounds the best kernel of each of the two islands is in the other one, too.
    assert found.turns[2].parents == (0,)
    assert found.turns[3].parents == (1,)
    assert {turn.parents for turn in found.turns[4:]} <= {(0,), (1,), (2,), (3,)}


def test_the_kernels_of_an_island_are_drawn_by_rank_with_the_most_different_ones() -> None:
    slow = path(0, speedup=1.0, extraction=Extraction(make_candidate("a b c d")))
    fast = path(1, speedup=4.0, extraction=Extraction(make_candidate("a b c e")))
    other = path(2, speedup=2.0, extraction=Extraction(make_candidate("x y z")))
    drawn = [mates([slow, fast, other], 2, random.Random(seed)) for seed in range(200)]
    improved = [turns[-1].id.turn for turns in drawn]
    assert improved.count(1) > improved.count(2) > improved.count(0) > 0
    assert {turns[0].id.turn for turns in drawn if turns[-1].id.turn == 1} == {2}


def test_an_island_without_kernels_begins_anew() -> None:
    assert mates([], 2, random.Random(0)) == ()


def test_an_interrupted_search_samples_the_remaining_replies_only() -> None:
    replies = ["wrong", "right 1", "right 2", "wrong", "wrong", "right 3"]
    whole = Search(BEAM, replies)
    kept = {turn.id: turn for turn in whole.turns[:3]}
    rest = Search(BEAM, replies[3:], finished=kept)
    assert rest.shown == whole.shown[3:]
    assert [turn.id for turn in rest.turns] == [turn.id for turn in whole.turns]
    assert [turn.reply for turn in rest.turns] == [turn.reply for turn in whole.turns]


def test_a_lost_reply_does_not_end_the_search() -> None:
    found = Search(REFINE, ["right 1", InfrastructureError("away"), *["wrong"] * 4])
    assert [turn.masked for turn in found.turns] == [False, True, False, False, False, False]
    assert found.shown[2] == ["turn 0 was correct"]


def test_a_spent_budget_ends_the_search_after_the_turns_in_progress() -> None:
    recorder = Recorder(replies=3)
    with pytest.raises((BudgetReached, BaseExceptionGroup)) as caught:
        Search(REFINE, ["wrong"] * 6, recorder=recorder)
    assert isinstance(first_error(caught.value), BudgetReached)
    assert len(recorder.recorded) == 3


def test_a_failed_retriever_loses_the_episode_and_no_other() -> None:
    class Failing(FakeEnvironment):
        async def examples(self, task: Any, recorded: Turn | None = None) -> Any:
            raise InfrastructureError("the index is gone")

    recipe = make_recipe(eval=EvalSettings(samples=PositiveInt(2), search=REFINE))
    environment: Any = Failing(recipe, tasks=FakeTasks(numbered_tasks(held_out=1)))
    recorder = Recorder()
    session = Session(environment, FakePolicy())
    groups = asyncio.run(rollout_split(session, recorder, lambda event: None, update=0, finished=lambda tasks: {}))
    assert [turn.outcome for turn in recorder.recorded] == [Outcome.INFRA_ERROR]
    assert [turn.masked for episode in groups[0].episodes for turn in episode.turns] == [True]
