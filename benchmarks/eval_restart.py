"""Kill `kernelrl eval` with `kill -9` at ten random moments, and count the finished turns that it repeats.

    python benchmarks/eval_restart.py > benchmarks/results/eval_restart.json

Policy `scripted` replays two replies; Triton's interpreter evaluates their kernels. Each kill comes up to three seconds
after the first new turn is on disk, and the same command is then repeated. A turn that was sampled or evaluated again
has other durations, so a finished turn is repeated if its row in the report differs from that in the partial file.
The report must also have every turn once. Measured for independent episodes and for a search.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from provenance import provenance
from resume import KERNEL, REPLIES

KILLS, SAMPLES, TURNS, TASKS, CONCURRENCY = 10, 6, 2, 8, 3
RECIPE = f"""
tasks:     {{use: starter}}
backend:   {{use: triton}}
policy:    {{use: scripted, seconds_per_reply: 1, replies: {json.dumps(REPLIES)}}}
evaluator: {{use: local}}
evaluation: {{timing: false, trials: 1}}
prompt:    {{template: brief}}
sampling:  {{max_tokens: {len(KERNEL) + 1}, concurrency: {CONCURRENCY}}}
episode:   {{turns: {TURNS}}}
rewards:   {{correct: {{use: correctness}}}}
feedback:  {{use: minimal}}
eval:      {{samples: {SAMPLES}, max_tasks: {TASKS}, split: train}}
"""


def main() -> None:
    begun = provenance("triton")
    with tempfile.TemporaryDirectory() as folder:
        results = {
            name: _measure(Path(folder) / name, arguments)
            for name, arguments in (("episodes", ()), ("beam", ("eval.search={method: beam, width: 2}",)))
        }
    reached = all(row["repeated"] == row["missing"] == row["twice"] == 0 for row in results.values())
    print(
        json.dumps(
            {
                "benchmark": "eval_restart",
                "turns": SAMPLES * TURNS * TASKS,
                "concurrent_replies": CONCURRENCY,
                "results": results,
                "reached": reached,
                "provenance": begun,
            },
            indent=1,
        )
    )
    if not reached:
        sys.exit("a finished turn was repeated or is missing")


def _measure(place: Path, arguments: tuple[str, ...]) -> dict[str, Any]:
    place.mkdir()
    (place / "small.yaml").write_text(RECIPE)
    moments = random.Random(0)
    kept: dict[str, dict[str, Any]] = {}
    changed = kills = 0
    for _ in range(KILLS):
        process = _start(place, arguments)
        while process.poll() is None and len(_rows(place)) <= len(kept):
            time.sleep(0.02)
        time.sleep(moments.uniform(0, 3))
        if process.poll() is not None:
            sys.exit((place / "output.txt").read_text()[-3000:])
        process.kill()
        process.wait()
        kills += 1
        changed += sum(kept.setdefault(row["sample"], row) != row for row in _rows(place))
    if _start(place, arguments).wait(timeout=900):
        sys.exit((place / "output.txt").read_text()[-3000:])
    rows = json.loads((place / "out.json").read_text())["rows"]
    final = {row["sample"]: row for row in rows}
    return {
        "kills": kills,
        "finished_before_the_last_kill": len(kept),
        "repeated": changed + sum(final.get(sample) != row for sample, row in kept.items()),
        "missing": SAMPLES * TURNS * TASKS - len(final),
        "twice": len(rows) - len(final),
    }


def _start(place: Path, arguments: tuple[str, ...]) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "KERNELRL_CACHE_DIR": str(place / "cache")}
    code = "from kernelrl_core.cli.main import main; main()"
    command = [sys.executable, "-c", code, "eval", "small.yaml", *arguments, "--output", "out.json"]
    with (place / "output.txt").open("ab") as log:
        return subprocess.Popen(command, cwd=place, env=environment, stdout=log, stderr=log)


def _rows(place: Path) -> list[dict[str, Any]]:
    """Rows of the partial file, without a last one that a kill truncated."""
    path = place / "out.json.partial"
    lines = path.read_bytes().splitlines(keepends=True)[1:] if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith(b"\n")]


if __name__ == "__main__":
    main()
