"""Kernels per second that the local evaluator evaluates in Triton's interpreter, and growth of resources over time.

    python benchmarks/interpreted_checks.py --count 1000 --output benchmarks/results/interpreted_checks.json

The candidates are the correct demonstrations of the starter tasks, each made distinct by a comment, with the default
number of trials. Memory (proportional share), descriptors and processes are those of the whole process tree.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from pathlib import Path
from typing import Any

import psutil
from provenance import provenance

from kernelrl_core.testing.values import make_request
from kernelrl_core.types import EvaluationRequest, Outcome
from kernelrl_plugin_local.config import LocalConfig
from kernelrl_plugin_local.evaluator import LocalEvaluator
from kernelrl_plugin_starter.config import StarterOptions
from kernelrl_plugin_starter.source import StarterTasks
from kernelrl_plugin_triton.kernels import find_kernels


def tree() -> dict[str, float]:
    """Memory, descriptors and processes of this program and its descendants, excluding active runners."""
    root = psutil.Process()
    processes = [root]
    for process in root.children(recursive=True):
        with_name = " ".join(process.cmdline()) if process.is_running() else ""
        if "kernelrl_judge" in with_name and process.parent() is not None:
            processes.append(process)
    memory = descriptors = 0
    for process in processes:
        try:
            memory += process.memory_full_info().pss
            descriptors += process.num_fds()
        except psutil.Error:
            continue
    return {"pss_mib": round(memory / 2**20), "descriptors": descriptors, "processes": len(processes)}


def requests(count: int) -> list[EvaluationRequest]:
    source = StarterTasks(StarterOptions(practice=0))
    pairs = [
        (task, answer.source)
        for task in source.tasks("train")
        for answer in source.demonstrations(task)
        if answer.outcome is Outcome.CORRECT and answer.backend == "triton"
    ]
    made = []
    for number in range(count):
        task, kernel = pairs[number % len(pairs)]
        kernel = f"{kernel}# {number}\n"
        made.append(
            make_request(
                kernel,
                task.reference,
                task_id=task.id,
                backend_options={"mode": "interpreter"},
                seed=f"{number:032x}",
                # Required by probes that disable kernels.
                kernels=tuple(found.name for found in find_kernels(kernel)),
            )
        )
    return made


async def measure(count: int) -> dict[str, Any]:
    evaluator = LocalEvaluator(LocalConfig())
    warm, *work = requests(count + 1)
    await asyncio.gather(*(evaluator.evaluate(warm) for _ in range(evaluator.capacity)))
    states = {"start": tree()}
    seconds: list[float] = []
    outcomes: dict[str, int] = {}

    async def one(request: EvaluationRequest) -> None:
        begin = time.monotonic()
        outcome = (await evaluator.evaluate(request)).outcome.value
        seconds.append(time.monotonic() - begin)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1

    elapsed = 0.0
    for name, part in (("middle", work[: count // 2]), ("end", work[count // 2 :])):
        waiting = iter(part)

        async def worker(waiting: Any = waiting) -> None:
            for request in waiting:
                await one(request)

        begin = time.monotonic()
        await asyncio.gather(*(worker() for _ in range(evaluator.capacity)))
        elapsed += time.monotonic() - begin
        states[name] = tree()
    await evaluator.aclose()
    seconds.sort()
    return {
        "count": count,
        "workers": evaluator.capacity,
        "per_second": round(count / elapsed, 1),
        "seconds_p50": round(seconds[len(seconds) // 2], 4),
        "seconds_p95": round(seconds[int(len(seconds) * 0.95)], 4),
        "outcomes": outcomes,
        "tree": states,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    text = json.dumps({"provenance": provenance("torch", "triton"), **asyncio.run(measure(arguments.count))}, indent=1)
    print(text)
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
