"""Evaluations per minute on the GPUs that `CUDA_VISIBLE_DEVICES` names, and how long each step of an evaluation takes.

    python benchmarks/corpora/maps.py KERNELS.jsonl --backend cuda --count 400
    CUDA_VISIBLE_DEVICES=… python benchmarks/evaluator_scaling.py KERNELS.jsonl --backend cuda [--alone 4] --output FILE

No two kernels share a build. Every judge has evaluated one candidate before the measurement. `--alone` further kernels
follow one at a time. A step is `at_a_time` in so many candidates on average. `per_minute_middle` is without the
first and the last tenth, in which lanes are empty. FILE gets a further part: the number of GPUs, the rate, outcomes,
run times, steps, and the use of the GPUs (`nvidia-smi`) and of the cores. `staged_judge.py` measures in the judges.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import statistics
import subprocess
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

from provenance import provenance

from kernelrl_core.types import EvaluationRequest, EvaluationSettings
from kernelrl_judge.client.builds import Builds
from kernelrl_judge.client.worker import JudgeWorker
from kernelrl_plugin_local.config import LocalConfig
from kernelrl_plugin_local.evaluator import LocalEvaluator
from kernelrl_testing.values import make_request

JUDGE_PROGRAM = ("-m", "kernelrl_judge.judge.main")
STAGED_JUDGE = Path(__file__).with_name("staged_judge.py")
SETTINGS = EvaluationSettings(timing=True, trials=5, timeout_s=60, build_timeout_s=240, build_memory_mib=16384)


class Usage:
    """Use of the visible GPUs and of the cores while the `with` block lasts."""

    def __enter__(self) -> Usage:
        given = os.environ.get("CUDA_VISIBLE_DEVICES")
        chosen = ["-i", given] if given else []
        query = ["--query-gpu=index,utilization.gpu,memory.used", "--format=csv,noheader,nounits", "-lms", "500"]
        self._process = subprocess.Popen(["nvidia-smi", *chosen, *query], stdout=subprocess.PIPE, text=True)
        self._samples: dict[str, list[tuple[float, float]]] = {}
        threading.Thread(target=self._read, daemon=True).start()
        self._before = _processor_times()
        return self

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            index, *numbers = (part.strip() for part in line.split(","))
            if len(numbers) == 2 and all(number.isdigit() for number in numbers):
                self._samples.setdefault(index, []).append((float(numbers[0]), float(numbers[1])))

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        busy, total = (after - before for before, after in zip(self._before, _processor_times(), strict=True))
        self._busy_share = busy / max(1, total)

    @property
    def n_gpus(self) -> int:
        return len(self._samples)

    def facts(self) -> dict[str, Any]:
        return {
            "busy_cores": round(self._busy_share * (os.cpu_count() or 1), 1),
            "gpus_busy": {
                index: {
                    "utilisation": round(statistics.mean(use for use, _ in rows) / 100, 3),
                    "most_memory_mib": max(memory for _, memory in rows),
                }
                for index, rows in sorted(self._samples.items())
            },
        }


def _processor_times() -> tuple[int, int]:
    """Busy and whole time of all cores, in ticks."""
    values = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(values) - values[3] - values[4], sum(values)


class Steps:
    """When each request reached the steps in this process, by the hash of its source. Use as a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._times: dict[str, dict[str, float]] = {}
        self._patches: list[Any] = []

    def __enter__(self) -> Steps:
        start, compile_, evaluate = asyncio.create_subprocess_exec, Builds.compile, JudgeWorker.evaluate

        async def start_staged(program: str, *arguments: str, **options: Any) -> asyncio.subprocess.Process:
            if arguments[1:3] == JUDGE_PROGRAM:
                arguments = (arguments[0], str(STAGED_JUDGE), str(self._folder), *arguments[3:])
            return await start(program, *arguments, **options)

        async def compiled(builds: Builds, request: EvaluationRequest, *arguments: Any) -> list[str]:
            self._note(request, "asked")
            found = await compile_(builds, request, *arguments)
            self._note(request, "built")
            return found

        async def evaluated(judge: JudgeWorker, request: EvaluationRequest, *arguments: Any, **named: Any) -> Any:
            self._note(request, "has a lane")
            found = await evaluate(judge, request, *arguments, **named)
            self._note(request, "replied")
            return found

        self._patches = [
            mock.patch.object(asyncio, "create_subprocess_exec", start_staged),
            mock.patch.object(Builds, "compile", compiled),
            mock.patch.object(JudgeWorker, "evaluate", evaluated),
        ]
        for patch in self._patches:
            patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        for patch in self._patches:
            patch.stop()

    def _note(self, request: EvaluationRequest, step: str) -> None:
        self._times.setdefault(request.source_sha256, {})[step] = time.monotonic()

    def summary(self, sources: set[str], wall_s: float) -> dict[str, dict[str, float]]:
        """Seconds of each step over the requests with these sources."""
        seconds: dict[str, list[float]] = {}
        for path in self._folder.glob("*.jsonl"):
            for line in path.read_text().splitlines():
                row = json.loads(line)
                if row["source"] not in sources:
                    continue
                times = self._times[row["source"]]
                of_main = {
                    "build, with its queue": times["built"] - times["asked"],
                    "wait for a lane": times["has a lane"] - times["built"],
                    "judge": row["ended"] - row["began"],
                    "whole": times["replied"] - times["asked"],
                }
                for step, value in {**of_main, **row["steps"]}.items():
                    seconds.setdefault(step, []).append(value)
        return {
            step: {
                "mean_s": round(statistics.mean(values), 3),
                "median_s": round(statistics.median(values), 3),
                "at_a_time": round(sum(values) / wall_s, 2),
            }
            for step, values in seconds.items()
        }


