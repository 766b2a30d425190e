"""Learning of the quickstart: several seeds with controls, wall time and memory.

    python benchmarks/quickstart.py --seeds 0 1 2
    python benchmarks/quickstart.py --recipe quickstart_cpp --seeds 0 1

For each seed: the recipe with an empty cache; the same with learning rate 0; and, for `quickstart`, supervised training
continued for as long as the reinforcement learning took. Wall time includes the warm start. The held-out change is
paired by task and seed; its interval is a bootstrap over tasks. The result file is extended seed by seed, so the
program can be stopped and restarted.

`quickstart_cpp` is timed: after the run, the policies before and after training are sampled again on both splits, and
the mean speedups of their correct kernels are compared. A kernel that occurs before and after is evaluated once, so the
noise of its timing is the same on both sides. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import psutil
from provenance import provenance

WARM_START_STEPS = 600
TIMED = "quickstart_cpp"
SPLITS = ("train", "held_out")
SAMPLES = 4
"""Episodes per task, before and after training."""


def kernelrl(folder: Path, cache: Path, *arguments: str) -> tuple[float, float, str]:
    """Run a command; return wall seconds, peak memory of all its processes in GiB, and its output."""
    command = [sys.executable, "-c", "from kernelrl_core.cli.main import main; main()", *arguments]
    environment = {**os.environ, "KERNELRL_CACHE_DIR": str(cache)}
    begin = time.monotonic()
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    peak, done = [0], threading.Event()

    def watch() -> None:
        root = psutil.Process(process.pid)
        while not done.wait(2.0):
            try:
                # Proportional shares: forks share most of their pages with their parent.
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


def trained(folder: Path, cache: Path, recipe: str, seed: int, *overrides: str) -> dict[str, Any]:
    name = f"seed{seed}" + "".join(overrides).replace("=", "_")
    seconds, memory, output = kernelrl(folder, cache, "run", recipe, "--name", name, f"seed={seed}", *overrides)
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


def timed(folder: Path, cache: Path, seed: int, *overrides: str) -> dict[str, Any]:
    """Like `trained`, with statistics of the builds, and both splits sampled before and after training."""
    begun = {key: value for key, value in provenance().items() if key in ("date", "load_at_start")}
    result = begun | trained(folder, cache, TIMED, seed, *overrides)
    result["builds"] = builds(cache / "builds")
    run = f"runs/seed{seed}" + "".join(overrides).replace("=", "_")
    for when, checkpoint in (("before", "base"), ("after", "last")):
        for split in SPLITS:
            output = folder / f"{when}_{split}.json"
            options = ("--checkpoint", checkpoint, "--split", split, "--samples", str(SAMPLES))
            kernelrl(folder, cache, "eval", run, *options, "--output", str(output))
            answers = json.loads(output.read_text())["rows"]
            result[f"{when}_{split}"] = [[row["task_id"], row["outcome"], row["speedup"]] for row in answers]
            output.unlink()
    return result


def builds(store: Path) -> dict[str, Any]:
    """CPU time of the successful builds, and seconds of the builds that are made once per toolchain."""
    found = [json.loads(path.read_text()) for path in store.glob("objects/*/*/result.json")]
    spent = [result["cpu_seconds"] for result in found if "error" not in result]
    once = [json.loads(line) for path in store.glob("toolchains/*/seconds.jsonl") for line in path.open()]
    return {
        "distinct": len(found),
        "failed": len(found) - len(spent),
        "cpu_seconds_median": round(statistics.median(spent), 2),
        "cpu_seconds_max": round(max(spent), 2),
        "once_per_toolchain_seconds": {part["part"]: part["seconds"] for part in once},
    }


Answers = list[tuple[str, str, float | None]]
"""Task, outcome and speedup of each sample."""


def speed(answers: Answers) -> float:
    """Mean speedup of the correct samples."""
    return statistics.fmean(speedup for _, _, speedup in answers if speedup is not None)


def correct(answers: Answers) -> float:
    return sum(outcome == "correct" for _, outcome, _ in answers) / len(answers)


def compared(before: Answers, after: Answers) -> dict[str, Any]:
    """Change of the mean speedup of correct kernels, with its 95 % bootstrap interval over tasks.

    `ratio_same_tasks` is the geometric mean of the ratios per task, for tasks that have correct kernels before and
    after. It does not depend on which tasks are solved.
    """
    names = sorted({task for task, _, _ in before})
    by_task = {
        name: ([row for row in before if row[0] == name], [row for row in after if row[0] == name]) for name in names
    }
    both = [
        math.log(speed(late) / speed(early)) for early, late in by_task.values() if correct(early) and correct(late)
    ]
    draw = random.Random(0)
    changes, ratios = [], []
    for _ in range(10_000):
        chosen = draw.choices(names, k=len(names))
        early = [row for name in chosen for row in by_task[name][0]]
        late = [row for name in chosen for row in by_task[name][1]]
        if correct(early) and correct(late):
            changes.append(speed(late) - speed(early))
        ratios.append(statistics.fmean(draw.choices(both, k=len(both))))
    return {
        "correct": [correct(before), correct(after)],
        "speedup_of_correct": [speed(before), speed(after)],
        "change": speed(after) - speed(before),
        "change_ci": _middle(changes),
        "ratio_same_tasks": math.exp(statistics.fmean(both)),
        "ratio_same_tasks_ci": [math.exp(bound) for bound in _middle(ratios)],
        "same_tasks": len(both),
    }


def _middle(values: list[float]) -> list[float]:
    ordered = sorted(values)
    return [ordered[int(0.025 * len(ordered))], ordered[int(0.975 * len(ordered))]]


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--recipe", choices=["quickstart", TIMED], default="quickstart")
    parser.add_argument("--output", type=Path, help="default: benchmarks/results/RECIPE.json")
    parser.add_argument("--no-controls", action="store_true")
    arguments = parser.parse_args()
    output: Path = arguments.output or Path(f"benchmarks/results/{arguments.recipe}.json")
    results: dict[str, Any] = json.loads(output.read_text()) if output.exists() else {"seeds": {}}
    results.setdefault("provenance", provenance("torch", "triton"))
    results.setdefault("recipe", arguments.recipe)
    if results["recipe"] != arguments.recipe:
        sys.exit(f"{output} holds results of the recipe {results['recipe']}")
    for seed in arguments.seeds:
        found = results["seeds"].setdefault(str(seed), {})
        with tempfile.TemporaryDirectory() as name:
            folder, cache = Path(name), Path(name) / "cache"
            for arm, overrides in (("rl", ()), ("lr0", ("train.learning_rate=0",))):
                if arm in found or (arm != "rl" and arguments.no_controls):
                    continue
                if arguments.recipe == TIMED:
                    found[arm] = timed(folder, cache, seed, *overrides)
                else:
                    found[arm] = trained(folder, cache, arguments.recipe, seed, *overrides)
                save(output, results)
            if arguments.recipe == "quickstart" and not arguments.no_controls and "supervised" not in found:
                rl = found["rl"]
                warm_seconds = max(1.0, rl["seconds"] - rl["rl_seconds"])
                steps = WARM_START_STEPS + round(WARM_START_STEPS * rl["rl_seconds"] / warm_seconds)
                found["supervised"] = supervised(folder, cache, seed, steps)
                save(output, results)
    if arguments.recipe == TIMED:
        results["compared"] = speed_changes(results)
        save(output, results)
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
    if results["recipe"] == TIMED:
        report_speed(results)


def speed_changes(results: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Changes by arm and split, over all seeds."""
    found: dict[str, dict[str, Any]] = {}
    for arm in ("rl", "lr0"):
        rows = [arms[arm] for arms in results["seeds"].values() if arm in arms]
        for split in SPLITS if rows else ():
            before, after = ([answer for r in rows for answer in r[f"{when}_{split}"]] for when in ("before", "after"))
            found.setdefault(arm, {})[split] = compared(before, after)
    return found


def report_speed(results: dict[str, Any]) -> None:
    """Print the change of the mean speedup of correct kernels."""
    for arm, splits in results["compared"].items():
        for split, row in splits.items():
            (share, share_after), (mean, mean_after) = row["correct"], row["speedup_of_correct"]
            (low, high), (ratio_low, ratio_high) = row["change_ci"], row["ratio_same_tasks_ci"]
            print(f"{arm:<4} {split:<9} correct {share:.2f} -> {share_after:.2f}")
            print(f"     mean speedup of correct {mean:.2f} -> {mean_after:.2f} (95 % {low:+.2f} to {high:+.2f})")
            print(
                f"     of {row['same_tasks']} tasks solved before and after: x{row['ratio_same_tasks']:.2f} "
                f"({ratio_low:.2f} to {ratio_high:.2f})"
            )
    for seed, arms in results["seeds"].items():
        for arm, row in arms.items():
            spent = row["builds"]
            print(
                f"{seed:>4} {arm:<4} {spent['distinct']} distinct builds, median {spent['cpu_seconds_median']} s of "
                f"CPU time; once per toolchain: {spent['once_per_toolchain_seconds']}"
            )


if __name__ == "__main__":
    main()
