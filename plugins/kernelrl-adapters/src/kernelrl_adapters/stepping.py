"""An episode of the core, driven from outside a turn at a time.

The core's `Player` asks a policy for replies. Here the policy is whoever drives the episode, so prompts, history,
judgement, rewards, feedback and the end of an episode are the core's own, and equal to those of `kernelrl eval`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence

import attrs

from kernelrl_core.api.episodes import Environment, Player, Turn
from kernelrl_core.api.policies import Message, Prompt, Reply, SamplingSettings
from kernelrl_core.api.tasks import Task

__all__ = ["Question", "SteppedEpisode", "estimated_prompt"]


@attrs.frozen
class Question:
    """What the model is to continue, and how the recipe would draw the reply."""

    prompt: Prompt
    settings: SamplingSettings


class SteppedEpisode:
    """One attempt at a task.

    Args:
        render: chat template and tokeniser of whoever samples.
        context_tokens: longest prompt and reply together.
        purpose: `train` or `eval`; keeps the seeds apart.
        place: step, index of the task within it, and attempt: what a reply's seed depends on.
    """

    def __init__(
        self,
        environment: Environment,
        task: Task,
        *,
        render: Callable[[Sequence[Message]], Prompt],
        context_tokens: int,
        purpose: str,
        place: tuple[int, int, int],
    ) -> None:
        self.render, self.context_tokens = render, context_tokens
        self.turns: list[Turn] = []
        """Turns that are over."""
        recipe = environment.recipe
        temperature = recipe.sampling.temperature
        if purpose == "eval" and recipe.eval.temperature is not None:
            temperature = recipe.eval.temperature
        self._player = Player(recipe, self, environment, purpose, temperature, {}, self._record)  # type: ignore[arg-type]
        self._task, self._place = task, place
        self._questions: asyncio.Queue[Question | None] = asyncio.Queue()
        self._reply: asyncio.Future[Reply] | None = None
        self._playing: asyncio.Task[None] | None = None

    async def begin(self) -> Question:
        """The first question.

        Raises:
            UsageError: not even the bare task fits into the context.
        """
        self._playing = asyncio.create_task(self._play())
        question = await self._next()
        assert question is not None, "an episode has a turn"
        return question

    async def answer(self, reply: Reply) -> tuple[Turn, Question | None]:
        """The judged turn that a reply makes, and the next question; None when the episode is over.

        Raises:
            KernelRLError: a plugin failed, or the task cannot be used.
        """
        assert self._reply is not None, "a question comes before its answer"
        self._reply.set_result(reply)
        question = await self._next()
        return self.turns[-1], question

    async def aclose(self) -> None:
        """Leave the episode where it stands. Safe to call twice."""
        if self._playing is not None and not self._playing.done():
            self._playing.cancel()
            await asyncio.wait([self._playing])

    async def sample(self, prompt: Prompt, settings: SamplingSettings) -> Reply:
        """The core's side of a question."""
        self._reply = asyncio.get_running_loop().create_future()
        self._questions.put_nowait(Question(prompt, settings))
        return await self._reply

    async def _play(self) -> None:
        try:
            await self._player.play(*self._place, self._task)
        finally:
            self._questions.put_nowait(None)

    async def _next(self) -> Question | None:
        question = await self._questions.get()
        if question is None and self._playing is not None:
            await self._playing  # raises what ended it
        return question

    async def _record(self, turn: Turn) -> None:
        self.turns.append(turn)


def estimated_prompt(messages: Sequence[Message]) -> Prompt:
    """A prompt for a server that applies its own chat template: a token for 3 bytes, and 4 for each message.

    Ids are not known and stand as -1.
    """
    size = sum(len(message.content.encode("utf-8", "replace")) for message in messages)
    return Prompt(tuple(messages), (-1,) * (math.ceil(size / 3) + 4 * len(messages)))
