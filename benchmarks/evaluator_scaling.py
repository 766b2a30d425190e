"""Evaluations per minute on one, two and more GPUs of a machine, and how long each step of an evaluation takes.

    python benchmarks/evaluator_scaling.py --backend triton --gpus 1 2 4 --count 400 --output FILE.json
    python benchmarks/evaluator_scaling.py --backend cuda --gpus 1 --alone 4 --output FILE.json
    python benchmarks/evaluator_scaling.py --backend triton --gpus 2 --busy --count 60 --output FILE.json

A part evaluates kernels of `corpora/maps.py`, of which no two share a build, on so many GPUs (0: the CPU), with caches
of its own. PyTorch's headers are precompiled before, and every judge has evaluated one candidate. `--alone` further
kernels come first, one at a time. `--busy` lets another program hold nearly all memory of the first GPU. A call
continues with the parts that are missing in FILE; a part that was cut off begins anew. No part begins after
`--budget-s`. A part is cut off `--part-s` after the start of its first kernel.

A step is `at_a_time` in so many candidates on average. `per_minute_middle` is without the first and the last tenth, in
which lanes are empty. Run times are compared with those of the same kernels on one GPU. `staged_judge.py` measures in
the judges.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import logging
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from corpora.maps import numbered
from provenance import machine
from rows import Row, Rows

JUDGE_PROGRAM = ("-m", "kernelrl_judge.judge.main")
STAGED_JUDGE = Path(__file__).with_name("staged_judge.py")
BUSY_SHARE = 0.9
LEAST_PART_S = 30.0
"""Remaining time of the budget in which a part is started."""
HOLDER = """
import sys, time, torch
held = torch.empty(int(float(sys.argv[1]) * torch.cuda.mem_get_info()[0]), dtype=torch.uint8, device="cuda")
print("held", flush=True)
time.sleep(3600)
"""


# --- one part, in a process of its own ------------------------------------------------------------------------------


class Usage:
    """Use of the visible GPUs and of the cores while the `with` block lasts."""

    def __enter__(self) -> Usage:
        self._samples: dict[str, list[tuple[float, float]]] = {}
        self._process: subprocess.Popen[str] | None = None
        given = os.environ.get("CUDA_VISIBLE_DEVICES")
        if given:
            query = ["--query-gpu=index,utilization.gpu,memory.used", "--format=csv,noheader,nounits", "-lms", "500"]
            self._process = subprocess.Popen(["nvidia-smi", "-i", given, *query], stdout=subprocess.PIPE, text=True)
            threading.Thread(target=self._read, args=(self._process,), daemon=True).start()
        self._before = _processor_times()
        return self

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            index, *numbers = (part.strip() for part in line.split(","))
            if len(numbers) == 2 and all(number.isdigit() for number in numbers):
                self._samples.setdefault(index, []).append((float(numbers[0]), float(numbers[1])))

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
        busy, total = (after - before for before, after in zip(self._before, _processor_times(), strict=True))
        self._busy_share = busy / max(1, total)

    def facts(self) -> Row:
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
        from kernelrl_judge.client.builds import Builds
        from kernelrl_judge.client.worker import JudgeWorker

        start, compile_, evaluate = asyncio.create_subprocess_exec, Builds.compile, JudgeWorker.evaluate

        async def start_staged(program: str, *arguments: str, **options: Any) -> asyncio.subprocess.Process:
            if arguments[1:3] == JUDGE_PROGRAM:
                arguments = (arguments[0], str(STAGED_JUDGE), str(self._folder), *arguments[3:])
            return await start(program, *arguments, **options)

        async def compiled(builds: Builds, request: Any, *arguments: Any) -> list[str]:
            self._note(request, "asked")
            found = await compile_(builds, request, *arguments)
            self._note(request, "built")
            return found

        async def evaluated(judge: JudgeWorker, request: Any, *arguments: Any, **named: Any) -> Any:
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

    def _note(self, request: Any, step: str) -> None:
        self._times.setdefault(request.source_sha256, {})[step] = time.monotonic()

    def seconds(self) -> Iterator[tuple[str, dict[str, float]]]:
        """Hash of the source and seconds by step of each evaluation."""
        for path in self._folder.glob("*.jsonl"):
            for line in path.read_text().splitlines():
                row = json.loads(line)
                times = self._times[row["source"]]
                if "replied" not in times:
                    continue
                asked = times.get("asked", times["has a lane"])
                built = times.get("built", asked)
                steps = {
                    "build, with its queue": built - asked,
                    "wait for a lane": times["has a lane"] - built,
                    "judge": row["ended"] - row["began"],
                    "whole": times["replied"] - asked,
                    **row["steps"],
                }
                yield row["source"], {step: round(value, 4) for step, value in steps.items()}


def say(kind: str, **row: Any) -> None:
    print(json.dumps({"kind": kind, **row}), flush=True)


def end_with(parent: int) -> None:
    """End this process when its parent has ended, also by SIGKILL, so that it does not disturb later parts."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


