"""Evaluate mutants of right kernels: each right kernel must end correct and clean, and no mutant may.

    python benchmarks/mutants.py --output FILE.json [--only NAME ...] [--budget-s 3000]
    python benchmarks/mutants.py --output FILE.json --report [--before OLDER.json]

The mutants are the edits of `corpora/mutated_kernels.py`, in fp32, fp16 and bf16; those that `mutant_differences.py`
found to be equivalent are excluded. They are evaluated as `kernelrl check` does, on the CPU and without timing:
Triton in its interpreter, C++ with g++. Another call continues. A mutant is caught unless it ends correct without a
suspicion.

To measure another checkout, put it in front of `PYTHONPATH`. Where a task is cast to fp32 by default, the precision of
each task is set. `--before` names mutants that an older revision caught and this one does not.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from corpora.mutated_kernels import DTYPES, KERNELS, RightKernel
from provenance import machine
from rows import Row, Rows

RESULTS = Path(__file__).parent / "results"
TARGET = 0.98
"""Share of the mutants to catch."""
SECRET = hashlib.sha256(b"mutants").digest()
"""Of the seeds of trials: equal for all revisions, so that an edit that few draws reveal ends alike."""
Key = tuple[str, str, int | None]
Case = tuple[RightKernel, str, int | None]


def key(row: Row) -> Key:
    return row["kernel"], row["dtype"], row["edit"]


def name_of(case: Case) -> str:
    entry, dtype, number = case
    return f"{entry.name} {dtype} {'right' if number is None else number}"


def caught(row: Row) -> bool:
    return (row["outcome"], row["verdict"]) != ("correct", "clean")


def cases(differences: Path, only: Iterable[str]) -> list[tuple[Case, str | None]]:
    """The right kernels and the mutants that are wrong, each with the inputs on which it is."""
    rows = json.loads(differences.read_text())["rows"]
    wrong_on = {key(row): row["wrong_on"] for row in rows if row["edit"] is not None}
    found: list[tuple[Case, str | None]] = []
    for entry in KERNELS:
        if only and entry.name not in only:
            continue
        for dtype in entry.dtypes:
            found.append(((entry, dtype, None), None))
            for number in range(len(entry.edits)):
                if where := wrong_on.get((entry.name, dtype, number)):
                    found.append(((entry, dtype, number), where))
    return found


def measured_revision() -> str:
    """Revision of the checkout that is measured, which may be another one than that of this file."""
    import kernelrl_core

    root = Path(str(kernelrl_core.__file__)).parents[1]
    done = subprocess.run(["git", "-C", str(root), "describe", "--always", "--dirty"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


async def evaluate(todo: list[tuple[Case, str | None]], backend: str, dtype: str, rows: Rows) -> None:
    """Evaluate kernels of one backend and one dtype; write a row for each."""
    from kernelrl_core.api.episodes import evaluate_kernel
    from kernelrl_core.api.errors import KernelRLError
    from kernelrl_core.api.evaluators import EvaluationSettings
    from kernelrl_core.plugins.registry import registry
    from kernelrl_core.types import Task
    from kernelrl_lab.running import lab_spec, timed_where_possible

    overrides = ["evaluation.timing=false"]
    if EvaluationSettings().precision == "fp32":
        overrides.append(f"evaluation.precision={dtype}")
    spec = lab_spec(backend, "cpu", "local", overrides, registry())
    evaluator = registry().make("evaluators", spec.evaluator)
    await evaluator.start()
    judge = timed_where_possible(spec, overrides, evaluator, registry(), SECRET)
    slots = asyncio.Semaphore(evaluator.capacity)

    async def one(case: Case, wrong_on: str | None) -> None:
        entry, _, number = case
        async with slots:
            if rows.left_s < 0:
                return
            edit = entry.edits[number] if number is not None else None
            source = entry.mutant(edit, dtype) if edit else entry.kernel(dtype)
            row: Row = {
                "kernel": entry.name,
                "backend": backend,
                "dtype": dtype,
                "edit": number,
                "kind": edit[0] if edit else "right",
                "wrong_on": wrong_on,
            }
            started = time.monotonic()
            try:
                turn = await evaluate_kernel(judge, Task(f"mutants/{entry.name}_{dtype}", entry.task(dtype)), source)
            except KernelRLError as error:
                row |= {"outcome": "error", "verdict": "", "findings": [], "message": str(error)[:400]}
            else:
                serious = [found for found in turn.findings if found.severity.value != "note"]
                row |= {
                    "outcome": turn.outcome.value,
                    "verdict": turn.verdict.value,
                    "findings": [f"{found.rule}: {found.evidence}"[:300] for found in serious],
                    "message": turn.message[:300],
                }
            row["seconds"] = round(time.monotonic() - started, 2)
            rows.add(name_of(case), row)

    try:
        await asyncio.gather(*(one(*each) for each in todo))
    finally:
        await evaluator.aclose()


def summary(rows: dict[str, Row]) -> Row:
    mutants = [row for row in rows.values() if row["edit"] is not None]
    rights = [row for row in rows.values() if row["edit"] is None]
    return {
        "mutants": len(mutants),
        "caught": sum(map(caught, mutants)),
        "right_kernels": len(rights),
        "right_and_clean": sum(not caught(row) for row in rights),
    }


def table(rows: list[Row]) -> str:
    """Caught mutants by kind of fault and dtype, as a Markdown table."""
    counts: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for row in rows:
        if row["edit"] is not None:
            for kind in (row["kind"], "all"):
                for dtype in (row["dtype"], "all"):
                    counts[kind, dtype].append(caught(row))
    columns = (*DTYPES, "all")
    kinds = sorted({kind for kind, _ in counts} - {"all"})
    lines = [f"| mutants caught | {' | '.join(columns)} |", "|---|---|---|---|---|"]
    for kind in (*kinds, "all"):
        cells = [f"{sum(counts[kind, name])} of {len(counts[kind, name])}" for name in columns]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    right = [row for row in rows if row["edit"] is None]
    for name in columns[:-1]:
        chosen = [row for row in right if row["dtype"] == name]
        lines.append(f"\nright kernels in {name}: {sum(not caught(row) for row in chosen)} of {len(chosen)} clean")
    return "\n".join(lines)


def report(path: Path, before: Path | None) -> int:
    """Print the table and the kernels that ended wrongly. Returns an exit code."""
    document = json.loads(path.read_text())
    rows = [*document["rows"].values()]
    print(f"{document['provenance']['measured']}, {document['date']}\n\n{table(rows)}\n")
    wrong = [row for row in rows if caught(row) == (row["edit"] is None)]
    older = json.loads(before.read_text())["rows"].values() if before else ()
    earlier = {key(row): caught(row) for row in older}
    lost = 0
    for row in wrong:
        was_caught = row["edit"] is not None and earlier.get(key(row), False)
        lost += was_caught
        why = "; ".join(row["findings"]) or row["message"].replace("\n", " ")[:160]
        mark = " (caught before)" if was_caught else ""
        print(
            f"{row['kernel']} {row['dtype']} {row['edit']} {row['kind']}, wrong on {row['wrong_on']}: "
            f"{row['outcome']} {row['verdict']}{mark} {why}"
        )
    mutants = [row for row in rows if row["edit"] is not None]
    share = sum(map(caught, mutants)) / len(mutants)
    print(f"\n{len(mutants)} mutants, {share:.1%} caught; {lost} caught before and not now")
    rights_clean = not any(row["edit"] is None for row in wrong)
    return 0 if share >= TARGET and rights_clean and not lost else 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS / "mutants.json")
    parser.add_argument("--differences", type=Path, default=RESULTS / "mutant_differences.json")
    parser.add_argument("--only", nargs="*", default=[], help="names of right kernels")
    parser.add_argument("--budget-s", type=float, default=7200)
    parser.add_argument("--report", action="store_true", help="only print the table of the output")
    parser.add_argument("--before", type=Path, help="rows of an older revision")
    given = parser.parse_args()
    if not given.report:
        origin = {**machine("torch", "triton"), "measured": measured_revision()}
        with Rows(given.output, origin, summary, given.budget_s) as rows:
            failed = {name for name, row in rows.rows.items() if row["outcome"] in ("error", "infra_error")}
            found = cases(given.differences, given.only)
            left = [each for each in found if name_of(each[0]) not in rows or name_of(each[0]) in failed]
            for backend in ("triton", "cpp"):
                for dtype in DTYPES:
                    group = [each for each in left if (each[0][0].backend, each[0][1]) == (backend, dtype)]
                    if group:
                        asyncio.run(evaluate(group, backend, dtype, rows))
    sys.exit(report(given.output, given.before))


if __name__ == "__main__":
    main()
