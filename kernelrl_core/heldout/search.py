"""Search: the replies to a task continue from the best kernels found so far.

A search has rounds of concurrent replies. In a held-out evaluation there are `episode.turns` rounds of `eval.samples`
replies, as many replies as the independent episodes of an evaluation have. All of them form one episode. A reply
continues from a path: the turns that its prompt shows as earlier turns, the last of which has the kernel to improve.
`refine` and `beam` show the turns that led to a kernel, so no prompt has more history than an episode has. `islands`
shows several kernels that differ.

Beam search with test-time feedback: Kevin, arXiv 2507.11948. Islands, with several earlier programs in the prompt and
the best ones moving between islands: FunSearch, doi 10.1038/s41586-023-06924-6.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from kernelrl_core.environment.retrieval import RetrievedExamples
from kernelrl_core.errors import InfrastructureError
from kernelrl_core.heldout.scoreboard import counted_speedup
from kernelrl_core.recipe.schema import SearchSettings
from kernelrl_core.rollout.episode import (
    EpisodeId,
    EpisodeRunner,
    Recorder,
    is_good_enough,
    lose_episode,
    run_turn,
)
from kernelrl_core.rollout.groups import Rollout
from kernelrl_core.rollout.sampler import SampleRequest
from kernelrl_core.rollout.session import Session
from kernelrl_core.types import Episode, SampleId, Task, Turn
from kernelrl_core.types.seeds import derived_seed

__all__ = ["Path", "Reservations", "Search", "best_paths", "mates", "search_rollout"]

Path = tuple[Turn, ...]
"""A turn, after the earlier turns that its prompt showed."""

_WORD = re.compile(r"\w+")


class Reservations(Protocol):
    """A budget from which every reply takes its part before it is sampled."""

    async def reserve(self, request: SampleRequest) -> None:
        """Wait until the budget suffices for a reply.

        Raises:
            BudgetReached: it does not, even when all replies in progress have ended.
        """

    def settle(self, where: SampleId, turn: Turn | None) -> None:
        """A reply has ended. None: without a turn."""


def search_rollout(
    session: Session,
    tasks: Sequence[Task],
    settings: SearchSettings,
    recorder: Recorder,
    *,
    step: int,
    finished: Mapping[SampleId, Turn],
) -> Rollout:
    """A rollout with one episode per task, its search; not started.

    Args:
        step: number of updates before the evaluation.
        finished: turns of an interrupted evaluation. They are not sampled or evaluated again.
    """
    samples = session.recipe.eval.samples

    async def run(index: int, number: int) -> Episode:
        place = EpisodeId("eval", step, index, number)
        first = (finished.get(place.turn(reply)) for reply in range(samples))
        recorded = next((turn for turn in first if turn is not None and not turn.masked), None)
        try:
            examples = await session.environment.examples(tasks[index], recorded)
        except InfrastructureError as error:
            lost = EpisodeRunner(session.environment, tasks[index], place, session.policy)
            return await lose_episode(lost, error, recorder)
        search = Search(session, tasks[index], settings, recorder, place, examples=examples, finished=finished)
        for _ in range(session.recipe.episode.turns):
            await search.round(samples)
            if any(is_good_enough(turn, session.recipe.episode) for turn in search.turns):
                break
        return Episode(search.turns)

    return Rollout(tasks, 1, run, "canonical")


class Search:
    """The search of one task.

    Args:
        place: episode that all turns of the search form.
        examples: retrieved examples for the prompts.
        finished: turns of an interrupted search. They are not sampled or evaluated again.
        given: turn of a kernel that is given from the start, which is turn 0 of the episode.
        budget: budget of the replies; None: no limit.
    """

    def __init__(
        self,
        session: Session,
        task: Task,
        settings: SearchSettings,
        recorder: Recorder,
        place: EpisodeId,
        *,
        examples: RetrievedExamples = RetrievedExamples(),  # noqa: B008  # frozen
        finished: Mapping[SampleId, Turn],
        given: Turn | None = None,
        budget: Reservations | None = None,
    ) -> None:
        self._session, self._task, self._settings, self._recorder = session, task, settings, recorder
        self._place, self._examples, self._finished, self._budget = place, examples, finished, budget
        self._root: Path = () if given is None else (given,)
        self._found: list[Path] = [self._root] if self._root else []
        self._islands: list[list[Path]] = [[*self._found] for _ in range(settings.islands)]
        self._rounds = 0
        self._next = len(self._found)
        """Number of the next reply."""

    @property
    def turns(self) -> tuple[Turn, ...]:
        """All turns so far, in the order of their numbers."""
        return tuple(path[-1] for path in self._found)

    async def round(self, replies: int) -> list[Turn]:
        """Sample, evaluate and record the replies of the next round; returns their turns.

        If one of them fails, the others are finished and recorded, and belong to the search.

        Raises:
            BudgetReached: the budget is spent.
            StorageError: the run directory cannot be written.
            KernelRLError: a plugin failed, or the task is unusable.
        """
        first = self._next
        paths: dict[int, Path] = {}
        started: list[asyncio.Task[None]] = []
        failure: BaseException | None = None

        async def extend(number: int, runner: EpisodeRunner, request: SampleRequest) -> None:
            turn: Turn | None = None
            try:
                turn = await run_turn(runner, request, self._session.sampler, self._recorder)
                paths[number] = runner.turns
            finally:
                if self._budget is not None:
                    self._budget.settle(request.id, turn)

        try:
            for number, parent in enumerate(self._parents(replies), start=first):
                if (turn := self._finished.get(self._place.turn(number))) is not None:
                    paths[number] = (*parent, turn)
                    continue
                runner = self._runner(parent, number)
                if (request := runner.next_prompt()) is None:
                    continue
                if self._budget is not None:
                    await self._budget.reserve(request)
                started.append(asyncio.create_task(extend(number, runner, request)))
        except Exception as error:  # raised below, after the turns in progress
            failure = error
        except asyncio.CancelledError:
            for task in started:
                task.cancel()
            raise
        # Turns in progress are finished and recorded also if one of them cannot be: the budget is spent, for example.
        results = await asyncio.gather(*started, return_exceptions=True)
        self._add([paths[number] for number in sorted(paths)])
        self._next = first + replies
        for result in (*results, failure):
            if isinstance(result, BaseException):
                raise result
        return [paths[number][-1] for number in sorted(paths)]

    def _runner(self, path: Path, number: int) -> EpisodeRunner:
        place = self._place
        id_ = EpisodeId(place.purpose, place.step, place.task_index, place.episode, number - len(path))
        environment = self._session.environment
        return EpisodeRunner(environment, self._task, id_, self._session.policy, examples=self._examples, turns=path)

    def _parents(self, replies: int) -> list[Path]:
        """The path that each reply of the next round continues from."""
        if self._settings.method != "islands":
            best = best_paths(self._found, self._settings, self._root)
            return [best[i % len(best)] for i in range(replies)]
        return [self._mates(number) for number in range(self._next, self._next + replies)]

    def _mates(self, number: int) -> Path:
        recipe = self._session.recipe
        source = random.Random(derived_seed(recipe.seed, "islands", self._task.sha256, number))
        count = min(self._settings.parents, max(1, recipe.episode.turns - 1))
        return mates(self._islands[self._island(number)], count, source, self._root)

    def _island(self, number: int) -> int:
        return number % self._settings.islands

    def _add(self, paths: Sequence[Path]) -> None:
        """Add the turns of a round to the search and to their islands."""
        self._found += paths
        self._rounds += 1
        for path in paths:
            self._islands[self._island(path[-1].id.turn)].append(path)
        if self._rounds % self._settings.migrate_every == 0:
            best = [_different(members)[:1] for members in self._islands]
            for island, migrants in enumerate(best):
                self._islands[(island + 1) % len(best)] += migrants


def best_paths(found: Sequence[Path], settings: SearchSettings, root: Path = ()) -> list[Path]:
    """The paths that the next replies continue from, best first.

    Correct kernels come before others, then speedup, then score, and equal ones in the order of their replies. Of equal
    kernels the first counts. Replies without a kernel are used only where no reply has one, and lost ones never.

    Args:
        root: path that a reply continues from which continues from no other reply; empty: its turn is a first turn.
    """
    best = _different(found)
    if settings.method == "best_of_n" or not best:
        return [root]
    return best[: settings.width if settings.method == "beam" else 1]


def mates(members: Sequence[Path], count: int, source: random.Random, root: Path = ()) -> Path:
    """The turns of an island that a reply sees, the kernel to improve last; `root` if the island has none.

    That kernel is selected at random: the one of rank r, from 0, has weight 1 / (1 + r). Each further one is the kernel
    that shares the smallest part of its words with the chosen one that is most similar to it.

    Args:
        count: number of kernels, at least 1.
    """
    ranked = _different(members)
    if not ranked:
        return root
    ranks = range(len(ranked))
    words = [set(_WORD.findall(_source(path))) for path in ranked]
    chosen = source.choices(ranks, [1 / (1 + rank) for rank in ranks])
    while len(chosen) < min(count, len(ranked)):
        others = [rank for rank in ranks if rank not in chosen]
        chosen.append(min(others, key=lambda rank: max(_shared(words[rank], words[one]) for one in chosen)))
    return tuple(ranked[rank][-1] for rank in reversed(chosen))


def _different(found: Sequence[Path]) -> list[Path]:
    """The paths with different kernels, best first; those without a kernel if none has one."""
    kept = [path for path in found if not path[-1].masked]
    ranked = sorted(kept, key=lambda path: _rank(path[-1]), reverse=True)
    kernels: dict[str, Path] = {}
    for path in ranked:
        if (candidate := path[-1].candidate) is not None:
            kernels.setdefault(candidate.sha256, path)
    return list(kernels.values() or ranked)


def _rank(turn: Turn) -> tuple[bool, float, float]:
    return turn.correct, counted_speedup(turn) or 0.0, turn.score.total


def _source(path: Path) -> str:
    candidate = path[-1].candidate
    return candidate.source if candidate is not None else path[-1].reply.text


def _shared(words: set[str], others: set[str]) -> float:
    """Share of the words of two texts that both have."""
    return len(words & others) / max(1, len(words | others))