async def measure(given: argparse.Namespace) -> None:
    """Evaluate the kernels of a part, and print a line for each."""
    from kernelrl_core.types import EvaluationSettings
    from kernelrl_plugin_local.config import LocalConfig
    from kernelrl_plugin_local.evaluator import LocalEvaluator
    from kernelrl_testing.values import make_request

    on_cpu = given.gpus == [0]
    options = {"mode": "interpreter"} if on_cpu and given.backend == "triton" else {}
    settings = EvaluationSettings(
        timing=not on_cpu, trials=5, timeout_s=60, build_timeout_s=240, build_memory_mib=16384
    )
    example = importlib.import_module(f"kernelrl_plugin_{given.backend}.examples").ONE_SHOT
    kernels = list(numbered(given.backend, given.count + given.alone, small=on_cpu))
    evaluator = LocalEvaluator(LocalConfig(gpu_workers=given.gpu_workers))
    names: dict[str, str] = {}

    async def judge(name: str, kernel: str, task: str, kind: str) -> None:
        asked = make_request(kernel, task, given.backend, backend_options=options, settings=settings, seed="7" * 32)
        names[asked.source_sha256] = name
        begin = time.perf_counter()
        row: Row = {"name": name}
        try:
            found = await evaluator.evaluate(asked)
        except Exception as error:
            row |= {"outcome": "none", "error": f"{type(error).__name__}: {error}"[:200]}
        else:
            runtime_us = found.runtime.median_us if found.runtime is not None else None
            row |= {"outcome": found.outcome.value, "runtime_us": runtime_us}
            if row["outcome"] != "correct":
                row["message"] = found.message[:200]
        now = time.perf_counter()
        say(kind, **row, done_s=round(now - started, 3), latency_s=round(now - begin, 3))

    with tempfile.TemporaryDirectory() as folder, Steps(Path(folder)) as steps:
        try:
            started = time.perf_counter()
            lanes = evaluator.capacity if on_cpu else evaluator.on_gpu.size
            preparing = (
                judge(f"first {i}", example.kernel, f"{example.reference}\n# {i}", "first") for i in range(lanes)
            )
            await asyncio.gather(*preparing)
            say("part", prepared_s=round(time.perf_counter() - started, 1), lanes=lanes)
            for row in kernels[given.count :]:
                await judge(row["name"], row["kernel"], row["task"], "alone")
            slots = asyncio.Semaphore(evaluator.capacity)

            async def queued(row: dict[str, str]) -> None:
                async with slots:
                    await judge(row["name"], row["kernel"], row["task"], "kernel")

            started, own_s = time.perf_counter(), time.process_time()
            with Usage() as usage:
                evaluations = [asyncio.create_task(queued(row)) for row in kernels[: given.count]]
                _, unfinished = await asyncio.wait(evaluations, timeout=given.part_s)
                wall_s = time.perf_counter() - started
            own_share = round((time.process_time() - own_s) / wall_s, 3)
            say("part", wall_s=round(wall_s, 2), main_process_share_of_a_core=own_share, **usage.facts())
            is_complete = not unfinished
            for evaluation in unfinished:
                evaluation.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)
        finally:
            await evaluator.aclose()
            for source, seconds in steps.seconds():
                say("steps", name=names[source], steps=seconds)
    say("part", is_complete=is_complete)


# --- all parts ------------------------------------------------------------------------------------------------------


