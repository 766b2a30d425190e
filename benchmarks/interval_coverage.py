"""Share of the 95 % intervals of a held-out evaluation that contain the true value.

    python benchmarks/interval_coverage.py > benchmarks/results/interval_coverage.json

Each row simulates 1,000 evaluations. The true rate of a task is drawn from a beta distribution whose mean is the true
rate, a + b = 2, so that episodes of one task are correlated. The logarithm of a speedup is a value of the task plus
normal noise of each episode (deviation 0.2); the value is normal, or exponential and therefore skewed. Speedups exist
for solved episodes only. The target holds for 50 tasks; rows with 20 tasks show what "rough" means. For rates, the
coverage of a bootstrap over tasks is reported beside that of the interval in use.
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import attrs
from provenance import provenance

from kernelrl_core.heldout.scoreboard import Measure

EVALUATIONS = 1000
TASKS, ROUGH = 50, 20
RATES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)
CONCENTRATION = 2.0
NOISE = 0.2
TARGET = (0.90, 0.98)


def main() -> None:
    begun = provenance()
    cases = list(_cases())
    with ProcessPoolExecutor() as pool:
        rows = list(pool.map(_coverage, cases))
    aimed = [row["coverage"] for row in rows if row["tasks"] == TASKS]
    print(
        json.dumps(
            {
                "benchmark": "interval_coverage",
                "evaluations_per_row": EVALUATIONS,
                "results": rows,
                "lowest": min(aimed),
                "highest": max(aimed),
                "target": TARGET,
                "reached": all(TARGET[0] <= coverage <= TARGET[1] for coverage in aimed),
                "provenance": begun,
            },
            indent=1,
        )
    )


def _cases() -> Iterator[dict[str, Any]]:
    for tasks, rates in ((TASKS, RATES), (ROUGH, (0.02, 0.1, 0.5, 0.9, 0.98))):
        for episodes in (1, 8):
            for rate in rates:
                yield {"result": "rate", "tasks": tasks, "episodes": episodes, "rate": rate}
        for shape in ("normal", "skewed"):
            for episodes, rate in ((1, 0.5), (1, 0.9), (8, 0.5)):
                yield {"result": "speedup", "tasks": tasks, "episodes": episodes, "rate": rate, "shape": shape}


def _coverage(case: dict[str, Any]) -> dict[str, Any]:
    source = random.Random(json.dumps(case))
    simulate: Callable[[random.Random, dict[str, Any]], tuple[Measure, float]]
    simulate = _rates if case["result"] == "rate" else _speedups
    hits, resampled, widths = 0, 0, []
    for _ in range(EVALUATIONS):
        measure, truth = simulate(source, case)
        interval = measure.interval()
        other = interval if case["result"] == "speedup" else attrs.evolve(measure, kind="mean").interval()
        if interval is None or other is None:
            sys.exit(f"no interval: {case}")
        hits += interval.low <= truth <= interval.high
        resampled += other.low <= truth <= other.high
        widths.append(interval.high - interval.low)
    return {
        **case,
        "coverage": hits / EVALUATIONS,
        "coverage_of_bootstrap": resampled / EVALUATIONS,
        "mean_width": round(math.fsum(widths) / EVALUATIONS, 4),
    }


def _rates(source: random.Random, case: dict[str, Any]) -> tuple[Measure, float]:
    rate, episodes = case["rate"], case["episodes"]
    solved = [_solved(source, rate, episodes) for _ in range(case["tasks"])]
    return Measure("rate", tuple(map(float, solved)), (episodes,) * case["tasks"]), rate


def _solved(source: random.Random, rate: float, episodes: int) -> int:
    of_task = source.betavariate(rate * CONCENTRATION, (1 - rate) * CONCENTRATION)
    return sum(source.random() < of_task for _ in range(episodes))


def _speedups(source: random.Random, case: dict[str, Any]) -> tuple[Measure, float]:
    sums, counts = [], []
    for _ in range(case["tasks"]):
        normal = case["shape"] == "normal"
        of_task = source.gauss(0.3, 0.5) if normal else source.expovariate(1 / 0.7) - 0.4
        solved = _solved(source, case["rate"], case["episodes"])
        sums.append(math.fsum(of_task + source.gauss(0, NOISE) for _ in range(solved)))
        counts.append(solved)
    return Measure("geometric", tuple(sums), tuple(counts)), math.exp(0.3)


if __name__ == "__main__":
    main()
