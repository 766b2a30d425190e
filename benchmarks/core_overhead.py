"""CPU time and memory of the core itself, per sample.

    python benchmarks/core_overhead.py --output benchmarks/results/core_overhead.json

The core's training loop processes 10,000 training samples in steps of 8 tasks, 16 episodes and 4 turns: prompts with
history and feedback, extraction, source facts, requests, evaluation cache on disk, scores, credit, journals with all
tokens, metrics. Policy and evaluator return prepared results immediately, so neither their time nor tokenisation is
included. There are no checkers. Tokens and log-probabilities are random for each reply, as if parsed from a server's
response; the cost of that is measured separately and subtracted. The backend's analysis of a kernel's source is part of
the result, and is also measured separately.

CPU time is that of the whole process, all threads, from the end of the second step to the end of the last. Memory is
the resident set: the maximum within a step, for which growth is reported, and the value at the end of steps, which
increases because Python's allocator keeps memory for reuse.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import psutil
from provenance import provenance

from kernelrl_core.algorithms.advantages import grpo
from kernelrl_core.environment.candidate_evaluator import CandidateEvaluator
from kernelrl_core.environment.environment import Environment
from kernelrl_core.environment.evaluation_service import EvaluationService
from kernelrl_core.environment.scoring import WeightedReward
from kernelrl_core.interfaces.evaluators import Evaluator
from kernelrl_core.monitoring.events import Event, StepFinished
from kernelrl_core.planning.load import load_recipe
from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe.evaluation_spec import spec_of
from kernelrl_core.rollout.session import Session
from kernelrl_core.runs.directory import RunDir
from kernelrl_core.types import (
    BuildStatus,
    Evaluation,
    EvaluationRequest,
    Message,
    Outcome,
    Prompt,
    Reply,
)
from kernelrl_core.types.training import Loss, LossSample, SamplingSettings, Update
from kernelrl_testing.fakes import FakePolicy
from kernelrl_testing.training import train_session

RUNS = ((10_000, 1000), (10_000, 4096), (10_000, 16_384))
"""Number of samples and tokens per reply; each pair is measured in a separate process."""
PROMPT_TOKENS = 2000
TARGET_MS, TARGET_MIB = 5.0, 100.0

RECIPE = {
    "tasks": {"use": "starter"},
    "backend": {"use": "triton"},
    "policy": {"use": "scripted", "replies": [{"reply": "not used"}]},
    "rewards": {"correct": {"use": "correctness"}, "compile": {"use": "compile", "weight": 0.1}},
    "evaluation": {"timing": False},
    "episode": {"turns": 4},
    "returns": {"gamma": 0.4},
    "feedback": {"use": "structured"},
    "forbid": [],
    "train": {"tasks_per_step": 8, "group_size": 16, "length_norm": 4096, "checkpoint_every": 4},
}


class Policy(FakePolicy):
    """Returns the correct kernel of a starter task, made distinct by a comment."""

    context_tokens = 1_000_000

    def __init__(self, kernel: str, reply_tokens: int) -> None:
        super().__init__()
        self._kernel, self._reply_tokens = kernel, reply_tokens
        self._prompt = tuple(range(1000, 1000 + PROMPT_TOKENS))

    def render(self, messages: Sequence[Message]) -> Prompt:
        return Prompt(tuple(messages), self._prompt)

    async def sample(self, prompt: Prompt, settings: SamplingSettings) -> Reply:
        tokens, logprobs = drawn(settings.seed, self._reply_tokens)
        return Reply(f"```python\n{self._kernel}# {settings.seed}\n```", tokens, logprobs, "stop")

    # Nothing is kept of a step: memory is measured.

    async def backward(self, samples: Sequence[LossSample], loss: Loss) -> None: ...

    async def update(self, update: Update) -> Mapping[str, float]:
        return {"loss": 0.0}


def drawn(seed: int, n: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Random tokens and log-probabilities of a reply, with the digits of float32 values in JSON."""
    numbers = random.Random(seed)
    tokens = tuple(numbers.choices(range(150_000), k=n))
    return tokens, tuple(round(-x, 9) for x in map(float, numbers.choices(LOGPROBS, k=n)))


LOGPROBS = [round(random.Random(index).expovariate(2.0), 9) for index in range(50_000)]


class StandInEvaluator(Evaluator):
    capacity = 64

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        right = int(request.source_sha256, 16) % 2 == 0
        return Evaluation(
            Outcome.CORRECT if right else Outcome.INCORRECT,
            message="" if right else "The output differs from the reference: 12 of 100 elements, at most by 0.3.",
            build=BuildStatus.BUILT,
            tests_passed=5 if right else 0,
            tests_total=5,
            seconds={"build": 1.0, "run": 0.5},
            provenance={"device": "cpu", "versions": {"torch": "2", "triton": "3"}},
        )