def devices() -> list[str]:
    """UUIDs of the GPUs, also of those that `CUDA_VISIBLE_DEVICES` hides."""
    if shutil.which("nvidia-smi") is None:
        return []
    command = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def part_name(given: argparse.Namespace, n_gpus: int) -> str:
    lanes = f", {given.gpu_workers} lanes" if given.gpu_workers else ""
    return f"{given.backend} on {n_gpus}{lanes}{', the first busy' if given.busy else ''}"


def headers(cache: Path, backend: str) -> None:
    """Precompile PyTorch's headers into a cache, once."""
    if backend == "triton" or (cache / "prepared").exists():
        return
    program = (
        "import asyncio, importlib, sys\n"
        "from kernelrl_core.types import EvaluationSettings\n"
        "from kernelrl_judge.client.builds import Builds\n"
        "from kernelrl_testing.values import make_request\n"
        "example = importlib.import_module(f'kernelrl_plugin_{sys.argv[1]}.examples').ONE_SHOT\n"
        "settings = EvaluationSettings(build_timeout_s=240, build_memory_mib=16384)\n"
        "request = make_request(example.kernel, example.reference, sys.argv[1], settings=settings)\n"
        "asyncio.run(Builds(2).compile(request, True))\n"
    )
    environment = {**os.environ, "KERNELRL_CACHE_DIR": str(cache)}
    subprocess.run([sys.executable, "-c", program, backend], env=environment, check=True)
    (cache / "prepared").touch()


def run_part(given: argparse.Namespace, n_gpus: int, rows: Rows, cache: Path) -> None:
    part = part_name(given, n_gpus)
    for name in [name for name in rows.rows if name.startswith(f"{part}: ")]:
        del rows.rows[name]
    visible = devices()[:n_gpus]
    facts: Row = {"part": part, "backend": given.backend, "gpus": n_gpus, "is_complete": False}
    rows.add(part, facts)
    limit_s = min(given.part_s, rows.left_s)
    with tempfile.TemporaryDirectory() as scratch:
        if given.backend == "cuda":
            shutil.copytree(cache, Path(scratch, "cache"), symlinks=True)
        environment = {
            **os.environ,
            "KERNELRL_CACHE_DIR": f"{scratch}/cache",
            "CUDA_VISIBLE_DEVICES": ",".join(visible),
        }
        command = [sys.executable, __file__, "--measure", *_words(given, n_gpus, limit_s)]
        holder = _holder(visible) if given.busy else None
        # A separate session: Ctrl-C reaches the part once, through this program.
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        said: list[str] = []
        assert process.stderr is not None
        listener = threading.Thread(target=lambda: said.extend(process.stderr or ()), daemon=True)
        listener.start()
        try:
            _collect(process, part, rows, facts)
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            _collect(process, part, rows, facts)
            raise
        finally:
            process.wait()
            if holder is not None:
                holder.kill()
            listener.join(5)
            facts["said"] = [line.strip()[:300] for line in said if "quarantine" in line or "Error" in line][:20]
            facts["exit_code"] = process.returncode
            rows.add(part, facts)


def _words(given: argparse.Namespace, n_gpus: int, limit_s: float) -> list[str]:
    words = ["--backend", given.backend, "--gpus", str(n_gpus), "--count", str(given.count)]
    words += ["--alone", str(given.alone), "--part-s", str(limit_s)]
    return [*words, *(["--gpu-workers", str(given.gpu_workers)] if given.gpu_workers else [])]


