"""Demonstrations of a task source, worded exactly as training words its prompts, and those of the recipe's file.

Single-turn: the prompt of a task and one of its answers. With several turns also the prompt after a flawed answer,
with the feedback that this very answer gets from the judge, and a right answer: so a model from scratch has seen a
second turn.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence

import attrs

from kernelrl_core.environment.environment import Environment
from kernelrl_core.prompts.extraction import extract
from kernelrl_core.prompts.sft_file import read_conversations
from kernelrl_core.types import (
    Demonstration,
    Outcome,
    Prompt,
    Reply,
    SampleId,
    Task,
    Turn,
    WarmStartExample,
)
from kernelrl_core.types import serialization as codec
from kernelrl_core.version import __version__

__all__ = ["Demonstrations"]

_FAILED_REPAIRS = 2
"""Flawed answers of a task that also stand as second replies, so that the second turn leaves something to learn."""

_SEED = "00" * 16
"""Input seed of these judgements: fixed, so that the same demonstrations come out every time."""


class Demonstrations:
    """The demonstrations of an environment's task source and of its recipe's file; none where there are none."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def key(self) -> str:
        """Hash of the answers and of everything that words them."""
        recipe = self._environment.recipe
        described = {
            "version": __version__,
            "answers": [[task.sha256, codec.to_json(answer)] for task, answer in self._answers()],
            "prompt": codec.to_json(recipe.prompt),
            "history": codec.to_json(recipe.history),
            "turns": recipe.episode.turns > 1,
            "feedback": [recipe.feedback.use, str(recipe.feedback.options)],
            "messages": [codec.to_json(self._environment.composer.messages(task)) for task in self._tasks()],
        }
        if recipe.demonstrations.file is not None:
            described["file"] = codec.to_json(read_conversations(recipe.demonstrations.file))
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()

    async def examples(self) -> Sequence[WarmStartExample]:
        """All examples, tasks in the order of the source, then those of the file.

        Raises:
            UsageError: the file cannot be used.
        """
        environment = self._environment
        found = [
            WarmStartExample(
                messages=environment.composer.messages(task),
                reply=environment.composer.reply_text(answer.source),
                weight=answer.weight,
                task_id=task.id,
                outcome=answer.outcome,
            )
            for task, answer in self._answers()
        ]
        if environment.recipe.episode.turns > 1:
            training = environment.recipe.train.split
            tasks = [task for task in self._tasks() if task.split == training]
            for later in await asyncio.gather(*(self._second_turns(task) for task in tasks)):
                found.extend(later)
        file = environment.recipe.demonstrations.file
        return found if file is None else [*found, *read_conversations(file)]

    def _tasks(self) -> list[Task]:
        return list(dict.fromkeys(task for task, _ in self._answers()))

    def _answers(self) -> list[tuple[Task, Demonstration]]:
        source = self._environment.tasks
        if not self._environment.recipe.demonstrations.bundled:
            return []
        return [
            (task, answer) for split in source.splits() for task in source.tasks(split) for answer in self._of(task)
        ]

    def _of(self, task: Task) -> list[Demonstration]:
        backend = self._environment.recipe.backend.use.rpartition(":")[2]
        return [answer for answer in self._environment.tasks.demonstrations(task) if answer.backend == backend]

    async def _second_turns(self, task: Task) -> list[WarmStartExample]:
        composer = self._environment.composer
        answers = self._of(task)
        right = [answer for answer in answers if answer.outcome is Outcome.CORRECT]
        flawed = [answer for answer in answers if answer.outcome is not Outcome.CORRECT]
        found: list[WarmStartExample] = []
        for answer in flawed:
            turn = await self._judged(task, answer)
            messages = composer.messages(task, turns=(turn,))
            found.extend(
                WarmStartExample(
                    messages, composer.reply_text(other.source), answer.weight * other.weight, task.id, other.outcome
                )
                for other in (*right, *flawed[:_FAILED_REPAIRS])
            )
        return found

    async def _judged(self, task: Task, answer: Demonstration) -> Turn:
        environment = self._environment
        text = environment.composer.reply_text(answer.source)
        reply = Reply(text, (), (), "stop")
        extraction = extract(
            text, fences=environment.evaluator.backend.facts.fences, backend=environment.recipe.backend.use
        )
        turn = await environment.evaluate_extraction(
            SampleId(0, 0, 0, 0),
            task,
            Prompt((), ()),
            reply,
            extraction,
            seconds={},
            seed=_SEED,
        )
        return attrs.evolve(turn, seconds={})
