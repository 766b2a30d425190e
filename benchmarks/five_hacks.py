"""Compare KernelBench's evaluator and this one on five hacks that exploit evaluation in the candidate's process.

    python benchmarks/five_hacks.py --kernelbench CLONE [--output FILE.json] [--page docs/hacks.md]
    python benchmarks/five_hacks.py --report [--page docs/hacks.md]

The kernels are those of `corpora/five_hacks`, and an honest one. KernelBench's `eval_kernel_against_ref` evaluates and
times each in a separate process, because it executes candidates in its own; here each is evaluated by
`kernelrl check --json`. Rows are written immediately. The next call adds the rows that are missing for this GPU, torch
and commit. The total time is a minute or two. `--page` replaces the table of that page. Needs an NVIDIA GPU.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from kernelbench_evaluator import evaluate

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


def provenance(clone: Path, commit: str | None) -> dict[str, Any]:
    import torch

    def head(folder: Path) -> str:
        # A copy without its own repository may lie inside another one.
        command = ["git", "--git-dir", str(folder / ".git"), "rev-parse", "--short", "HEAD"]
        return subprocess.run(command, capture_output=True, text=True).stdout.strip() or "unknown"

    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "commit": commit or head(HERE.parent),
        "kernelbench": head(clone),
    }


def run(clone: Path, output: Path, commit: str | None) -> None:
    origin = provenance(clone, commit)
    key = [origin[name] for name in ("gpu", "torch", "commit")]
    rows = [row for row in read(output) if [row["provenance"][name] for name in ("gpu", "torch", "commit")] == key]
    done = {row["kernel"] for row in rows if "error" not in row["kernelbench"] and "error" not in row["ours"]}
    rows = [row for row in rows if row["kernel"] in done]
    for name in NAMES:
        if name in done:
            continue
        theirs = evaluate(clone, KERNELS / "task.py", KERNELS / f"{name}.py", trials=_TRIALS, limit_s=_LIMIT_S)
        rows.append({"kernel": name, "kernelbench": theirs, "ours": ours(name), "provenance": origin})
        output.write_text(json.dumps(rows, indent=1) + "\n")
        print(_line(rows[-1]), flush=True)


def read(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """The outcomes as a Markdown table."""
    origin = rows[0]["provenance"]
    versions = f"{origin['gpu']}, torch {origin['torch']}, {origin['date'][:10]}, KernelBench {origin['kernelbench']}"
    ordered = sorted(rows, key=lambda row: NAMES.index(row["kernel"]))
    heads = "| kernel | KernelBench's evaluator | `kernelrl check` | findings |\n|---|---|---|---|"
    return "\n".join([f"{versions}.", "", heads, *map(_line, ordered)])


def _line(row: dict[str, Any]) -> str:
    their, our = row["kernelbench"], row["ours"]
    rules = [f"`{item['rule']}` ({item['severity']})" for item in our.get("findings", ()) if item["severity"] != "note"]
    flag = ", flagged as excessive" if their.get("flagged") else ""
    right = "error" if "error" in their else "correct" if their["correct"] else "not correct"
    verdict = "error" if "error" in our else f"{our['outcome']}, {our['verdict']}"
    cells = (
        f"`{row['kernel']}`",
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
    parser.add_argument("--commit", help="commit to record if this copy is not a git checkout")
    parser.add_argument("--report", action="store_true", help="only print the table")
    given = parser.parse_args()
    if not given.report:
        if given.kernelbench is None:
            parser.error("--kernelbench CLONE is required unless --report is given")
        run(given.kernelbench, given.output, given.commit)
    rows = read(given.output)
    if not rows:
        parser.error(f"{given.output} has no rows yet")
    text = table(rows)
    print(text)
    if given.page is not None:
        before, _, rest = given.page.read_text().partition(_BEGIN)
        _, _, after = rest.partition(_END)
        given.page.write_text(f"{before}{_BEGIN}\n{text}\n{_END}{after}")


if __name__ == "__main__":
    main()