class Meter:
    """An observer that reads clock and memory at the end of each step."""

    def __init__(self) -> None:
        self.steps: list[tuple[float, float, float, float]] = []
        """Per step: CPU seconds so far, MiB at the end, maximum MiB, number of samples."""

    def handle(self, event: Event) -> None:
        if isinstance(event, StepFinished):
            memory, samples = psutil.Process().memory_info().rss / 2**20, event.metrics["batch/total_steps"]
            self.steps.append((time.process_time(), memory, self._highest_mib(), samples))

    @staticmethod
    def _highest_mib() -> float:
        """Maximum resident memory since the last call."""
        status = Path("/proc/self/status").read_text()
        Path("/proc/self/clear_refs").write_text("5")
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 2**10


async def play(samples: int, reply_tokens: int, folder: Path) -> dict[str, Any]:
    path = folder / "recipe.yaml"
    path.write_text(json.dumps(RECIPE))
    recipe = load_recipe(str(path), registry=registry()).recipe
    per_step = recipe.train.tasks_per_step * recipe.train.group_size * recipe.episode.turns
    recipe = attrs.evolve(recipe, train=attrs.evolve(recipe.train, steps=-(-samples // per_step) + 1))
    source = registry().make("tasks", recipe.tasks)
    backend = registry().make("backends", recipe.backend)
    environment = Environment(
        recipe,
        evaluator=CandidateEvaluator(
            spec_of(recipe),
            backend=backend,
            checkers={},
            service=EvaluationService(StandInEvaluator(), cache_dir=folder / "verdicts"),
            secret=b"secret" * 6,
        ),
        tasks=source,
        rewards=[
            WeightedReward(name, use.weight, registry().make("rewards", use), use.options.bounds(), name)
            for name, use in recipe.rewards.items()
        ],
        feedback=registry().make("feedback", recipe.feedback),
        retriever=None,
    )
    kernel = next(
        answer.source
        for answer in source.demonstrations(source.tasks("train")[0])
        if answer.outcome is Outcome.CORRECT and answer.backend == "triton"
    )
    policy, meter = Policy(kernel, reply_tokens), Meter()
    run = RunDir.create(folder / "run", {}, {})
    try:
        await train_session(run, Session(environment, policy), grpo, meter)
    finally:
        await environment.aclose()
    (begin_cpu, begin_mib, begin_highest, _), (end_cpu, end_mib, *_) = meter.steps[1], meter.steps[-1]
    highest = max(step_highest for _, _, step_highest, _ in meter.steps[2:])
    n = sum(size for *_, size in meter.steps[2:])
    begin = time.process_time()
    for seed in range(100):
        drawn(seed, reply_tokens)
    stand_in_ms = (time.process_time() - begin) * 10
    begin = time.process_time()
    for seed in range(100):
        backend.source_facts(f"{kernel}# {seed}\n")
    facts_ms = (time.process_time() - begin) * 10
    return {
        "samples": n,
        "reply_tokens": reply_tokens,
        "prompt_tokens": PROMPT_TOKENS,
        "cpu_ms_per_sample": round((end_cpu - begin_cpu) / n * 1e3 - stand_in_ms, 2),
        "of_it_source_facts_of_the_backend_ms": round(facts_ms, 2),
        "stand_in_ms_per_sample": round(stand_in_ms, 2),
        "memory_mib": {
            "highest_in_step_2": round(begin_highest),
            "highest_in_a_later_step": round(highest),
            "after_step_2": round(begin_mib),
            "after_the_last": round(end_mib),
        },
        "memory_growth_mib": round(highest - begin_highest, 1),
        "journal_mib": round(run.journal_path("samples").stat().st_size / 2**20),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", type=int, nargs=2, metavar=("SAMPLES", "TOKENS"), help="make one measurement only")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    if arguments.one:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(asyncio.run(play(*arguments.one, Path(folder)))))
        return
    measured = []
    for samples, tokens in RUNS:
        command = [sys.executable, __file__, "--one", str(samples), str(tokens)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        measured.append(json.loads(done.stdout.splitlines()[-1]))
    result = {
        "provenance": provenance("attrs", "cattrs"),
        "targets": {"cpu_ms_per_sample": TARGET_MS, "memory_growth_mib": TARGET_MIB},
        "runs": measured,
    }
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.output:
        arguments.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
