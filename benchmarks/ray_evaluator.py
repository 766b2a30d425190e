"""Evaluator `ray` on one machine: cost beyond `local`, use of its actors, and results while workers are killed.

    python benchmarks/ray_evaluator.py [--pairs 200] [--waiting 200] [--kill-s 120] [--output FILE]

Triton's interpreter, no GPU. `overhead`: pairs of equal requests, one to each evaluator with one judge, in alternating
order; the median of the differences in seconds. `busy`: share of the time in which a judge of an actor has a candidate,
while requests wait. `killed`: one of two workers gets SIGKILL every 15 s; every result is compared with that of `local`
under the same seed. `left`: processes that are left after `aclose`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import psutil
from provenance import provenance

from kernelrl_core.api.components import Use, registry
from kernelrl_core.types import Evaluation, EvaluationRequest
from kernelrl_core.types.numbers import PositiveInt
from kernelrl_plugin_local.config import LocalConfig
from kernelrl_plugin_local.evaluator import LocalEvaluator
from kernelrl_plugin_ray.config import RayConfig
from kernelrl_plugin_ray.evaluator import RayEvaluator
from kernelrl_plugin_ray.plan import Plan
from kernelrl_plugin_ray.worker import Judge
from kernelrl_testing.values import make_request

KILL_EVERY_S = 15.0
OUTPUT = Path(__file__).parent / "results/ray_evaluator.json"


class MeasuredJudge(Judge):
    """A judge that measures how long its lane has a candidate."""

    def __init__(self, environment: dict[str, str], lanes: int) -> None:
        super().__init__(environment, lanes)
        self._since, self._busy_s, self._from = 0.0, 0.0, 0.0
        lanes_of_cpu: Any = self._pool.on_cpu
        take, give_back = lanes_of_cpu._take, lanes_of_cpu._give_back

        async def measured_take(alone: bool) -> Any:
            lane = await take(alone)
            if lanes_of_cpu._n_busy == 1:
                self._since = time.monotonic()
            return lane

        def measured_give_back(lane: Any) -> None:
            if lanes_of_cpu._n_busy == 1:
                self._busy_s += time.monotonic() - max(self._since, self._from)
            give_back(lane)
            # Another candidate may have taken the lane at once.
            if lanes_of_cpu._n_busy == 1:
                self._since = time.monotonic()

        lanes_of_cpu._take, lanes_of_cpu._give_back = measured_take, measured_give_back

    async def reset(self) -> None:
        self._busy_s, self._from = 0.0, time.monotonic()

    async def share(self) -> float:
        now = time.monotonic()
        lanes: Any = self._pool.on_cpu
        open_s = now - max(self._since, self._from) if lanes._n_busy else 0.0
        return (self._busy_s + open_s) / (now - self._from)


class MeasuredRay(RayEvaluator):
    def _make_judge(self, plan: Plan) -> Any:
        options = {**plan.options, "max_concurrency": plan.depth + 8}
        actor = self._ray.remote(MeasuredJudge).options(**options)
        return lambda: actor.remote(self._environment(), plan.lanes)


def requests(count: int) -> list[EvaluationRequest]:
    """Correct and wrong kernels in turn, each with inputs of its own."""
    example = registry().make("backends", Use("triton")).facts.example
    wrong = example.kernel.replace("tl.store(", "0 if True else tl.store(", 1)
    sources = (example.kernel, wrong)
    return [make_request(sources[n % 2], example.reference, "triton", seed=f"{n:032x}") for n in range(count)]


async def overhead(pairs: int) -> dict[str, Any]:
    asked = requests(2 * pairs + 2)[::2]
    local, ray = LocalEvaluator(LocalConfig(workers=PositiveInt(1))), RayEvaluator(RayConfig(judges=PositiveInt(1)))
    begin = time.monotonic()
    await ray.start()
    start_s = time.monotonic() - begin
    differences, locals_s = [], []
    try:
        await asyncio.gather(local.evaluate(asked[0]), ray.evaluate(asked[0]))
        for index, request in enumerate(asked[1:]):
            seconds: dict[str, float] = {}
            for name, evaluator in sorted({"local": local, "ray": ray}.items(), reverse=bool(index % 2)):
                begin = time.perf_counter()
                await evaluator.evaluate(request)
                seconds[name] = time.perf_counter() - begin
            differences.append(seconds["ray"] - seconds["local"])
            locals_s.append(seconds["local"])
    finally:
        await asyncio.gather(local.aclose(), ray.aclose())
    ordered = sorted(differences)
    return {
        "pairs": len(differences),
        "median_ms": round(1e3 * statistics.median(ordered), 2),
        "p10_ms": round(1e3 * ordered[len(ordered) // 10], 2),
        "p90_ms": round(1e3 * ordered[9 * len(ordered) // 10], 2),
        "local_median_ms": round(1e3 * statistics.median(locals_s), 1),
        "start_s": round(start_s, 1),
    }


async def busy(waiting: int) -> dict[str, Any]:
    evaluator = MeasuredRay(RayConfig())
    await evaluator.start()
    judges: Any = evaluator._judges
    try:
        await asyncio.gather(*map(evaluator.evaluate, requests(8)))
        n_judges = len(judges.handles)
        running = [asyncio.create_task(evaluator.evaluate(one)) for one in requests(waiting + 8 * n_judges)]
        await asyncio.gather(*running[: 2 * n_judges])
        await asyncio.gather(*(judge.reset.remote() for judge in judges.handles))
        begin = time.monotonic()
        # The last request that has no judge yet gets one soon after this many are done.
        await asyncio.gather(*running[: len(running) - 6 * n_judges])
        shares = await asyncio.gather(*(judge.share.remote() for judge in judges.handles))
        seconds = time.monotonic() - begin
        await asyncio.gather(*running)
    finally:
        await evaluator.aclose()
    return {
        "judges": n_judges,
        "waiting_at_start": waiting,
        "seconds": round(seconds, 1),
        "busy_share": [round(share, 4) for share in shares],
    }


def essence(found: Evaluation) -> list[str]:
    return [str(part) for part in (found.outcome, found.message, found.tests_passed, found.mismatch, found.findings)]


def judge_processes() -> set[int]:
    """Judges of this environment, also those whose worker was killed."""
    found = set()
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if words[:1] == [sys.executable] and "kernelrl_judge.judge.main" in words:
            found.add(process.pid)
    return found


async def killed(for_s: float) -> dict[str, Any]:
    evaluator = RayEvaluator(RayConfig())
    await evaluator.start()
    judges: Any = evaluator._judges
    source = iter(requests(100_000))
    results: dict[str, list[list[str]]] = {}
    asked: list[EvaluationRequest] = []
    n_killed, until = 0, time.monotonic() + for_s
    choice = random.Random(0)

    async def work() -> None:
        while time.monotonic() < until:
            request = next(source)
            asked.append(request)
            results.setdefault(request.seed, []).append(essence(await evaluator.evaluate(request)))

    async def kill() -> None:
        nonlocal n_killed
        while time.monotonic() + KILL_EVERY_S <= until + 1:
            await asyncio.sleep(KILL_EVERY_S)
            ready = [actor for actor in judges._actors if actor.ready]
            os.kill(choice.choice(ready).facts["pid"], signal.SIGKILL)
            n_killed += 1

    try:
        await asyncio.gather(kill(), *(work() for _ in range(12)))
        started = psutil.Process().children(recursive=True)
    finally:
        await evaluator.aclose()
    left = {process.pid for process in psutil.wait_procs(started, timeout=10)[1]} | judge_processes()
    local = LocalEvaluator(LocalConfig(workers=PositiveInt(2)))
    try:
        there = [essence(found) for found in await asyncio.gather(*map(local.evaluate, asked))]
    finally:
        await local.aclose()
    return {
        "seconds": for_s,
        "workers_killed": n_killed,
        "requests": len(asked),
        "results": sum(map(len, results.values())),
        "once": all(len(found) == 1 for found in results.values()),
        "equal_to_local": sum(results[request.seed][0] == other for request, other in zip(asked, there, strict=True)),
        "processes": len(started),
        "left": len(left),
    }


async def measure(pairs: int, waiting: int, kill_s: float) -> dict[str, Any]:
    return {
        "overhead": await overhead(pairs),
        "busy": await busy(waiting),
        "killed": await killed(kill_s),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--waiting", type=int, default=200)
    parser.add_argument("--kill-s", type=float, default=120.0)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    chosen = parser.parse_args()
    facts = provenance("ray", "torch", "triton")
    found = asyncio.run(measure(chosen.pairs, chosen.waiting, chosen.kill_s))
    text = json.dumps({"provenance": facts, **found}, indent=1)
    chosen.output.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
