"""Kernels per second that the local evaluator evaluates in Triton's interpreter, and growth of resources over time.

    python benchmarks/interpreted_checks.py --count 1000 --output benchmarks/results/interpreted_checks.json

The candidates are the correct demonstrations of the starter tasks, each made distinct by a comment, with the default
number of trials. Memory (proportional share), descriptors and processes are those of the whole process tree.

For comparison the same kernels are called five times each in a fork of a process that has loaded torch and Triton and
launched a kernel: no judge, no reference, no comparison. Core-seconds are those of the whole machine, which has to be
idle.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from provenance import provenance

from kernelrl_core.types import EvaluationRequest, Outcome
from kernelrl_plugin_local.config import LocalConfig
from kernelrl_plugin_local.evaluator import LocalEvaluator
from kernelrl_plugin_starter.config import StarterOptions
from kernelrl_plugin_starter.source import StarterTasks
from kernelrl_plugin_triton.kernels import find_kernels
from kernelrl_testing.values import make_request


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


BARE_FORKS = """
import json, os, sys
import torch, triton
torch.set_num_threads(1)

def run(task, kernel):
    scope = {"__name__": "candidate"}
    path = f"{os.getpid()}.py"
    with open(path, "w") as file:
        file.write(kernel)
    given, found = dict(scope), dict(scope)
    exec(compile(task, "task.py", "exec"), given)
    import importlib.util
    spec = importlib.util.spec_from_file_location("candidate", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.ModelNew(*given["get_init_inputs"]())
    with torch.no_grad():
        for _ in range(5):
            model(*given["get_inputs"]())

pairs = json.load(open(sys.argv[1]))
run(*pairs[0])
print("ready", flush=True)
sys.stdin.readline()
running = 0
for pair in pairs:
    if running == 2:
        os.wait()
        running -= 1
    if os.fork() == 0:
        run(*pair)
        os._exit(0)
    running += 1
while running:
    os.wait()
    running -= 1
"""
"""Two forks at a time call kernels in Triton's interpreter, as it is installed."""


def busy_s() -> float:
    """Core-seconds that this machine has computed."""
    times = psutil.cpu_times()
    return float(times.user + times.system + times.nice)


def measure_bare_forks(count: int) -> dict[str, float]:
    """Core-seconds of bare forks that call the same kernels five times each."""
    with tempfile.TemporaryDirectory() as folder:
        pairs = Path(folder) / "pairs.json"
        pairs.write_text(json.dumps([(each.task_source, each.source) for each in requests(count)]))
        environment = {**os.environ, "TRITON_INTERPRET": "1"}
        command = [sys.executable, "-c", BARE_FORKS, str(pairs)]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, cwd=folder, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdout.readline()
            before, begin = busy_s(), time.monotonic()
            process.stdin.write("go\n")
            process.stdin.close()
            if process.wait() != 0:
                raise RuntimeError("a bare fork failed")
            elapsed, spent = time.monotonic() - begin, busy_s() - before
    return {"per_second": round(count / elapsed, 1), "core_seconds_each": round(spent / count, 4)}


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

    elapsed, before = 0.0, busy_s()
    for name, part in (("middle", work[: count // 2]), ("end", work[count // 2 :])):
        waiting = iter(part)

        async def worker(waiting: Any = waiting) -> None:
            for request in waiting:
                await one(request)

        begin = time.monotonic()
        await asyncio.gather(*(worker() for _ in range(evaluator.capacity)))
        elapsed += time.monotonic() - begin
        states[name] = tree()
    spent = (busy_s() - before) / count
    await evaluator.aclose()
    bare = measure_bare_forks(count)
    seconds.sort()
    return {
        "count": count,
        "workers": evaluator.capacity,
        "per_second": round(count / elapsed, 1),
        "core_seconds_each": round(spent, 4),
        "bare_forks": bare,
        "ratio_of_core_seconds": round(spent / bare["core_seconds_each"], 2),
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
