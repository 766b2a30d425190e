"""Repeatability of measured times, and agreement with CUDA events. Needs an idle GPU.

    python benchmarks/timing_repeatability.py [--times 20] [--load 24 --lanes 12] [--budget-s 500]

`--load` adds a second series beside that many busy processes, with `--lanes` evaluations at once. Another call on the
same machine continues.

Each kernel is evaluated many times, each time in a fresh process with fresh inputs. The spread is the interquartile
range of the medians divided by their median. Then the same kernels are timed by KernelBench's method `cuda_event`,
several times because it varies as well, and the median speedups of both are compared.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
from provenance import machine
from rows import Row, Rows

from kernelrl_core.types import EvaluationSettings
from kernelrl_core.types.serialization import to_json
from kernelrl_testing.values import make_request

RESULTS = Path(__file__).parent / "results"
BUSY = "while True: sum(range(1_000_000))"

TASK = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return {reference}


def get_inputs():
    return [torch.randn({shape})]


def get_init_inputs():
    return []
"""

MAP = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def map_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, {expression}, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        map_kernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
        return y
"""

SOFTMAX = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * columns + offsets, e / tl.sum(e, axis=0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
"""

CASES = {
    "map, 64 MB": (TASK.format(reference="torch.relu(x) * 2.0", shape="4096, 4096"), "tl.maximum(x, 0.0) * 2.0"),
    "map, 512 MB": (TASK.format(reference="x * x + 1.0", shape="16384, 8192"), "x * x + 1.0"),
    "map, 2 GB": (TASK.format(reference="x * x + 1.0", shape="32768, 16384"), "x * x + 1.0"),
    "softmax, 256 MB": (TASK.format(reference="torch.softmax(x, dim=1)", shape="16384, 4096"), None),
}


SMALL = ("map, 64 MB", "softmax, 256 MB")
"""Cases for many evaluations at once."""
_BY_EVENTS = 5


async def check(evaluator: Any, task: str, kernel: str, settings: EvaluationSettings, seed: int) -> Any:
    options = {"mode": "gpu"}
    return await evaluator.evaluate(
        make_request(kernel, task, backend_options=options, settings=settings, seed=f"{seed:032x}")
    )


async def run_under_load(times: int, lanes: int, rows: Rows) -> None:
    """Many evaluations at once, where other processes keep the machine busy."""
    from kernelrl_plugin_local.config import LocalConfig
    from kernelrl_plugin_local.evaluator import LocalEvaluator

    evaluator = LocalEvaluator(LocalConfig(gpu_workers=lanes))
    settings = EvaluationSettings(timing=True, trials=2)
    try:
        for name in SMALL:
            if f"{name}, loaded" in rows or rows.left_s < 0:
                continue
            task, expression = CASES[name]
            kernel = SOFTMAX if expression is None else MAP.format(expression=expression)
            checks = (check(evaluator, task, kernel, settings, seed) for seed in range(times))
            ended = await asyncio.gather(*checks, return_exceptions=True)
            found = [one for one in ended if not isinstance(one, BaseException) and one.runtime]
            medians = [one.runtime.median_us for one in found]
            quartiles = statistics.quantiles(medians, n=4)
            median_us = statistics.median(medians)
            row = {
                "kernel": name,
                "checks": len(medians),
                "failed": [str(one)[:200] for one in ended if isinstance(one, BaseException)],
                "runtime_us": round(median_us, 2),
                "interquartile_share": round((quartiles[2] - quartiles[0]) / median_us, 4),
                "within_5_percent": sum(abs(value / median_us - 1) <= 0.05 for value in medians) / len(medians),
                "baseline_us": round(statistics.median(one.baseline.median_us for one in found), 2),
                "runtimes_us": [round(value, 2) for value in medians],
            }
            rows.add(f"{name}, loaded", row)
    finally:
        await evaluator.aclose()


async def run(times: int, rows: Rows) -> None:
    from kernelrl_plugin_local.config import LocalConfig
    from kernelrl_plugin_local.evaluator import LocalEvaluator

    evaluator = LocalEvaluator(LocalConfig(gpu_workers=1))
    windows = EvaluationSettings(timing=True, trials=2)
    events = attrs.evolve(windows, profile="kernelbench", timing_method="cuda_event", timing_trials=100)
    try:
        for name, (task, expression) in CASES.items():
            if name in rows or rows.left_s < 0:
                continue
            kernel = SOFTMAX if expression is None else MAP.format(expression=expression)
            found = [await check(evaluator, task, kernel, windows, seed) for seed in range(times)]
            medians = sorted(one.runtime.median_us for one in found if one.runtime)
            speedups = sorted(one.speedup for one in found if one.speedup)
            by_events = [await check(evaluator, task, kernel, events, seed) for seed in range(_BY_EVENTS)]
            quartiles = statistics.quantiles(medians, n=4)
            spread = statistics.quantiles(speedups, n=4)
            row = {
                "kernel": name,
                "checks": len(medians),
                "runtime_us": round(statistics.median(medians), 2),
                "interquartile_share": round((quartiles[2] - quartiles[0]) / statistics.median(medians), 4),
                "speedup": round(statistics.median(speedups), 3),
                "speedup_interquartile_share": round((spread[2] - spread[0]) / statistics.median(speedups), 4),
                "runtime_by_events_us": round(statistics.median(one.runtime.median_us for one in by_events), 2),
                "speedup_by_events": round(statistics.median(one.speedup for one in by_events), 3),
                "runtimes_us": [round(one.runtime.median_us, 2) for one in found if one.runtime],
                "speedups": [round(one.speedup, 3) for one in found if one.speedup],
                "calls_per_window": [one.facts.timing.calls_per_window for one in found if one.facts.timing],
                "speedups_by_events": [round(one.speedup, 3) for one in by_events],
                "bandwidth_share": round(found[-1].facts.roofline.bandwidth_share, 3),
                "findings": sorted({finding.rule for one in found for finding in one.findings}),
                "seconds_each": {key: round(value, 2) for key, value in found[-1].seconds.items()},
                "telemetry": to_json(found[-1].facts.timing),
            }
            row["speedup_difference"] = round(row["speedup"] / row["speedup_by_events"] - 1, 4)
            rows.add(name, row)
    finally:
        await evaluator.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--load", type=int, default=0, help="busy processes of a second series")
    parser.add_argument("--lanes", type=int, default=12, help="evaluations at once in that series")
    parser.add_argument("--budget-s", type=float, default=500)
    parser.add_argument("--output", type=Path, default=RESULTS / "timing_repeatability.json")
    given = parser.parse_args()
    import torch

    def summary(rows: dict[str, Row]) -> Row:
        return {
            "load": {"busy_processes": given.load, "lanes": given.lanes},
            "interquartile_share": {name: row["interquartile_share"] for name, row in rows.items()},
        }

    origin = {**machine("torch", "triton"), "gpu": torch.cuda.get_device_name()}
    with Rows(given.output, origin, summary, given.budget_s) as rows:
        asyncio.run(run(given.times, rows))
        if not given.load:
            return
        busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(given.load)]
        try:
            asyncio.run(run_under_load(given.times, given.lanes, rows))
        finally:
            for process in busy:
                process.kill()


if __name__ == "__main__":
    main()
