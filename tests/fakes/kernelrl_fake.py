"""A plugin for tests of the flow: a policy that learns one number, and an evaluator that reads a word in the reply.

It runs the whole command line in a second, without torch and without executing anything that a policy writes.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from kernelrl_core.api import (
    Component,
    Requires,
    backends,
    checkers,
    evaluators,
    feedback,
    hookimpl,
    loggers,
    policies,
    retrievers,
    rewards,
    tasks,
)
from kernelrl_core.api.backends import BackendFacts, Example, SourceFacts
from kernelrl_core.api.config import MachineFact
from kernelrl_core.api.errors import InfrastructureError, KernelRLError
from kernelrl_core.api.evaluators import BuildStatus, Evaluation, EvaluationRequest, Outcome
from kernelrl_core.api.policies import (
    Message,
    PolicyCapabilities,
    PolicyContext,
    Prompt,
    Reply,
    SamplingSettings,
    Update,
)
from kernelrl_core.api.rewards import RewardBounds, Turn
from kernelrl_core.api.tasks import Task
from kernelrl_testing.waiting import takes_async, wait_until_async

SOURCE = """import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return {answer!r}
"""


@attrs.frozen
class PolicyOptions(policies.PolicyConfig):
    delay_s: float = 0.0
    start_s: float = 0.0
    gate: Path | None = None
    """File with the number of replies that this process may give; the others wait until it is larger or removed."""
    fail: str = ""
    lost: float = 0.0
    losses: tuple[str, ...] = ("importance_sampling", "ppo")
    exports: bool = False

    def capabilities(self) -> PolicyCapabilities:
        return PolicyCapabilities(frozenset(self.losses), deterministic=True, exports=self.exports)


class Policy(policies.TrainablePolicy):
    context_tokens = 100_000
    given = 0
    """Replies of this process."""

    def __init__(self, options: PolicyOptions) -> None:
        self.options, self.weight = options, 0.4
        self.capabilities = options.capabilities()

    async def start(self, context: PolicyContext) -> None:
        await takes_async(self.options.start_s)
        self._fail("start")
        context.say("fake policy started")

    def render(self, messages: Sequence[Message]) -> Prompt:
        text = "".join(message.content for message in messages)
        return Prompt(tuple(messages), tuple(text.encode()[:50]))

    async def sample(self, prompt: Prompt, settings: SamplingSettings) -> Reply:
        await takes_async(self.options.delay_s)
        if self.options.gate is not None:
            await _admitted(self.options.gate)
        self._fail("sample")
        if random.Random(settings.seed + 1).random() < self.options.lost:
            raise InfrastructureError("planted: the endpoint is away", fix="start the endpoint")
        right = random.Random(settings.seed).random() < self.weight
        source = SOURCE.format(answer="right" if right else "wrong")
        return Reply(f"```python\n{source}```", (1, 2), (-0.5, -0.5), "stop")

    async def update(self, update: Update) -> Mapping[str, float]:
        self._fail("update")
        if self.options.fail == "server":
            raise KernelRLError("planted: the server is gone", fix="when it is back: kernelrl resume RUN")
        samples = [sample for substep in update.substeps for sample in substep]
        self.weight += update.optimizer.learning_rate * sum(abs(sample.advantages[0]) for sample in samples) / 3
        return {"weight": self.weight}

    async def save(self, directory: Path) -> Mapping[str, Any]:
        (directory / "weight.json").write_text(json.dumps(self.weight))
        return {"weight": self.weight}

    async def load(self, state: Mapping[str, Any], directory: Path) -> None:
        self.weight = json.loads((directory / "weight.json").read_text())

    async def begin_from(self, state: Mapping[str, Any], directory: Path) -> None:
        await self.load(state, directory)

    async def export(self, directory: Path) -> None:
        if self.options.fail == "export":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        (directory / "exported.json").write_text(json.dumps(self.weight))

    def _fail(self, where: str) -> None:
        if self.options.fail == where:
            raise RuntimeError(f"planted in {where}")


async def _admitted(gate: Path) -> None:
    def is_open() -> bool:
        try:
            return Policy.given < int(gate.read_text() or 0)
        except FileNotFoundError:
            return True

    await wait_until_async(is_open)
    Policy.given += 1


@attrs.frozen
class EvaluatorOptions(evaluators.EvaluatorConfig):
    padding: int = 0
    untimed: bool = False
    capacity: int = 64
    delay_s: float = 0.0
    log: Path | None = None
    """File that gets the hash of every evaluated source."""


class Evaluator(evaluators.Evaluator):
    def __init__(self, options: EvaluatorOptions) -> None:
        self.options, self.capacity = options, options.capacity
        self._evaluated: Counter[str] = Counter()

    def why_untimed(self, backend: str, options: Mapping[str, Any]) -> str:
        return "the fake has no clock" if self.options.untimed else ""

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        await takes_async(self.options.delay_s)
        if self.options.log is not None:
            with self.options.log.open("a") as stream:
                stream.write(f"{request.source_sha256}\n")
        texts = "".join([request.source, *request.package.values()])
        # One number for each evaluation of the source, the last one for all others; 0: the outputs are wrong.
        stated = re.search(r"# speedup ([\d. ]+)", request.source)
        speedups = [float(number) for number in stated[1].split()] if stated is not None else [1.5]
        speedup = speedups[min(self._evaluated[request.source], len(speedups) - 1)]
        self._evaluated[request.source] += 1
        right = re.search("return 'right'", texts) is not None and speedup > 0
        return Evaluation(
            outcome=Outcome.CORRECT if right else Outcome.INCORRECT,
            message="" if right else "the values differ",
            detail="x" * self.options.padding,
            build=BuildStatus.BUILT,
            tests_passed=int(right),
            tests_total=1,
            speedup=speedup if right and not self.options.untimed else None,
            seconds={"run": time.perf_counter() % 1},
        )


@attrs.frozen
class BackendOptions(backends.BackendConfig):
    pending: bool = False

    def found_here(self) -> Sequence[MachineFact]:
        return [MachineFact("headers", "none yet; the first build makes them", "pending")] if self.pending else []


class Backend(backends.Backend):
    example = Example("class Model: …", SOURCE.format(answer="…"))
    facts = BackendFacts("Fake", ("fake",), "Reply with ModelNew.", example)
    runner = "kernelrl_fake:nothing"

    def __init__(self, options: BackendOptions) -> None:
        pass

    def source_facts(self, source: str) -> SourceFacts:
        return SourceFacts()


class Tasks(tasks.TaskSource):
    def splits(self) -> Sequence[str]:
        return ("train", "held_out")

    def tasks(self, split: str) -> Sequence[Task]:
        reference = "class Model: pass\ndef get_inputs(): return []\ndef get_init_inputs(): return []\n# "
        return [Task(f"fake/{split}/{i}", f"{reference}{split} {i}", split, level=1) for i in range(4)]

    def manifest(self) -> Mapping[str, Any]:
        return {"revision": "1"}


@attrs.frozen
class RewardOptions(rewards.RewardConfig):
    of_text: bool = False
    """Score the characters of a reply, so that the replies of an untrained model differ in score."""

    def bounds(self) -> RewardBounds:
        return RewardBounds(0.0, 1.0, 1.0)


class Reward(rewards.Reward):
    def __init__(self, options: RewardOptions) -> None:
        self.options = options

    def score(self, turn: Turn) -> float:
        if self.options.of_text:
            return sum(map(ord, turn.reply.text)) % 100 / 100
        return float(turn.correct)


class Checker(checkers.Checker):
    rules = (checkers.Rule("planted", checkers.Severity.NOTE, "Do nothing."),)

    def check(self, candidate: Any, task: Task, evaluation: Evaluation | None) -> Sequence[checkers.Finding]:
        raise RuntimeError("planted in the checker")


class Feedback(feedback.Feedback):
    def format(self, turn: Turn) -> str:
        return turn.message or "correct"


@attrs.frozen
class RetrieverOptions(retrievers.RetrieverConfig):
    index: Path
    """JSON file: list of examples with `id`, `reference` and `kernel`."""

    def requires(self) -> Requires:
        return Requires(files=(str(self.index),), fix=f"kernelrl index build --backend BACKEND --output {self.index}")


class Retriever(retrievers.Retriever):
    """Yields the examples of a file, those of worse samples last."""

    def __init__(self, options: RetrieverOptions) -> None:
        self.text = options.index.read_text()
        self.worth: dict[str, float] = {}

    def identity(self) -> Mapping[str, Any]:
        return {"sha256": hashlib.sha256(self.text.encode()).hexdigest()}

    def search(self, task: Task, backend: str) -> Iterator[Example]:
        for row in sorted(json.loads(self.text), key=lambda row: -self.worth.get(row["id"], 0.0)):
            yield Example(row["reference"], row["kernel"], row["id"], "fake@1", 0.5, row["id"])

    def observe(self, rows: Sequence[Mapping[str, Any]]) -> None:
        for row in rows:
            for id_ in row.get("examples", ()):
                self.worth[id_] = self.worth.get(id_, 0.0) + row["reward"] - 1.0

    def state(self) -> Mapping[str, Any]:
        return dict(self.worth)

    def restore(self, state: Mapping[str, Any]) -> None:
        self.worth = dict(state)


@attrs.frozen
class LoggerOptions(loggers.LoggerConfig):
    fail: bool = False


class Logger(loggers.Logger):
    def __init__(self, options: LoggerOptions) -> None:
        self.options = options

    def start(self, run_dir: Path, recipe: Mapping[str, Any], first_step: int) -> None:
        self.file = run_dir / "fake.log"
        self._note(f"start {first_step}")

    def turn(self, row: Mapping[str, Any]) -> None:
        self._note(f"turn {row['sample']}")

    def credits(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._note(f"credits {len(rows)}")

    def evaluation(self, results: Mapping[str, Any]) -> None:
        self._note(f"evaluation after {results['step']}")

    def step(self, metrics: Mapping[str, Any]) -> None:
        self._note(f"step {metrics['step']}")

    def finish(self, state: str) -> None:
        self._note(f"finish {state}")

    def _note(self, line: str) -> None:
        if self.options.fail:
            raise RuntimeError("planted in the logger")
        with self.file.open("a") as stream:
            stream.write(line + "\n")


def _one(target: str, config: str = "") -> list[Component]:
    return [Component("fake", f"kernelrl_fake:{target}", config=f"kernelrl_fake:{config}" if config else "")]


@hookimpl
def kernelrl_policies() -> list[Component]:
    return _one("Policy", "PolicyOptions")


@hookimpl
def kernelrl_evaluators() -> list[Component]:
    return _one("Evaluator", "EvaluatorOptions")


@hookimpl
def kernelrl_backends() -> list[Component]:
    return _one("Backend", "BackendOptions")


@hookimpl
def kernelrl_tasks() -> list[Component]:
    return _one("Tasks")


@hookimpl
def kernelrl_rewards() -> list[Component]:
    return _one("Reward", "RewardOptions")


@hookimpl
def kernelrl_checkers() -> list[Component]:
    return _one("Checker")


@hookimpl
def kernelrl_feedback() -> list[Component]:
    return _one("Feedback")


@hookimpl
def kernelrl_retrievers() -> list[Component]:
    return _one("Retriever", "RetrieverOptions")


@hookimpl
def kernelrl_loggers() -> list[Component]:
    return _one("Logger", "LoggerOptions")
