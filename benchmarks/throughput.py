"""CUDA or Triton candidates per minute with cold caches: this evaluator and KernelBench's own path, on one machine.

    python benchmarks/throughput.py KERNELS.jsonl --backend cuda --kernelbench CLONE [--theirs 16] [--budget-s 500]

KERNELS.jsonl contains objects with `name`, `task` and `kernel` (`corpora/maps.py` makes one). This evaluator builds and
evaluates all of them, with five correctness trials and timing. KernelBench's path is executed on the first `--theirs`:
for CUDA `build_compile_cache` in one process per core, then `eval_kernel_against_ref` with five correctness trials and
100 timing trials, in a fresh process per kernel, as its script does with one GPU. Needs a GPU; for CUDA also nvcc and
g++.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import hashlib
import importlib
import json
import os
import platform
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

from provenance import machine

RESULTS = Path(__file__).parent / "results"
_HOPELESS = 3
"""Consecutive failures to reach KernelBench's evaluator after which the measurement stops."""

# Imported by KernelBench for queries to models; not used here and not necessarily installed.
_UNUSED = """
import importlib.util, sys, types
for name in ("openai", "litellm", "dotenv", "tqdm", "tomli", "requests"):
    if importlib.util.find_spec(name) is None:
        module = types.ModuleType(name)
        module.OpenAI = module.completion = module.load_dotenv = module.tqdm = lambda *a, **k: a[0] if a else None
        sys.modules[name] = module
"""

_BUILD = (
    _UNUSED
    + """
import sys, json, time
sys.path.insert(0, sys.argv[1])
from kernelbench.eval import build_compile_cache
rows = [json.loads(line) for line in open(sys.argv[2])]
build_compile_cache(rows[int(sys.argv[3])]["kernel"], build_dir=sys.argv[4])
"""
)

_EVALUATE = (
    _UNUSED
    + """
import sys, json
sys.path.insert(0, sys.argv[1])
import torch
from kernelbench.eval import eval_kernel_against_ref
row = [json.loads(line) for line in open(sys.argv[2])][int(sys.argv[3])]
found = eval_kernel_against_ref(row["task"], row["kernel"], num_correct_trials=5, num_perf_trials=100,
                                measure_performance=True, build_dir=sys.argv[4], device=torch.device("cuda:0"),
                                backend=sys.argv[5])
print(json.dumps({"compiled": bool(found and found.compiled), "correct": bool(found and found.correctness),
                  "runtime_us": found.runtime * 1000 if found else None}))
"""
)


