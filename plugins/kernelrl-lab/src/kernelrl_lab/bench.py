"""Speed of an evaluator, and its agreement with another one, on the bundled kernels."""

from __future__ import annotations

import asyncio
import hashlib
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from kernelrl_core.api.episodes import CandidateEvaluator, Registry
from kernelrl_lab.running import Result, evaluate_suite_kernel, lab_spec, timed_where_possible
from kernelrl_lab.suite import SuiteKernel, read_hacks, suite_folder

__all__ = ["Measured", "bench_kernels", "disagreements", "measure"]

N_HACKS = 30


@attrs.frozen
class Measured:
    """Evaluations of all kernels by one evaluator."""

    evaluator: str
    gpu: str
    """GPU model; empty: none."""
    capacity: int
    start_s: float
    """Seconds until the evaluator had started."""
    first_s: float
    """Seconds from then to the first result, while judges start."""
    wall_s: float
    """Seconds from the start to the last result."""
    latencies_s: tuple[float, ...]
    """Seconds of each evaluation, without the wait for capacity."""
    results: tuple[Result, ...]
    """In the order of the kernels."""

    @property
    def per_minute(self) -> float:
        """Evaluations per minute."""
        return 60 * len(self.results) / self.wall_s

    @property
    def capacity_share(self) -> float:
        """Share of the capacity that was in use, in the mean."""
        return sum(self.latencies_s) / (self.capacity * self.wall_s)

    def figures(self) -> dict[str, Any]:
        """The figures as plain data; times in seconds."""
        ordered = sorted(self.latencies_s)
        return {
            "evaluator": self.evaluator,
            "gpu": self.gpu,
            "kernels": len(self.results),
            "capacity": self.capacity,
            "start_s": round(self.start_s, 2),
            "first_result_s": round(self.first_s, 2),
            "per_minute": round(self.per_minute, 1),
            "latency_p50_s": round(statistics.median(ordered), 3),
            "latency_p95_s": round(ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))], 3),
            "capacity_share": round(self.capacity_share, 3),
        }


def bench_kernels(registry: Registry, device: str) -> list[SuiteKernel]:
    """The honest kernels for a device, and hacks evenly spread over those for it."""
    suites = [read_hacks(suite_folder(name), registry=registry)[0] for name in ("honest", "hacks")]
    honest = [kernel for kernel in suites[0] if device in kernel.devices]
    hacks = [kernel for kernel in suites[1] if kernel.hack is not None and device in kernel.devices]
    step = max(1.0, len(hacks) / N_HACKS)
    return honest + [hacks[int(index * step)] for index in range(min(N_HACKS, len(hacks)))]


async def measure(
    kernels: Sequence[SuiteKernel],
    name: str,
    *,
    registry: Registry,
    device: str,
    overrides: Sequence[str] = (),
    seed: int = 0,
    on_result: Callable[[Result], None] = lambda result: None,
) -> Measured:
    """Evaluate all kernels by one evaluator, as many concurrently as it has capacity. Equal seeds give equal inputs.

    Args:
        name: of the evaluator.
        overrides: evaluation keys as `KEY=VALUE`.

    Raises:
        MissingPrerequisite: the evaluator cannot start.
        UsageError: an override is wrong.
    """
    secret = hashlib.sha256(f"bench {seed}".encode()).digest()
    backends = sorted({kernel.backend for kernel in kernels})
    specs = {backend: lab_spec(backend, device, name, overrides, registry) for backend in backends}
    evaluator = registry.make("evaluators", specs[backends[0]].evaluator)
    results: dict[str, Result] = {}
    latencies: list[float] = []
    begin = time.monotonic()
    try:
        await evaluator.start()
        started = first = time.monotonic()
        judges: dict[str, CandidateEvaluator] = {
            backend: timed_where_possible(spec, overrides, evaluator, registry, secret)
            for backend, spec in specs.items()
        }
        waiting = iter(kernels)
        capacity = 0

        async def work() -> None:
            nonlocal first
            for kernel in waiting:
                grow()
                taken = time.monotonic()
                result = await evaluate_suite_kernel(judges[kernel.backend], kernel, kernel.task)
                first = time.monotonic() if not results else first
                latencies.append(time.monotonic() - taken)
                results[kernel.id] = result
                on_result(result)

        def grow() -> None:
            # The capacity may grow while judges start.
            nonlocal capacity
            while capacity < evaluator.capacity:
                capacity += 1
                group.create_task(work())

        async with asyncio.TaskGroup() as group:
            grow()
        return Measured(
            evaluator=name,
            gpu=evaluator.gpu_model(),
            capacity=capacity,
            start_s=started - begin,
            first_s=first - started,
            wall_s=time.monotonic() - started,
            latencies_s=tuple(latencies),
            results=tuple(results[kernel.id] for kernel in kernels),
        )
    finally:
        await evaluator.aclose()


def disagreements(one: Measured, other: Measured) -> list[dict[str, Any]]:
    """The kernels whose outcome or verdict differs, with both results. Speedups are not compared."""
    return [
        {
            "id": first.kernel.id,
            **{
                measured.evaluator: {
                    "outcome": result.outcome.value,
                    "verdict": result.verdict.value,
                    "message": result.message[:300],
                }
                for measured, result in ((one, first), (other, second))
            },
        }
        for first, second in zip(one.results, other.results, strict=True)
        if (first.outcome, first.verdict, first.skipped == "") != (second.outcome, second.verdict, second.skipped == "")
    ]