def request(row: dict[str, str], backend: str) -> EvaluationRequest:
    return make_request(row["kernel"], row["task"], backend, settings=SETTINGS, seed="7" * 32)


async def measured(rows: list[dict[str, str]], alone: list[dict[str, str]], backend: str) -> dict[str, Any]:
    example = importlib.import_module(f"kernelrl_plugin_{backend}.examples").ONE_SHOT
    evaluator = LocalEvaluator(LocalConfig())
    judged: list[dict[str, Any]] = []

    async def judge(row: dict[str, str]) -> float:
        """Seconds from the request to the reply."""
        asked = request(row, backend)
        begin = time.perf_counter()
        try:
            found = await evaluator.evaluate(asked)
        except Exception as error:
            judged.append({"name": row["name"], "outcome": "none", "error": f"{type(error).__name__}: {error}"[:200]})
        else:
            runtime_us = found.runtime.median_us if found.runtime is not None else None
            judged.append({"name": row["name"], "outcome": found.outcome.value, "runtime_us": runtime_us})
        judged[-1]["done_s"] = round(time.perf_counter() - started, 3)
        return time.perf_counter() - begin

    with tempfile.TemporaryDirectory() as folder, Steps(Path(folder)) as steps:
        try:
            first = {"name": "first", "kernel": example.kernel, "task": example.reference}
            started = time.perf_counter()
            await asyncio.gather(*(judge(first) for _ in range(evaluator.on_gpu.size)))
            prepared_s = time.perf_counter() - started
            judged.clear()
            slots = asyncio.Semaphore(evaluator.capacity)

            async def queued(row: dict[str, str]) -> None:
                async with slots:
                    await judge(row)

            started, own_s = time.perf_counter(), time.process_time()
            with Usage() as usage:
                await asyncio.gather(*map(queued, rows))
                wall_s = time.perf_counter() - started
            own_s = time.process_time() - own_s
            done_s = sorted(row["done_s"] for row in judged)
            middle = done_s[len(done_s) // 10 : len(done_s) - len(done_s) // 10]
            latencies_s = [await judge(row) for row in alone]
        finally:
            await evaluator.aclose()
        sources = {request(row, backend).source_sha256 for row in rows}
        sources_alone = {request(row, backend).source_sha256 for row in alone}
        return {
            "backend": backend,
            "gpus": usage.n_gpus,
            "kernels": len(rows),
            "wall_s": round(wall_s, 2),
            "per_minute": round(60 * len(rows) / wall_s, 1),
            "per_minute_middle": round(60 * (len(middle) - 1) / (middle[-1] - middle[0]), 1),
            "outcomes": dict(Counter(row["outcome"] for row in judged)),
            "prepared_s": round(prepared_s, 1),
            "main_process_share_of_a_core": round(own_s / wall_s, 3),
            **usage.facts(),
            "steps": steps.summary(sources, wall_s),
            "alone_s": [round(value, 3) for value in latencies_s],
            "steps_alone": steps.summary(sources_alone, max(1e-9, sum(latencies_s))),
            "rows": judged,
        }


def gpu_name() -> str:
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0].strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", type=Path)
    parser.add_argument("--backend", choices=("cuda", "triton"), required=True)
    parser.add_argument("--alone", type=int, default=0)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    document: dict[str, Any] = {"provenance": provenance("torch", "triton"), "gpu": gpu_name(), "parts": []}
    if given.output.exists():
        document["parts"] = json.loads(given.output.read_text())["parts"]
    rows = [json.loads(line) for line in given.kernels.read_text().splitlines()]
    count = len(rows) - given.alone
    part = asyncio.run(measured(rows[:count], rows[count:], given.backend))
    document["parts"].append(part)
    given.output.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps({name: value for name, value in part.items() if name not in ("rows", "steps", "steps_alone")}))
    for step, found in part["steps"].items():
        print(f"  {step:42}{found['mean_s']:9.3f} s{found['at_a_time']:9.2f} at a time")


if __name__ == "__main__":
    main()