class GpuBusy:
    """Share of the time in which the GPU was busy, from the driver's counter."""

    def __enter__(self) -> GpuBusy:
        first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]
        query = ["--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
        command = ["nvidia-smi", "-i", first, *query, "-lms", "250"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.samples: list[float] = []
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip().isdigit():
                self.samples.append(float(line))

    def __exit__(self, *_: object) -> None:
        self._process.kill()

    def share(self) -> float | None:
        return round(statistics.mean(self.samples) / 100, 3) if self.samples else None


def percentiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {"p50": round(ordered[len(ordered) // 2], 2), "p95": round(ordered[int(len(ordered) * 0.95) - 1], 2)}


def medians(rows: list[dict[str, float]]) -> dict[str, float]:
    names = sorted({name for row in rows for name in row})
    return {name: round(statistics.median(row.get(name, 0.0) for row in rows), 3) for name in names}


async def ours(rows: list[dict[str, Any]], backend: str, cache: Path, workers: int | None) -> dict[str, Any]:
    os.environ["KERNELRL_CACHE_DIR"] = str(cache)
    from kernelrl_core.types import EvaluationRequest, EvaluationSettings
    from kernelrl_plugin_local.config import LocalConfig
    from kernelrl_plugin_local.evaluator import LocalEvaluator
    from kernelrl_testing.values import make_request

    settings = EvaluationSettings(timing=True, trials=5, timeout_s=60, build_timeout_s=240, build_memory_mib=16384)

    def request(task: str, kernel: str) -> EvaluationRequest:
        return make_request(kernel, task, backend, settings=settings, seed="7" * 32)

    evaluator = LocalEvaluator(LocalConfig(gpu_workers=workers) if workers else LocalConfig())
    try:
        # Measured is a warm service: judges started, toolchain prepared. The preparation is reported separately.
        examples = importlib.import_module(f"kernelrl_plugin_{backend}.examples")
        first = examples.ONE_SHOT
        # One build per judge. The last one needs a Python module, and so the other precompiled header.
        uncommon = first.kernel.replace("torch::Tensor b)", "torch::Tensor b, std::array<double, 1> f)")
        kernels = [*[first.kernel] * 11, uncommon.replace("b.contiguous())", "b.contiguous(), [1.0])")]
        if backend != "cuda":
            kernels[-1] = first.kernel
        started = time.perf_counter()
        await asyncio.gather(
            *(evaluator.evaluate(request(first.reference + f"# {i}", kernel)) for i, kernel in enumerate(kernels))
        )
        prepared_s = time.perf_counter() - started
        begun = time.perf_counter()
        slots = asyncio.Semaphore(evaluator.capacity)

        async def judge(row: dict[str, Any]) -> dict[str, Any]:
            async with slots:
                started = time.perf_counter()
                try:
                    found = await evaluator.evaluate(request(row["task"], row["kernel"]))
                except Exception as error:
                    return {"name": row["name"], "outcome": "none", "error": f"{type(error).__name__}: {error}"[:300]}
                builds = found.facts.builds
                return {
                    "name": row["name"],
                    "outcome": found.outcome.value,
                    "message": found.message[:200],
                    "speedup": found.speedup,
                    "runtime_us": found.runtime.median_us if found.runtime else None,
                    "routes": [build.route for build in builds],
                    "reasons": [build.reason for build in builds if build.reason],
                    "build_cpu_s": sum(build.cpu_seconds for build in builds),
                    "build_stages_cpu_s": builds[0].stages if builds else {},
                    "judged_s": found.facts.phases_s,
                    "latency_s": round(time.perf_counter() - started, 2),
                    "done_s": round(time.perf_counter() - begun, 2),
                    "seconds": {stage: round(value, 3) for stage, value in found.seconds.items()},
                    "findings": [finding.rule for finding in found.findings],
                }

        with GpuBusy() as busy:
            judged = await asyncio.gather(*map(judge, rows))
        wall_s = time.perf_counter() - begun
    finally:
        await evaluator.aclose()
    built = [row for row in judged if row.get("routes") and "failed" not in row["routes"]]
    fast = [row for row in built if set(row["routes"]) <= {"bound", "pybind"}]
    failed = [row for row in judged if "failed" in row.get("routes", [])]
    done_s = sorted(row["done_s"] for row in judged if "done_s" in row)
    return {
        "kernels": len(rows),
        "wall_s": round(wall_s, 1),
        "per_minute": round(len(rows) / wall_s * 60, 1),
        "first_to_last_per_minute": round((len(done_s) - 1) / (done_s[-1] - done_s[0]) * 60, 1),
        "workers": workers,
        "latency_s": percentiles([row["latency_s"] for row in judged if "latency_s" in row]),
        "outcomes": dict(Counter(row["outcome"] for row in judged)),
        "routes": dict(Counter(route for row in judged for route in row.get("routes", []))),
        "fast_share_of_those_that_build": round(len(fast) / max(1, len(built)), 3),
        "failure_told_after_s": percentiles([row["seconds"]["build"] for row in failed]) if failed else None,
        "build_cpu_s_fast_median": round(statistics.median(row["build_cpu_s"] for row in fast), 2) if fast else None,
        "build_stages_cpu_s_median": medians([row["build_stages_cpu_s"] for row in fast]),
        "judged_s_median": medians([row.get("judged_s", {}) for row in judged]),
        "stages_s": {
            stage: percentiles([row["seconds"][stage] for row in judged if "seconds" in row])
            for stage in ("build", "run", "timing", "wait")
        },
        "gpu_busy_share": busy.share(),
        "started_and_prepared_s": round(prepared_s, 1),
        "rows": judged,
    }


def theirs(path: Path, backend: str, count: int, clone: Path, budget_s: float) -> Iterator[dict[str, Any]]:
    """Yield the figures after each kernel, so that an interruption loses none."""
    source = clone / "src"
    environment = {**os.environ, "MAX_JOBS": "2", "TORCH_CUDA_ARCH_LIST": of_gpu("compute_cap")}
    with tempfile.TemporaryDirectory() as scratch:
        begun = time.perf_counter()
        running = [
            subprocess.Popen(
                [sys.executable, "-c", _BUILD, str(source), str(path), str(index), f"{scratch}/{index}"],
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for index in range(count if backend == "cuda" else 0)
        ]
        used = [os.wait4(process.pid, 0)[2] for process in running]
        build_s = time.perf_counter() - begun
        # Kernels that are built in a constructor, or by an invalid call, are not built here.
        built = [any(Path(scratch, str(index)).rglob("*.so")) for index in range(len(running))]
        build_cpu_s = [one.ru_utime + one.ru_stime for one, has in zip(used, built, strict=True) if has]
        rows = []
        for index in range(count):
            left_s = budget_s - (time.perf_counter() - begun)
            arguments = [str(source), str(path), str(index), f"{scratch}/{index}", backend]
            started = time.perf_counter()
            try:
                done = subprocess.run(
                    [sys.executable, "-c", _EVALUATE, *arguments],
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=max(0.0, left_s),
                )
            except subprocess.TimeoutExpired:
                break
            lines = done.stdout.strip().splitlines()
            row = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {"error": done.stderr[-300:]}
            rows.append({**row, "seconds": round(time.perf_counter() - started, 2)})
            if all("error" in row for row in rows) and len(rows) == _HOPELESS:
                # Processes that fail before any evaluation are fast: no figure may be derived from them.
                raise SystemExit(f"KernelBench's evaluator does not run here:\n{rows[-1]['error']}")
            evaluation_s = sum(row["seconds"] for row in rows)
            # Kernels beyond the budget count as the mean of the others.
            wall_s = build_s + evaluation_s / len(rows) * count
            yield {
                "kernels": count,
                "evaluated": len(rows),
                "failed": sum("error" in row for row in rows),
                "wall_s": round(wall_s, 1),
                "per_minute": round(count / wall_s * 60, 1),
                "built": sum(built),
                "build_wall_s": round(build_s, 1),
                "build_cpu_s_median": round(statistics.median(build_cpu_s), 1) if build_cpu_s else None,
                "evaluation_s": percentiles([row["seconds"] for row in rows]),
                "rows": list(rows),
            }


def of_gpu(fact: str) -> str:
    command = ["nvidia-smi", f"--query-gpu={fact}", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True).stdout.splitlines()[0].strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernels", type=Path)
    parser.add_argument("--backend", choices=("cuda", "triton"), default="cuda")
    parser.add_argument("--kernelbench", type=Path)
    parser.add_argument("--theirs", type=int, default=16)
    parser.add_argument("--workers", type=int, help="evaluator.gpu_workers; the default of the evaluator")
    parser.add_argument("--budget-s", type=float, default=500)
    parser.add_argument("--output", type=Path, help="benchmarks/results/BACKEND_throughput.json")
    given = parser.parse_args()
    output = given.output or RESULTS / f"{given.backend}_throughput.json"
    rows = [json.loads(line) for line in given.kernels.read_text().splitlines()]
    result: dict[str, Any] = {
        "gpu": of_gpu("name"),
        **machine("torch"),
        "host": platform.node(),
        "kernels_sha256": hashlib.sha256(given.kernels.read_bytes()).hexdigest()[:16],
    }
    # Keep figures that an earlier slice measured on this machine.
    before = json.loads(output.read_text()) if output.exists() else {}
    if all(before.get(name) == value for name, value in result.items()):
        result = before
    if "ours" not in result:
        with tempfile.TemporaryDirectory() as scratch:
            result["ours"] = asyncio.run(ours(rows, given.backend, Path(scratch), given.workers))
        result["date"] = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        show(result["ours"])
        output.write_text(json.dumps(result, indent=1) + "\n")
    if given.kernelbench and "kernelbench" not in result:
        for known in theirs(given.kernels, given.backend, given.theirs, given.kernelbench, given.budget_s):
            result["kernelbench"] = known
            our = result["ours"]
            result["times_the_kernels_per_minute"] = round(our["per_minute"] / known["per_minute"], 1)
            if our["build_cpu_s_fast_median"]:
                result["times_less_build_cpu"] = round(known["build_cpu_s_median"] / our["build_cpu_s_fast_median"], 1)
            output.write_text(json.dumps(result, indent=1) + "\n")
        if "kernelbench" in result:
            show(result["kernelbench"])
        print({key: value for key, value in result.items() if key.startswith("times")})


def show(part: dict[str, Any]) -> None:
    print(json.dumps({key: value for key, value in part.items() if key != "rows"}, indent=1), flush=True)


if __name__ == "__main__":
    main()
