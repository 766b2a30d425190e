"""Does the quickstart learn? Several seeds, beside two controls, with wall time and memory.

    python benchmarks/quickstart.py --seeds 0 1 2 --output benchmarks/results/quickstart.json

For each seed: the recipe `quickstart` with an empty cache; the same with learning rate 0; and supervised learning
continued for as long as the reinforcement learning took. Wall time includes the warm start. The held-out change is
paired by task and seed; its interval is a bootstrap over tasks. A result file is extended seed by seed, so the program
can be stopped and started again.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

WARM_START_STEPS = 600


def kernelrl(folder: Path, cache: Path, *arguments: str) -> tuple[float, float, str]:
    """Run a command; wall seconds, peak memory of all its processes in GiB, and what it printed."""
    command = [sys.executable, "-c", "from kernelrl_core.cli.main import main; main()", *arguments]
    environment = {**os.environ, "KERNELRL_CACHE_DIR": str(cache)}
    begin = time.monotonic()
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    peak, done = [0], threading.Event()

    def watch() -> None:
        root = psutil.Process(process.pid)
        while not done.wait(0.5):
            try:
                # Proportional shares: forks share most of their pages with the process they came from.
                total = sum(child.memory_full_info().pss for child in [root, *root.children(recursive=True)])
            except psutil.Error:
                continue
            peak[0] = max(peak[0], total)

    watcher = threading.Thread(target=watch)
    watcher.start()
    output = process.communicate()[0]
    done.set()
    watcher.join()
    if process.returncode:
        sys.exit(f"{' '.join(arguments)} ended with {process.returncode}:\n{output[-3000:]}")
    return time.monotonic() - begin, peak[0] / 2**30, output


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def held_out(run: Path) -> dict[str, dict[str, float]]:
    """Correct rate of each held-out task, before and after."""
    samples = rows(run / "eval_samples.jsonl")
    steps = sorted({row["step"] for row in samples})
    rates: dict[str, dict[str, list[bool]]] = defaultdict(lambda: {"before": [], "after": []})
    for row in samples:
        if row["step"] in (steps[0], steps[-1]):
            rates[row["task_id"]]["before" if row["step"] == steps[0] else "after"].append(row["outcome"] == "correct")
    return {task: {when: sum(v) / len(v) for when, v in both.items()} for task, both in rates.items()}


def trained(folder: Path, cache: Path, seed: int, *overrides: str) -> dict[str, Any]:
    name = f"seed{seed}" + "".join(overrides).replace("=", "_")
    seconds, memory, output = kernelrl(folder, cache, "run", "quickstart", "--name", name, f"seed={seed}", *overrides)
    run = folder / "runs" / name
    correct = [row["kernel/correct_rate"] for row in rows(run / "metrics.jsonl")]
    tasks = held_out(run)
    return {
        "seconds": round(seconds, 1),
        "peak_gib": round(memory, 2),
        "steps": len(correct),
        "first_3": sum(correct[:3]) / 3,
        "last_3": sum(correct[-3:]) / 3,
        "held_out_before": sum(both["before"] for both in tasks.values()) / len(tasks),
        "held_out_after": sum(both["after"] for both in tasks.values()) / len(tasks),
        "held_out_tasks": tasks,
        "rl_seconds": round(sum(row["time/total"] for row in rows(run / "metrics.jsonl")), 1),
        "correct_rates": correct,
        "output_tail": re.sub(r"\S*/runs/", "runs/", output[-600:]),
    }


def supervised(folder: Path, cache: Path, seed: int, steps: int) -> dict[str, Any]:
    options = (f"seed={seed}", f"policy.warm_start.steps={steps}")
    result: dict[str, Any] = {"warm_start_steps": steps}
    for split in ("train", "held_out"):
        output = folder / f"eval_{seed}_{split}.json"
        seconds, _, _ = kernelrl(
            folder, cache, "eval", "quickstart", *options, "--split", split, "--output", str(output), "--json"
        )
        result[split] = json.loads(output.read_text())["pass@1"]
        result[f"{split}_seconds"] = round(seconds, 1)
    return result


def interval(differences: dict[str, list[float]]) -> tuple[float, float, float]:
    """Mean difference and its 95 % bootstrap interval over tasks."""
    means = [sum(values) / len(values) for values in differences.values()]
    draw = random.Random(0)
    sampled = sorted(sum(draw.choices(means, k=len(means))) / len(means) for _ in range(10_000))
    return sum(means) / len(means), sampled[249], sampled[9749]


def provenance() -> dict[str, Any]:
    names = ("kernelrl", "torch", "triton")
    models = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
        "cpu": models[0] if models else "",
        "cores": len(os.sched_getaffinity(0)),
        "load_at_start": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        **{name: version(name) for name in names},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/quickstart.json"))
    parser.add_argument("--no-controls", action="store_true")
    arguments = parser.parse_args()
    results: dict[str, Any] = json.loads(arguments.output.read_text()) if arguments.output.exists() else {"seeds": {}}
    results.setdefault("provenance", provenance())
    for seed in arguments.seeds:
        found = results["seeds"].setdefault(str(seed), {})
        with tempfile.TemporaryDirectory() as name:
            folder, cache = Path(name), Path(name) / "cache"
            if "rl" not in found:
                found["rl"] = trained(folder, cache, seed)
                save(arguments.output, results)
            if not arguments.no_controls and "lr0" not in found:
                found["lr0"] = trained(folder, cache, seed, "train.learning_rate=0")
                save(arguments.output, results)
            if not arguments.no_controls and "supervised" not in found:
                rl = found["rl"]
                warm_seconds = max(1.0, rl["seconds"] - rl["rl_seconds"])
                steps = WARM_START_STEPS + round(WARM_START_STEPS * rl["rl_seconds"] / warm_seconds)
                found["supervised"] = supervised(folder, cache, seed, steps)
                save(arguments.output, results)
    report(results)


def save(path: Path, results: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")


def report(results: dict[str, Any]) -> None:
    print(json.dumps(results["provenance"]))
    print(f"{'seed':>4} {'arm':<11}{'first 3':>8}{'last 3':>8}{'held out':>18}{'wall s':>8}{'GiB':>6}")
    differences: dict[str, list[float]] = defaultdict(list)
    for seed, arms in results["seeds"].items():
        for arm in ("rl", "lr0"):
            if arm not in arms:
                continue
            row = arms[arm]
            change = f"{row['held_out_before']:.2f} -> {row['held_out_after']:.2f}"
            print(
                f"{seed:>4} {arm:<11}{row['first_3']:>8.2f}{row['last_3']:>8.2f}{change:>18}"
                f"{row['seconds']:>8.0f}{row['peak_gib']:>6.1f}"
            )
        if "supervised" in arms:
            row = arms["supervised"]
            print(f"{seed:>4} {'supervised':<11}{'':>8}{row['train']:>8.2f}{row['held_out']:>18.2f}")
        for task, both in arms["rl"]["held_out_tasks"].items():
            differences[task].append(both["after"] - both["before"])
    mean, low, high = interval(differences)
    seeds = len(results["seeds"])
    print(f"held-out change, paired by task over {seeds} seeds: {mean:+.3f} (95 % {low:+.3f} to {high:+.3f})")


if __name__ == "__main__":
    main()