def _holder(visible: list[str]) -> subprocess.Popen[str]:
    """Another program that holds most of the free memory of the first GPU."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": visible[0]}
    command = [sys.executable, "-c", HOLDER, str(BUSY_SHARE)]
    holder = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    holder.stdout.readline()
    return holder


def _collect(process: subprocess.Popen[str], part: str, rows: Rows, facts: Row) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        found = json.loads(line)
        kind = found.pop("kind")
        if kind == "part":
            facts |= found
            rows.add(part, facts)
        elif kind != "first":
            name = f"{part}: {found.pop('name')}"
            rows.add(name, {**rows.rows.get(name, {"part": part, "is_alone": kind == "alone"}), **found})


# --- the result -----------------------------------------------------------------------------------------------------


def summary(rows: dict[str, Row]) -> Row:
    parts = [row for row in rows.values() if "is_complete" in row]
    kernels: dict[str, dict[str, Row]] = {row["part"]: {} for row in parts}
    for name, row in rows.items():
        if "done_s" in row and not row["is_alone"]:
            kernels[row["part"]][name.partition(": ")[2]] = row
    alone = {part["part"]: [row["latency_s"] for row in _alone(rows, part["part"])] for part in parts}
    single = {part["backend"]: kernels[part["part"]] for part in reversed(parts) if part["gpus"] in (0, 1)}
    return {
        "parts": [
            {
                **{key: value for key, value in part.items() if key != "said"},
                **rate(kernels[part["part"]]),
                **beside_one_gpu(kernels[part["part"]], single.get(part["backend"], {})),
                "alone_s": alone[part["part"]],
                "steps": steps_of([*kernels[part["part"]].values()]),
                "steps_alone": steps_of(_alone(rows, part["part"])),
            }
            for part in parts
        ]
    }


def _alone(rows: dict[str, Row], part: str) -> list[Row]:
    return [row for row in rows.values() if row["part"] == part and row.get("is_alone") and "done_s" in row]


def rate(kernels: dict[str, Row]) -> Row:
    done_s = sorted(row["done_s"] for row in kernels.values())
    middle = done_s[len(done_s) // 10 : len(done_s) - len(done_s) // 10]
    return {
        "kernels": len(done_s),
        "per_minute": round(60 * len(done_s) / done_s[-1], 1) if done_s else None,
        "per_minute_middle": round(60 * (len(middle) - 1) / (middle[-1] - middle[0]), 1) if len(middle) > 1 else None,
        "outcomes": dict(Counter(row["outcome"] for row in kernels.values())),
    }


def beside_one_gpu(kernels: dict[str, Row], single: dict[str, Row]) -> Row:
    """Outcomes and run times of the kernels beside those of the same ones on one GPU."""
    both = [(kernels[name], single[name]) for name in kernels if name in single]
    ratios = [
        one["runtime_us"] / other["runtime_us"]
        for one, other in both
        if one.get("runtime_us") and other.get("runtime_us")
    ]
    return {
        "other_outcomes": sum(one["outcome"] != other["outcome"] for one, other in both),
        "times_compared": len(ratios),
        "times_within_3_percent": sum(abs(ratio - 1) <= 0.03 for ratio in ratios),
        "time_ratio_median": round(statistics.median(ratios), 4) if ratios else None,
    }


def steps_of(rows: list[Row]) -> dict[str, Row]:
    wall_s = max((row["done_s"] for row in rows), default=1.0)
    seconds: dict[str, list[float]] = {}
    for row in rows:
        for step, value in row.get("steps", {}).items():
            seconds.setdefault(step, []).append(value)
    return {
        step: {
            "mean_s": round(statistics.mean(values), 3),
            "median_s": round(statistics.median(values), 3),
            "at_a_time": round(sum(values) / wall_s, 2),
        }
        for step, values in seconds.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("cuda", "triton"), required=True)
    parser.add_argument("--gpus", type=int, nargs="+", default=[1], help="numbers of GPUs; 0: the CPU")
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--alone", type=int, default=0)
    parser.add_argument("--gpu-workers", type=int, help="evaluator.gpu_workers")
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--part-s", type=float, default=180)
    parser.add_argument("--budget-s", type=float, default=560)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir(), "kernelrl-scaling-headers"))
    parser.add_argument("--output", type=Path)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        logging.basicConfig(level=logging.WARNING)
        threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
        asyncio.run(measure(given))
        return
    if given.output is None:
        parser.error("--output is missing")
    origin = machine("torch", "triton")
    if devices():
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        found = subprocess.run(query, capture_output=True, text=True, check=True).stdout
        origin["gpu"], origin["driver"] = found.splitlines()[0].split(", ")
    with Rows(given.output, origin, summary, given.budget_s) as rows:
        headers(given.cache, given.backend)
        for n_gpus in given.gpus:
            if not rows.rows.get(part_name(given, n_gpus), {}).get("is_complete") and rows.left_s > LEAST_PART_S:
                run_part(given, n_gpus, rows, given.cache)


if __name__ == "__main__":
    main()
