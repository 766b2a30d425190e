"""Which references of KernelBench's levels record, and whether the default lanes of a GPU have the memory for them.

    python benchmarks/kernelbench_references.py --kernelbench CLONE [--budget-s 500] [--output FILE.json]

Each reference is evaluated and timed as if it were a candidate, with default options and as many candidates at once as
the evaluator has lanes. Another call continues with the tasks that are missing for this machine, torch and commit, or
that ended with an infrastructure error. `--mode interpreter` uses the CPU: its references are then not recorded.

Options are the defaults, except `memory_mib`: `level3/2` constructs 8.6 GB of parameters in the memory of the host.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from collections import Counter
from pathlib import Path

from provenance import machine
from rows import Row, Rows

RESULT = Path(__file__).parent / "results" / "kernelbench_references.json"


def problems(clone: Path) -> dict[str, str]:
    """Name, such as `level1/19`, -> source. Levels alternate, so that an interrupted call has tasks of each."""
    files = [path for level in (1, 2, 3) for path in (clone / "KernelBench" / f"level{level}").glob("*.py")]
    numbered = {(int(path.name.split("_")[0]), path.parent.name): path for path in files}
    return {f"{level}/{number}": path.read_text() for (number, level), path in sorted(numbered.items())}


async def evaluate(sources: dict[str, str], mode: str, rows: Rows) -> None:
    from kernelrl_plugin_local.config import LocalConfig
    from kernelrl_plugin_local.evaluator import LocalEvaluator
    from kernelrl_testing.values import make_request

    settings = {"timing": mode == "gpu", "timeout_s": 120.0, "memory_mib": 16384}
    evaluator = LocalEvaluator(LocalConfig())
    slots = asyncio.Semaphore(evaluator.capacity)

    async def one(name: str, source: str) -> None:
        async with slots:
            if rows.left_s < 0:
                return
            candidate = re.sub(r"\bModel\b", "ModelNew", source)
            started = time.monotonic()
            request = make_request(
                candidate, source, "triton", task_id=name, backend_options={"mode": mode}, settings=settings
            )
            try:
                found = await evaluator.evaluate(request)
            except Exception as error:  # an infrastructure error is a result of this benchmark
                rows.add(name, {"outcome": "infra_error", "message": f"{type(error).__name__}: {error}"[:300]})
                return
            timing = found.facts.timing
            row = {
                "outcome": found.outcome.value,
                "message": found.message[:200],
                "method": timing.method if timing else None,
                "calls_per_window": timing.calls_per_window if timing else None,
                "not_recorded": [one.evidence for one in found.findings if one.rule == "not_recorded"],
                "reference_not_recorded": found.facts.direct_because,
                "not_timed": found.not_timed,
                "speedup": found.speedup,
                "runtime_us": found.runtime.median_us if found.runtime else None,
                "wall_s": round(time.monotonic() - started, 1),
                "phases_s": {phase: round(seconds, 2) for phase, seconds in found.seconds.items()},
            }
            rows.add(name, row)

    try:
        await asyncio.gather(*(one(name, source) for name, source in sources.items()))
    finally:
        await evaluator.aclose()


def why_not_recorded(row: Row) -> str:
    """Empty for a reference that recorded."""
    reasons = row.get("reference_not_recorded") or "; ".join(row.get("not_recorded", []))
    was_judged = row["outcome"] in ("correct", "incorrect", "hacked")
    return reasons or ("" if was_judged else row["message"] or row["outcome"])


def summary(rows: dict[str, Row]) -> Row:
    others = {name: why for name, row in rows.items() if (why := why_not_recorded(row))}
    return {
        "evaluated": len(rows),
        "recorded": len(rows) - len(others),
        "outcomes": dict(Counter(row["outcome"] for row in rows.values())),
        "others": others,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernelbench", type=Path, required=True)
    parser.add_argument("--budget-s", type=float, default=500)
    parser.add_argument("--mode", choices=("gpu", "interpreter"), default="gpu")
    parser.add_argument("--count", type=int, help="only so many of the references")
    parser.add_argument("--output", type=Path, default=RESULT)
    given = parser.parse_args()
    import torch

    origin = machine("torch", "triton")
    if given.mode == "gpu":
        origin["gpu"] = torch.cuda.get_device_name()
    sources = dict([*problems(given.kernelbench).items()][: given.count])
    with Rows(given.output, origin, summary, given.budget_s) as rows:
        left = [name for name in sources if rows.rows.get(name, {}).get("outcome", "infra_error") == "infra_error"]
        asyncio.run(evaluate({name: sources[name] for name in left}, given.mode, rows))


if __name__ == "__main__":
    main()
