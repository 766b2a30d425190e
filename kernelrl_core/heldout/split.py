"""Rolling out a split with a policy as it is, without learning."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from kernelrl_core.recipe.schema import EvalSettings
from kernelrl_core.rollout.episode import Player
from kernelrl_core.rollout.groups import rollout_groups
from kernelrl_core.rollout.session import Session
from kernelrl_core.tasks.selection import eval_tasks
from kernelrl_core.types import Group, Prompt, SampleId, Turn

__all__ = ["rollout_split"]


async def rollout_split(
    session: Session,
    settings: EvalSettings,
    *,
    update: int,
    finished: Mapping[SampleId, Turn],
    record: Callable[[Turn], Awaitable[None]],
    beginning: Callable[[SampleId, Prompt], Awaitable[None]] | None = None,
) -> list[Group]:
    """All attempts at all tasks of a split, at once, after `update` steps of training."""
    player = Player(
        session.recipe,
        session.policy,
        session.environment,
        "eval",
        session.recipe.sampling.temperature if settings.temperature is None else settings.temperature,
        finished,
        record,
        beginning,
        timeline=session.timeline,
        slots=session.slots,
    )
    return await rollout_groups(player, update, eval_tasks(session.environment.tasks, settings), settings.samples)
