"""Which references of KernelBench's levels record, and whether the default lanes of a GPU have the memory for them.

    python benchmarks/kernelbench_references.py --kernelbench CLONE [--budget-s 500] [--output FILE.json]

Each reference is evaluated and timed as if it were a candidate, with default options and as many candidates at once as
the evaluator has lanes. The result is written after each evaluation; another call continues with the tasks that are
missing for this machine, torch and commit, or that ended with an infrastructure error. Needs an NVIDIA GPU.

Options are the defaults, except `memory_mib`: `level3/2` constructs 8.6 GB of parameters in the memory of the host.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

from provenance import machine

RESULT = Path(__file__).parent / "results" / "kernelbench_references.json"


def problems(clone: Path) -> dict[str, str]:
    """Name, such as `level1/19`, -> source. Levels alternate, so that an interrupted call has tasks of each."""
    files = [path for level in (1, 2, 3) for path in (clone / "KernelBench" / f"level{level}").glob("*.py")]
    numbered = {(int(path.name.split("_")[0]), path.parent.name): path for path in files}
    return {f"{level}/{number}": path.read_text() for (number, level), path in sorted(numbered.items())}


async def evaluate(sources: dict[str, str], budget_s: float, save: Any) -> None:
    from kernelrl_plugin_local.config import LocalConfig
    from kernelrl_plugin_local.evaluator import LocalEvaluator
    from kernelrl_testing.values import make_request

    settings = {"timing": True, "timeout_s": 120.0, "memory_mib": 16384}
    ends = time.monotonic() + budget_s
    evaluator = LocalEvaluator(LocalConfig())
    slots = asyncio.Semaphore(evaluator.capacity)

    async def one(name: str, source: str) -> None:
        async with slots:
            if time.monotonic() > ends:
                return
            candidate = re.sub(r"\bModel\b", "ModelNew", source)
            started = time.monotonic()
            request = make_request(
                candidate, source, "triton", task_id=name, backend_options={"mode": "gpu"}, settings=settings
            )
            try:
                found = await evaluator.evaluate(request)
            except Exception as error:  # an infrastructure error is a result of this benchmark
                save(name, {"outcome": "infra_error", "message": f"{type(error).__name__}: {error}"[:300]})
                return
            timing = found.facts.timing
            rows = {
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
            }
            save(name, rows)

    try:
        await asyncio.gather(*(one(name, source) for name, source in sources.items()))
    finally:
        await evaluator.aclose()


def summary(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    judged = {"correct", "incorrect", "hacked"}
    recorded = [
        name
        for name, row in rows.items()
        if row["outcome"] in judged and not row["not_recorded"] and not row["reference_not_recorded"]
    ]
    others = {
        name: row["reference_not_recorded"] or "; ".join(row["not_recorded"]) or row["message"]
        for name, row in rows.items()
        if name not in recorded
    }
    return {
        "evaluated": len(rows),
        "recorded": len(recorded),
        "outcomes": dict(Counter(row["outcome"] for row in rows.values())),
        "others": others,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernelbench", type=Path, required=True)
    parser.add_argument("--budget-s", type=float, default=500)
    parser.add_argument("--output", type=Path, default=RESULT)
    given = parser.parse_args()
    import torch

    here = {**machine("torch", "triton"), "gpu": torch.cuda.get_device_name()}
    before = json.loads(given.output.read_text()) if given.output.exists() else {}
    known: dict[str, dict[str, Any]] = before.get("rows", {}) if before.get("provenance") == here else {}
    rows = {name: row for name, row in known.items() if row["outcome"] != "infra_error"}

    def save(name: str, row: dict[str, Any]) -> None:
        rows[name] = {"method": None, "reference_not_recorded": "", "not_recorded": [], **row}
        written = {"provenance": here, "date": time.strftime("%Y-%m-%d"), **summary(rows), "rows": rows}
        given.output.write_text(json.dumps(written, indent=1) + "\n")

    missing = {name: source for name, source in problems(given.kernelbench).items() if name not in rows}
    asyncio.run(evaluate(missing, given.budget_s, save))
    print(json.dumps(summary(rows), indent=1))


if __name__ == "__main__":
    main()
