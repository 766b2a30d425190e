"""Effect of feedback on the second turn: train the multi-turn quickstart, then measure its policy with and without it.

    python benchmarks/multi_turn_feedback.py --output benchmarks/results/multi_turn_feedback.json

Prints P(correct at turn 2 | incorrect at turn 1) on the training and the held-out tasks.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from provenance import provenance


def kernelrl(folder: Path, *arguments: str) -> None:
    command = [sys.executable, "-c", "from kernelrl_core.cli.main import main; main()", *arguments]
    environment = {**os.environ, "KERNELRL_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(arguments)} ended with {done.returncode}:\n{done.stdout[-1500:]}{done.stderr[-1500:]}")


def repaired(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Share of incorrect first turns whose second turn is correct."""
    attempts: dict[tuple[Any, ...], dict[int, bool]] = {}
    for row in rows:
        key = (row["task_id"], row["attempt"])
        attempts.setdefault(key, {})[row["turn"]] = row["outcome"] == "correct"
    wrong = [turns[1] for turns in attempts.values() if not turns[0] and 1 in turns]
    return {
        "attempts": len(attempts),
        "correct_first": sum(turns[0] for turns in attempts.values()) / len(attempts),
        "wrong_first": len(wrong),
        "repaired": sum(wrong) / len(wrong) if wrong else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    result: dict[str, Any] = {
        "provenance": provenance("torch", "triton"),
        "seed": arguments.seed,
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kernelrl(folder, "run", "quickstart_multi_turn", "--name", "run", f"seed={arguments.seed}")
        metrics = [json.loads(line) for line in (folder / "runs/run/metrics.jsonl").read_text().splitlines()]
        result["success_rate"] = [row["multiturn/success_rate"] for row in metrics]
        result["correct_rate"] = [row["kernel/correct_rate"] for row in metrics]
        for feedback in ("minimal", "none"):
            for split in ("train", "held_out"):
                output = folder / f"{feedback}_{split}.json"
                kernelrl(
                    folder,
                    *("eval", "runs/run", f"feedback.use={feedback}", "--split", split),
                    *("--samples", str(arguments.samples), "--output", str(output)),
                )
                result.setdefault(feedback, {})[split] = repaired(json.loads(output.read_text())["rows"])
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
