"""Cost of the bundled loggers in a step of 1,000 samples, measured alone.

    python benchmarks/loggers.py --output benchmarks/results/loggers.json

Publishes steps to the loggers `tensorboard`, `wandb` (offline) and `trackio`, one a second: 1,000 turns, 1,000 credit
rows, and a metrics row as a run computes it, with held-out metrics and with histograms in every step. For each step:

- hold: time that the event loop spends in `LoggerThreads.handle`, all calls together.
- gap: longest time between two later passes of an event loop that only sleeps for 0.5 ms, again and again. It includes
  the time for which the threads of the loggers have the interpreter: compare with `none`.
- core: processor time of the loggers' threads, of the processes of W&B, and of `handle`, until the next step.

The first step loads modules, and is reported apart. On a machine with other work, start it with `chrt -f 10`: other
processes then do not run in place of the measured ones. Target: hold at most 2 ms, core at most 60 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from provenance import provenance

from kernelrl_core.algorithms.credit import Credit
from kernelrl_core.api.loggers import Logger
from kernelrl_core.monitoring.events import StepFinished, TurnFinished
from kernelrl_core.monitoring.loggers import LoggerThreads
from kernelrl_core.monitoring.metrics import step_metrics, time_metrics
from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe.schema import Use
from kernelrl_core.runs.rows import sample_row
from kernelrl_core.types import Episode, Evaluation, Group, Outcome, SampleId, Score, Task
from kernelrl_testing.values import make_turn

SAMPLES, GROUP = 1000, 10
STEP_S, START_S, PASS_S = 1.0, 10.0, 0.0005
TARGET_HOLD_MS, TARGET_CORE_MS = 2.0, 60.0
LOGGERS: dict[str, dict[str, Any]] = {
    "tensorboard": {"histograms_every": 1},
    "wandb": {"project": "benchmark", "mode": "offline"},
    "trackio": {"project": "benchmark"},
}


def step_events(step: int) -> tuple[list[TurnFinished], StepFinished]:
    numbers = random.Random(step)
    groups, credits_ = [], []
    for index in range(SAMPLES // GROUP):
        task = Task(f"task/{index}", "", level=1 + index % 3)
        turns = []
        for attempt in range(GROUP):
            outcome = numbers.choice(list(Outcome)[:-1])
            speedup = numbers.lognormvariate(0.0, 0.5) if outcome is Outcome.CORRECT else None
            turns.append(
                make_turn(
                    outcome,
                    id=SampleId(step, index, attempt, 0),
                    task=task,
                    evaluation=Evaluation(outcome, speedup=speedup),
                    score=Score(numbers.random(), {"correct": 0.5, "speed": 0.25, "format": 0.1}),
                    seconds={"sample": numbers.random(), "evaluate": numbers.random()},
                )
            )
        groups.append(Group(task, tuple(Episode((turn,)) for turn in turns)))
        credits_ += [Credit(turn, numbers.random(), numbers.gauss(0.0, 1.0)) for turn in turns]
    row = step_metrics(step, 100, groups, credits_, 1e-5) | time_metrics(groups)
    row |= {f"time/in_{kind}": numbers.random() for kind in ("sampling", "evaluating", "training", "core")}
    row |= {f"eval/{name}": numbers.random() for name in ("pass@1", "fast_1", "fast_2", "correct_rate", "compile_rate")}
    turns_ = [TurnFinished(turn, "train", sample_row(turn)) for group in groups for turn in group.turns]
    return turns_, StepFinished(row, [credit.row() for credit in credits_], 100)


async def measure(steps: int, names: tuple[str, ...], folder: Path) -> dict[str, list[float]]:
    """The figures of each step."""
    folder.mkdir()
    threads = LoggerThreads({name: make(name) for name in names})
    threads.start(folder, {"train": {"steps": steps}}, 0, lambda step: ())
    await asyncio.sleep(START_S)
    figures: dict[str, list[float]] = {"hold_ms": [], "gap_ms": [], "core_ms": []}
    events = [step_events(step) for step in range(steps)]
    gc.collect()
    gc.freeze()  # a run keeps no earlier steps
    for turns, finished in events:
        begin, began = core_seconds(), time.perf_counter()
        for turn in turns:
            threads.handle(turn)
        threads.handle(finished)
        last = time.perf_counter()
        hold, gap, until = last - began, 0.0, last + STEP_S
        while last < until:
            await asyncio.sleep(PASS_S)
            now = time.perf_counter()
            gap, last = max(gap, now - last), now
        figures["hold_ms"].append(hold * 1e3)
        figures["gap_ms"].append(gap * 1e3)
        figures["core_ms"].append((core_seconds() - begin + hold) * 1e3)
    await asyncio.to_thread(threads.finish, "finished")
    return figures


def make(name: str) -> Logger:
    return registry().make("loggers", Use(name, registry().config_class("loggers", name)(**LOGGERS[name])))


def core_seconds() -> float:
    """Processor time so far of the other threads of this process, and of its child processes."""
    children = [child.cpu_times() for child in psutil.Process().children(recursive=True)]
    return time.process_time() - time.thread_time() + sum(times.user + times.system for times in children)


def summary(figures: list[float]) -> dict[str, float]:
    later = sorted(figures[1:])
    return {
        "median": round(statistics.median(later), 2),
        "p90": round(later[int(0.9 * len(later))], 2),
        "max": round(later[-1], 2),
        "first": round(figures[0], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--output", type=Path, help="JSON file for the result")
    given = parser.parse_args()
    found: dict[str, Any] = {"provenance": provenance("tensorboard", "wandb", "trackio"), "samples": SAMPLES}
    found |= {"metrics": len(step_events(0)[1].metrics), "steps": given.steps, "seconds_per_step": STEP_S}
    with tempfile.TemporaryDirectory() as folder:
        # Read when Trackio is imported.
        os.environ["TRACKIO_DIR"] = f"{folder}/trackio"
        choices = {"none": (), **{name: (name,) for name in LOGGERS}, "together": tuple(LOGGERS)}
        for label, names in choices.items():
            figures = asyncio.run(measure(given.steps, names, Path(folder) / label))
            found[label] = {name: summary(values) for name, values in figures.items()}
            print(label, json.dumps(found[label]), file=sys.stderr)
    together = found["together"]
    found["targets"] = {
        "hold_ms": {"target": TARGET_HOLD_MS, "met": together["hold_ms"]["max"] <= TARGET_HOLD_MS},
        "core_ms": {"target": TARGET_CORE_MS, "met": together["core_ms"]["max"] <= TARGET_CORE_MS},
    }
    text = json.dumps(found, indent=1) + "\n"
    if given.output is not None:
        given.output.write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
