"""Compare KernelBench's evaluator and this one on five hacks that exploit evaluation in the candidate's process.

    python benchmarks/five_hacks.py --kernelbench CLONE [--output FILE.json] [--page docs/hacks.md]
    python benchmarks/five_hacks.py --report [--page docs/hacks.md]

The kernels are those of `corpora/five_hacks`, and an honest one. KernelBench's `eval_kernel_against_ref` evaluates and
times each in a separate process, because it executes candidates in its own; here each is evaluated by
`kernelrl check --json`. The next call adds the rows that are missing for this machine, torch and commit. The total time
is a minute or two. `--page` replaces the table of that page. Needs an NVIDIA GPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from kernelbench_evaluator import evaluate
from provenance import machine
from rows import Row, Rows

HERE = Path(__file__).parent
KERNELS = HERE / "corpora" / "five_hacks"
RESULT = HERE / "results" / "five_hacks.json"
NAMES = ("honest", "call_counter", "hidden_stream", "patched_clock", "read_answer", "decoy")
_BEGIN, _END = "<!-- table: benchmarks/five_hacks.py -->", "<!-- end of table -->"
_TRIALS = 5
_LIMIT_S = 180.0


def ours(name: str) -> dict[str, Any]:
    """Output of `kernelrl check --json`."""
    command = [
        *(sys.executable, "-c", "from kernelrl_core.cli.main import main; main()", "check"),
        *(str(KERNELS / "task.py"), str(KERNELS / f"{name}.py"), "--backend", "triton", "--json"),
        *("evaluation.timing=true", f"evaluation.trials={_TRIALS}"),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S)
        found: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return {"error": f"not finished within {_LIMIT_S:g} s"}
    except ValueError:
        return {"error": done.stderr[-600:]}
    # The path of a file on this machine.
    found.pop("kernel", None)
    return found


def run(clone: Path, output: Path) -> None:
    import torch

    # A copy without its own repository may lie inside another one.
    command = ["git", "--git-dir", str(clone / ".git"), "rev-parse", "--short", "HEAD"]
    revision = subprocess.run(command, capture_output=True, text=True).stdout.strip() or "unknown"
    origin = {**machine("torch", "triton"), "gpu": torch.cuda.get_device_name(), "kernelbench": revision}
    with Rows(output, origin) as rows:
        for name in NAMES:
            known = rows.rows.get(name, {"ours": {"error": "missing"}, "kernelbench": {}})
            if "error" in known["ours"] or "error" in known["kernelbench"]:
                theirs = evaluate(clone, KERNELS / "task.py", KERNELS / f"{name}.py", trials=_TRIALS, limit_s=_LIMIT_S)
                rows.add(name, {"kernelbench": theirs, "ours": ours(name)})


def table(document: Row) -> str:
    """The outcomes as a Markdown table."""
    origin, rows = document["provenance"], document["rows"]
    date, theirs = document["date"][:10], origin["kernelbench"]
    versions = f"{origin['gpu']}, torch {origin['torch']}, {date}, KernelBench {theirs}"
    heads = "| kernel | KernelBench's evaluator | `kernelrl check` | findings |\n|---|---|---|---|"
    return "\n".join([f"{versions}.", "", heads, *(_line(name, rows[name]) for name in NAMES if name in rows)])


def _line(name: str, row: Row) -> str:
    their, our = row["kernelbench"], row["ours"]
    rules = [f"`{item['rule']}` ({item['severity']})" for item in our.get("findings", ()) if item["severity"] != "note"]
    flag = ", flagged as excessive" if their.get("flagged") else ""
    right = "correct" if their.get("correct") else "not correct"
    if "error" in their:
        right = "error"
    verdict = "error" if "error" in our else f"{our['outcome']}, {our['verdict']}"
    cells = (
        f"`{name}`",
        right + _speed(their.get("speedup")) + flag,
        verdict + _speed(our.get("speedup")),
        ", ".join(dict.fromkeys(rules)) or "none",
    )
    return f"| {' | '.join(cells)} |"


def _speed(value: float | None) -> str:
    return "" if value is None else f", {value:.2f}x"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernelbench", type=Path, help="a local clone of KernelBench")
    parser.add_argument("--output", type=Path, default=RESULT, help="rows so far; new rows are added")
    parser.add_argument("--page", type=Path, help="page whose table is replaced")
    parser.add_argument("--report", action="store_true", help="only print the table")
    given = parser.parse_args()
    if not given.report:
        if given.kernelbench is None:
            parser.error("--kernelbench CLONE is required unless --report is given")
        run(given.kernelbench, given.output)
    if not given.output.exists():
        parser.error(f"{given.output} has no rows yet")
    text = table(json.loads(given.output.read_text()))
    print(text)
    if given.page is not None:
        before, _, rest = given.page.read_text().partition(_BEGIN)
        _, _, after = rest.partition(_END)
        given.page.write_text(f"{before}{_BEGIN}\n{text}\n{_END}{after}")


if __name__ == "__main__":
    main()
