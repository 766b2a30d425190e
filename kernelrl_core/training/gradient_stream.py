"""Gradients of a step while the rest of it is still being sampled and judged.

A group's advantages are known when the group is complete. In canonical order gradients of group k are computed when
groups 0 to k are complete, so the sums are those of a step that waits for everything, bit for bit; what must be known
before the last group is complete is said in `streaming_obstacle`. Of several substeps only the first can begin early:
the samples that surely belong to it are those before the k-th part of what is known so far.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import attrs

from kernelrl_core.algorithms.credit import Credit, training_samples
from kernelrl_core.interfaces.policies import PolicyCapabilities
from kernelrl_core.recipe.schema import Recipe
from kernelrl_core.types import Group
from kernelrl_core.types.training import TrainingSample

__all__ = ["GradientStream", "Rollout", "streaming_obstacle"]


def streaming_obstacle(recipe: Recipe, capabilities: PolicyCapabilities) -> str:
    """Why gradients must wait for the last group of a step; empty: they need not."""
    train = recipe.train
    if not train.stream:
        return "train.stream is false"
    if not capabilities.streams:
        return f"policy {recipe.policy.use!r} learns from whole steps alone"
    if train.length_norm == "tokens":
        return "train.length_norm: tokens divides the loss by a number that is known when the last reply is"
    if recipe.episode.stop != "never":
        return "episode.stop lets attempts end early, so the number of samples is known at the end"
    if train.kl:
        return "train.kl is centred over all tokens of the step"
    if train.mismatch is not None:
        return "train.mismatch leaves samples out before they are divided among substeps"
    return ""


@attrs.define(eq=False)
class Rollout:
    """A step that is being sampled and judged."""

    playing: asyncio.Task[list[Group]]
    arrived: asyncio.Queue[tuple[int, Group] | None]
    """Groups as they become complete, with their index; None when there are no more, or something failed."""
    planned: int | None
    """Number of its samples; None where only the end will tell."""

    @classmethod
    def start(
        cls, play: Callable[[Callable[[int, Group], None]], Awaitable[list[Group]]], planned: int | None
    ) -> Rollout:
        """Begin; `play` is given a function that it calls with every complete group."""
        arrived: asyncio.Queue[tuple[int, Group] | None] = asyncio.Queue()

        async def playing() -> list[Group]:
            try:
                return await play(lambda index, group: arrived.put_nowait((index, group)))
            finally:
                arrived.put_nowait(None)

        return cls(asyncio.create_task(playing()), arrived, planned)

    async def cancel(self) -> None:
        """Give up what is under way; what was journalled stays."""
        self.playing.cancel()
        await asyncio.gather(self.playing, return_exceptions=True)


@attrs.define(eq=False)
class GradientStream:
    """Turns complete groups into credits, and hands what can be learnt from already to the policy."""

    credit: Callable[[Group], list[Credit]]
    order: Literal["canonical", "completion"]
    substeps: int
    accumulate: Callable[[tuple[TrainingSample, ...]], Awaitable[None]] | None
    """Computes gradients of the next samples of the first substep; None: nothing before the end."""
    batch: list[Credit] = attrs.field(factory=list, init=False)
    """In the order in which they are learnt from."""
    _samples: list[TrainingSample] = attrs.field(factory=list, init=False)
    accumulated: list[int] = attrs.field(factory=list, init=False)
    """Sizes of the parts whose gradients were computed ahead of the update."""

    @property
    def handed(self) -> int:
        """Samples whose gradients were computed ahead of the update."""
        return sum(self.accumulated)

    async def follow(self, rollout: Rollout) -> list[Group]:
        """Work until the rollout is over; the answer is its groups.

        Raises:
            BaseExceptionGroup: whatever ended the rollout.
        """
        early: dict[int, Group] = {}
        following = 0
        while (item := await rollout.arrived.get()) is not None:
            index, group = item
            early[index if self.order == "canonical" else following] = group
            while following in early:
                await self._take(early.pop(following))
                following += 1
        return await rollout.playing

    async def _take(self, group: Group) -> None:
        credited = self.credit(group)
        self.batch += credited
        self._samples += training_samples(credited)
        sure = -(-len(self._samples) // self.substeps)
        if self.accumulate is not None and sure > self.handed:
            part: Sequence[TrainingSample] = self._samples[self.handed : sure]
            self.accumulated.append(len(part))
            await self.accumulate(tuple(part))
