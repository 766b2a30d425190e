"""Search: the replies to a task continue from the best kernels found so far.

A search has `episode.turns` rounds of `eval.samples` concurrent replies, as many replies as the independent episodes of
an evaluation have. All of them form one episode. A reply continues from a path: the turns that led to a kernel, which
its prompt shows as earlier turns. A path starts at a first turn, so no prompt has more history than an episode has.

Beam search with test-time feedback: Kevin, arXiv 2507.11948.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

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
from kernelrl_core.rollout.session import Session
from kernelrl_core.types import Episode, SampleId, Task, Turn

__all__ = ["best_paths", "search_rollout"]

Path = tuple[Turn, ...]
"""A turn, after the earlier turns that its prompt showed."""


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

    async def run(index: int, number: int) -> Episode:
        place = EpisodeId("eval", step, index, number)
        first = (finished.get(place.turn(reply)) for reply in range(session.recipe.eval.samples))
        recorded = next((turn for turn in first if turn is not None and not turn.masked), None)
        try:
            examples = await session.environment.examples(tasks[index], recorded)
        except InfrastructureError as error:
            lost = EpisodeRunner(session.environment, tasks[index], place, session.policy)
            return await lose_episode(lost, error, recorder)
        return await _search(session, tasks[index], settings, recorder, place, examples, finished)

    return Rollout(tasks, 1, run, "canonical")


async def _search(
    session: Session,
    task: Task,
    settings: SearchSettings,
    recorder: Recorder,
    place: EpisodeId,
    examples: RetrievedExamples,
    finished: Mapping[SampleId, Turn],
) -> Episode:
    recipe = session.recipe

    async def extended(path: Path, number: int) -> Path | None:
        """A path with reply `number` of the search; None if the path is at its end."""
        if (turn := finished.get(place.turn(number))) is not None:
            return (*path, turn)
        id_ = EpisodeId(place.purpose, place.step, place.task_index, place.episode, number - len(path))
        runner = EpisodeRunner(session.environment, task, id_, session.policy, examples=examples, turns=path)
        request = runner.next_prompt()
        return None if request is None else (*path, await run_turn(runner, request, session.sampler, recorder))

    found: list[Path] = []
    for start in range(0, recipe.episode.turns * recipe.eval.samples, recipe.eval.samples):
        parents = best_paths(found, settings)
        replies = (extended(parents[i % len(parents)], start + i) for i in range(recipe.eval.samples))
        # Turns in progress are finished and recorded also if one of them cannot be: the budget is spent, for example.
        results = await asyncio.gather(*replies, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
            if result is not None:
                found.append(result)
        if any(is_good_enough(path[-1], recipe.episode) for path in found):
            break
    return Episode(tuple(path[-1] for path in found))


def best_paths(found: Sequence[Path], settings: SearchSettings) -> list[Path]:
    """The paths that the next replies continue from, best first; the empty path means a first turn.

    Correct kernels come before others, then speedup, then score, and equal ones in the order of their replies. Of equal
    kernels the first counts. Replies without a kernel are used only where no reply has one, and lost ones never.
    """
    kept = [path for path in found if not path[-1].masked]
    if settings.method == "best_of_n" or not kept:
        return [()]
    ranked = sorted(kept, key=lambda path: _rank(path[-1]), reverse=True)
    kernels: dict[str, Path] = {}
    for path in ranked:
        if (candidate := path[-1].candidate) is not None:
            kernels.setdefault(candidate.sha256, path)
    return list(kernels.values() or ranked)[: settings.width if settings.method == "beam" else 1]


def _rank(turn: Turn) -> tuple[bool, float, float]:
    return turn.correct, counted_speedup(turn) or 0.0, turn.score.total
