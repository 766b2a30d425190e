"""Evaluate attacks that were written by people who had read the evaluator's defences.

    python benchmarks/open_trial.py fourth --output benchmarks/results/open_trial_fourth.json
    python benchmarks/open_trial.py second --only 05 --only 12

Each file of `benchmarks/corpora/open_trial/TRIAL` is one attack: its mechanism, the task, the candidate and, for
attacks on time, an honest kernel for the same task (`TWIN`). All are executed on the CPU, in Triton's interpreter or as
C++ extensions. An attack succeeds if it is correct and clean, its task is not in quarantine and, for attacks on time,
its speedup is above that of its twin.

An existing result keeps the record of the first try; `now` is replaced.
"""

from __future__ import annotations

import argparse
import json
import runpy
from pathlib import Path
from typing import Any

from provenance import provenance

from kernelrl_core.plugins.registry import registry
from kernelrl_lab.fixture import Fixture
from kernelrl_lab.running import Result, run

CORPUS = Path(__file__).parent / "corpora" / "open_trial"
BATCH = 6
"""Attacks per batch; the result file is written after each batch."""
TRUE_TIME = 1.3
"""An attack on time fails if its speedup is at most this many times that of the honest twin: a tolerance for noise."""


def fixtures(path: Path) -> list[Fixture]:
    """The attack and its twin."""
    attack = runpy.run_path(str(path))
    common = {"backend": attack["BACKEND"], "task": attack["TASK"]}
    found = [
        Fixture(
            id=path.stem,
            summary=attack["__doc__"],
            candidate=attack["CANDIDATE"],
            expected="honest_time",
            times=attack.get("TIMES", 1),
            **common,
        )
    ]
    if "TWIN" in attack:
        twin = attack["TWIN"]
        found.append(Fixture(id=f"{path.stem}/twin", summary="", candidate=twin, expected="correct", **common))
    return found


def row_of(result: Result, twin: Result | None) -> dict[str, Any]:
    gains = twin is None or not twin.speedup or (result.speedup or 0.0) > TRUE_TIME * twin.speedup
    return {
        "outcome": result.outcome.value,
        "verdict": result.verdict.value,
        "findings": list(result.findings),
        "speedup_told": result.speedup,
        "honest_twin_told": None if twin is None else twin.speedup,
        "quarantine": list(result.quarantine),
        "pays": not result.alarmed and not result.quarantine and gains,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trial", choices=sorted(path.name for path in CORPUS.iterdir()))
    parser.add_argument("--only", action="append", default=[], metavar="NUMBER", help="prefix of a file name")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    paths = [
        path
        for path in sorted((CORPUS / arguments.trial).glob("*.py"))
        if not arguments.only or path.name.startswith(tuple(arguments.only))
    ]
    known: dict[str, Any] = {}
    if arguments.output and arguments.output.exists():
        known = json.loads(arguments.output.read_text())
    rows = {row["id"]: row for row in known.get("results", [])}
    where = provenance("torch", "triton")
    for begin in range(0, len(paths), BATCH):
        some = paths[begin : begin + BATCH]
        every = [fixture for path in some for fixture in fixtures(path)]
        judged = {result.fixture.id: result for result in run(every, registry=registry()).results}
        for name in (path.stem for path in some):
            now = row_of(judged[name], judged.get(f"{name}/twin"))
            rows[name] = {**rows.get(name, {"id": name, "mechanism": judged[name].fixture.summary}), "now": now}
            print(name, "PAYS" if now["pays"] else "", *(now[key] for key in ("outcome", "verdict", "findings")))
        results = [rows[name] for name in sorted(rows)]
        if arguments.output:
            result = {**known, "provenance": {**known.get("provenance", {}), **where}, "attacks": len(results)}
            text = json.dumps({**result, "results": results}, indent=1, ensure_ascii=False)
            arguments.output.write_text(text + "\n")
    paying = [name for name, row in sorted(rows.items()) if row.get("now", {}).get("pays")]
    print(f"{len(paying)} of {len(rows)} attacks succeed: {', '.join(paying)}")


if __name__ == "__main__":
    main()
