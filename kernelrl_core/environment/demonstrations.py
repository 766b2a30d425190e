"""Demonstrations for the warm start: those of the task source, with the prompts of training, and those of a file.

Each bundled demonstration gives one example: the prompt of its task and the kernel as a reply. With several turns per
episode, each incorrect demonstration of the training split is also evaluated. It gives examples of a second turn: the
prompt with its feedback, and another demonstration as the reply. So even a model trained from scratch has seen second
turns. Demonstrations of tasks that equal a held-out task are excluded (`train.decontaminate`).
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
from kernelrl_core.tasks.leaks import decontaminated
from kernelrl_core.tasks.selection import held_out_tasks
from kernelrl_core.types import (
    Demonstration,
    Example,
    Message,
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
"""Incorrect demonstrations per task that are also used as second replies, so that training can still improve second
turns."""

_SEED = "00" * 16
"""Input seed (hex) of the evaluations: fixed, so that the demonstrations are reproducible."""


class Demonstrations:
    """The demonstrations of an environment's task source and of its recipe's file; may be empty."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._retrieved: dict[Task, tuple[Example, ...]] = {}

    async def key(self) -> str:
        """SHA-256 (hex) of the demonstrations and of all settings that affect their prompts and replies, including
        retrieved examples.

        Raises:
            KernelRLError: the retriever failed.
        """
        recipe = self._environment.recipe
        described = {
            "version": __version__,
            "answers": [[task.sha256, codec.to_json(one)] for task, one in self._bundled()],
            "prompt": codec.to_json(recipe.prompt),
            "history": codec.to_json(recipe.history),
            "turns": recipe.episode.turns > 1,
            "feedback": [recipe.feedback.use, str(recipe.feedback.options)],
            "messages": [codec.to_json(await self._messages(task)) for task in self._tasks()],
        }
        if recipe.demonstrations.file is not None:
            described["file"] = codec.to_json(read_conversations(recipe.demonstrations.file))
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()

    async def examples(self) -> Sequence[WarmStartExample]:
        """All warm-start examples: first the bundled ones in the order of the task source, then those of the file.

        Raises:
            UsageError: the file cannot be read or has invalid content.
            InfrastructureError: the evaluation of an incorrect demonstration failed.
            KernelRLError: the retriever failed.
        """
        environment = self._environment
        found = [
            WarmStartExample(
                messages=await self._messages(task),
                reply=environment.composer.reply_text(demonstration.source),
                weight=demonstration.weight,
                task_id=task.id,
                outcome=demonstration.outcome,
            )
            for task, demonstration in self._bundled()
        ]
        if environment.recipe.episode.turns > 1:
            training = environment.recipe.train.split
            tasks = [task for task in self._tasks() if task.split == training]
            for later in await asyncio.gather(*(self._second_turns(task) for task in tasks)):
                found.extend(later)
        file = environment.recipe.demonstrations.file
        return found if file is None else [*found, *read_conversations(file)]

    async def _messages(self, task: Task, turns: Sequence[Turn] = ()) -> tuple[Message, ...]:
        """The messages of a turn, with the examples that training would retrieve for it."""
        environment, use = self._environment, self._environment.recipe.retriever
        await asyncio.sleep(0)  # there are thousands of prompts, and an interrupt must not wait for all of them
        if use is None or not use.shows_at(len(turns)):
            return environment.composer.messages(task, turns=turns)
        if task not in self._retrieved:
            self._retrieved[task] = (await environment.examples(task)).examples
        return environment.composer.messages(task, examples=self._retrieved[task], turns=turns)

    def _tasks(self) -> list[Task]:
        return list(dict.fromkeys(task for task, _ in self._bundled()))

    def _bundled(self) -> list[tuple[Task, Demonstration]]:
        source = self._environment.tasks
        if not self._environment.recipe.demonstrations.bundled:
            return []
        recipe = self._environment.recipe
        held_out = held_out_tasks(source, recipe.train, recipe.eval.split)
        found = [(task, one) for split in source.splits() for task in source.tasks(split) for one in self._of(task)]
        tasks, _ = decontaminated(list(dict.fromkeys(task for task, _ in found)), held_out)
        kept = {task.id for task in tasks}
        return [(task, one) for task, one in found if task.id in kept]

    def _of(self, task: Task) -> list[Demonstration]:
        backend = self._environment.recipe.backend.use.rpartition(":")[2]
        return [one for one in self._environment.tasks.demonstrations(task) if one.backend == backend]

    async def _second_turns(self, task: Task) -> list[WarmStartExample]:
        composer = self._environment.composer
        demonstrations = self._of(task)
        correct = [one for one in demonstrations if one.outcome is Outcome.CORRECT]
        incorrect = [one for one in demonstrations if one.outcome is not Outcome.CORRECT]
        found: list[WarmStartExample] = []
        for first in incorrect:
            turn = await self._evaluated(task, first)
            messages = await self._messages(task, turns=(turn,))
            found.extend(
                WarmStartExample(
                    messages, composer.reply_text(second.source), first.weight * second.weight, task.id, second.outcome
                )
                for second in (*correct, *incorrect[:_FAILED_REPAIRS])
            )
        return found

    async def _evaluated(self, task: Task, demonstration: Demonstration) -> Turn:
        environment = self._environment
        text = environment.composer.reply_text(demonstration.source)
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
