"""Train on the GPU with measured speed as the reward, in slices, and write a page with the results.

    python benchmarks/gpu_training.py --folder DIR --budget-s 540 [KEY=VALUE ...]
    python benchmarks/gpu_training.py --folder DIR --page docs/gpu_training.md

The first command starts the recipe `quickstart_gpu` in DIR, or resumes it, and stops it after the last step that fits
into the budget. DIR contains everything that a later slice needs and may be copied to another machine in between. The
second command writes the page, and a chart beside it, from the files of the run.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kernelrl_core.runs.directory import RunDir
from kernelrl_core.sources.yaml import dump, parse_value

RECIPE = Path(__file__).parents[1] / "recipes" / "quickstart_gpu.yaml"
MARGIN_S = 12.0
"""Seconds reserved for saving and for the termination of judges."""
UNKNOWN_STEP_S = 45.0
ROWS = 20
"""Maximum number of rows in the page's table."""
STYLES = ("fast", "middling", "slow")

INTRODUCTION = """\
A transformer of about a million parameters, trained from scratch, writes Triton kernels for the starter tasks. Each
kernel is evaluated and timed on the GPU against PyTorch eager. The score of a correct kernel is 0.45 plus its speedup,
counted up to 5. The model samples and trains on the same GPU, but never while a kernel is timed. The supervised warm
start shows fast, middling and slow correct demonstrations equally often, so a preference among them was learnt from
measured times.
"""

Row = dict[str, Any]


# --- a slice --------------------------------------------------------------------------------------------------------


def train(folder: Path, budget_s: float, overrides: Sequence[str]) -> int:
    """Start or resume the run and stop it in time; return the exit code, which is 0 also for a stopped run."""
    started = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    run = RunDir(folder / "runs" / "gpu")
    known = run.path.is_dir()
    if known and run.state()[0] == "finished":
        print(f"{run.path} is finished", file=sys.stderr)
        return 0
    order = ["resume", "runs/gpu"] if known else ["run", str(RECIPE.resolve()), "--name", "gpu", *overrides]
    command = [sys.executable, "-c", "from kernelrl_core.cli.main import main; main()", *order]
    environment = {**os.environ, "KERNELRL_CACHE_DIR": str((folder / "cache").resolve())}
    before = len(run.rows("metrics")) if known else 0
    # A separate session, so that Ctrl-C in the terminal reaches the run once, through this program.
    process = subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True)
    sent = 0
    while process.poll() is None:
        try:
            time.sleep(0.5)
            left_s = budget_s - (time.monotonic() - started)
            due = (left_s < reserve_s(run)) + (left_s < MARGIN_S / 2)
        except KeyboardInterrupt:
            due = sent + 1
        if due > sent:
            process.send_signal(signal.SIGINT)
            sent += 1
    code = process.returncode
    if run.path.is_dir():
        note_slice(folder, before, len(run.rows("metrics")), time.monotonic() - started)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        print(f"{folder}: {size / 1e6:.1f} MB, {run.state()[0]}, {len(run.rows('metrics'))} steps", file=sys.stderr)
    return 0 if code == 130 else code


def reserve_s(run: RunDir) -> float:
    """Maximum remaining time of the current step, including saving."""
    rows = run.rows("metrics") if run.journal_path("metrics").exists() else []
    steps = [row["time/total"] for row in rows]
    return MARGIN_S + (1.1 * max(steps[-12:]) if steps else UNKNOWN_STEP_S)


def note_slice(folder: Path, before: int, after: int, seconds: float) -> None:
    """Record machine, time and steps of a slice."""
    import torch

    row = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "cores": len(os.sched_getaffinity(0)),
        "torch": torch.__version__,
        "triton": version("triton"),
        "python": sys.version.split()[0],
        "steps": [before, after],
        "seconds": round(seconds),
    }
    with (folder / "slices.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


# --- the page -------------------------------------------------------------------------------------------------------


def write_page(folder: Path, page: Path) -> None:
    """Write the page and its chart from the files of the run."""
    run = RunDir(folder / "runs" / "gpu")
    rows, samples = run.rows("metrics"), run.rows("samples")
    if not rows:
        raise SystemExit(f"{run.path}: no step is finished")
    slices = [json.loads(line) for line in (folder / "slices.jsonl").read_text().splitlines()]
    chart = page.with_suffix(".svg")
    chart.write_text(drawn(rows), encoding="utf-8")
    window = max(1, min(5, len(rows) // 2))
    parts = [
        "# Training on a GPU with measured speed as the reward\n",
        "<!-- Generated by benchmarks/gpu_training.py from the files of the run. Edit it there. -->\n",
        INTRODUCTION,
        "## Results\n",
        *(f"- {line}" for line in findings(rows, samples, window)),
        f"\n![Share of correct kernels and mean speedup of the correct ones, by step]({chart.name})\n",
        "## Steps\n",
        *steps_table(rows),
        "\n*Correct*: share of the step's samples. *Speedup*: mean over the correct ones, against PyTorch. *Repeated*: "
        "share of the evaluated kernels that were evaluated before for the same task; a repetition costs nothing.\n"
        "Seconds per step: *sampling* until the last reply, *evaluating* the rest of the rollout, *learning*, "
        "*saving*.\n",
        "## Held-out tasks\n",
        *held_out_table(rows),
        "\nThe model never trains on these tasks. *Faster*, *twice as fast*: share of all samples that are correct "
        "with a speedup above 1, above 2. *Mean speedup*: geometric mean over the correct samples.\n",
        "## Speed by style\n",
        *styles_table(samples, window, rows),
        "\nCorrect kernels of the training tasks that are identical to a bundled demonstration, by its style; *other*: "
        "all other correct kernels.\n",
        "## Time per kernel\n",
        *seconds_table(samples),
        "\nMeans over the evaluated kernels without repetitions. Trials of different kernels overlap; timing does "
        "not.\n",
        "## Provenance\n",
        *provenance_lines(run, slices, samples),
    ]
    page.write_text("\n".join(parts) + "\n", encoding="utf-8")
    print(f"{page}, {chart}", file=sys.stderr)


def findings(rows: Sequence[Row], samples: Sequence[Row], window: int) -> list[str]:
    first, last = rows[:window], rows[-window:]
    several = f"the first and the last {window} steps" if window > 1 else "the first and the last step"
    lines = [
        f"{len(rows)} steps, {len(samples)} samples, {sum(row['time/total'] for row in rows) / 60:.1f} minutes without "
        "the warm start and the first evaluation.",
        f"Means over {several}: correct {change(first, last, 'kernel/correct_rate', '{:.0%}')}; mean speedup of the "
        f"correct kernels {change(first, last, 'multiturn/best_speedup_mean', '{:.2f}')}; reward "
        f"{change(first, last, 'reward/mean', '{:.2f}')}.",
    ]
    evaluations = held_out(rows)
    if len(evaluations) > 1:
        (_, before), (step, after) = evaluations[0], evaluations[-1]
        pair = [before], [after]
        lines.append(
            f"Held-out tasks, before training and after {step} steps: correct "
            f"{change(*pair, 'correct_rate', '{:.0%}')}; correct and faster than PyTorch "
            f"{change(*pair, 'fast_1', '{:.0%}')}; geometric mean speedup "
            f"{change(*pair, 'geometric_mean_speedup', '{:.2f}')}."
        )
    lost = sum(sample["outcome"] == "infra_error" for sample in samples)
    suspect = sum(sample["verdict"] == "suspect" for sample in samples)
    lines.append(
        f"{lost} samples were lost to infrastructure errors; {suspect} were suspect, their speedup capped at 1."
    )
    return lines


def steps_table(rows: Sequence[Row]) -> list[str]:
    each = -(-len(rows) // ROWS)
    lines = [
        "| steps | correct | speedup | reward | repeated | sampling s | evaluating s | learning s | saving s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for start in range(0, len(rows), each):
        part = rows[start : start + each]
        steps = f"{part[0]['step'] + 1}" + (f"–{part[-1]['step'] + 1}" if len(part) > 1 else "")
        judging = [row["time/rollout"] - row.get("time/sample_max", 0.0) for row in part]
        cells = [
            steps,
            number(mean(part, "kernel/correct_rate"), "{:.0%}"),
            number(mean(part, "multiturn/best_speedup_mean"), "{:.2f}"),
            number(mean(part, "reward/mean"), "{:.2f}"),
            number(mean(part, "cache_hit"), "{:.0%}"),
            number(mean(part, "time/sample_max"), "{:.1f}"),
            number(statistics.fmean(judging), "{:.1f}"),
            number(mean(part, "time/train"), "{:.1f}"),
            number(statistics.fmean(row.get("time/save_checkpoint", 0.0) for row in part), "{:.2f}"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def held_out(rows: Sequence[Row]) -> list[tuple[int, Row]]:
    """Results on the held-out tasks, with the number of steps before each."""
    found = []
    for row in rows:
        for prefix, steps in (("eval_start/", 0), ("eval/", row["step"] + 1)):
            values = {key.removeprefix(prefix): value for key, value in row.items() if key.startswith(prefix)}
            if values:
                found.append((steps, values))
    return found


def held_out_table(rows: Sequence[Row]) -> list[str]:
    forms = {
        "num_samples": "{:.0f}",
        "correct_rate": "{:.0%}",
        "fast_1": "{:.0%}",
        "fast_2": "{:.0%}",
        "geometric_mean_speedup": "{:.2f}",
        "reward_mean": "{:.2f}",
    }
    lines = [
        "| after steps | samples | correct | faster | twice as fast | mean speedup | reward |",
        "|---|---|---|---|---|---|---|",
    ]
    for steps, values in held_out(rows):
        cells = [str(steps), *(number(values.get(key), form) for key, form in forms.items())]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def styles_table(samples: Sequence[Row], window: int, rows: Sequence[Row]) -> list[str]:
    known = bundled()
    correct = [sample for sample in samples if sample["outcome"] == "correct" and sample["speedup"] is not None]
    first, last = window, rows[-1]["step"] + 1 - window
    groups: dict[str, list[Row]] = {style: [] for style in (*STYLES, "other")}
    for sample in correct:
        groups[known.get((sample["task_id"], sample["kernel_sha256"]), "other")].append(sample)
    early, late = (
        [sample for sample in correct if chosen(sample["step"])]
        for chosen in (lambda step: step < first, lambda step: step >= last)
    )
    lines = [
        f"| style | kernels | median speedup | share in the first {window} steps | in the last {window} |",
        "|---|---|---|---|---|",
    ]
    for style, members in groups.items():
        names = {sample["sample"] for sample in members}
        shares = [
            number(sum(sample["sample"] in names for sample in part) / len(part) if part else None, "{:.0%}")
            for part in (early, late)
        ]
        median = statistics.median(sample["speedup"] for sample in members) if members else None
        lines.append(f"| {style} | {len(members)} | {number(median, '{:.2f}')} | {shares[0]} | {shares[1]} |")
    return lines


def bundled() -> dict[tuple[str, str], str]:
    """Style of each correct demonstration, by task and hash of its source."""
    from kernelrl_core.prompts.extraction import extract_file
    from kernelrl_core.types import Outcome
    from kernelrl_plugin_starter.config import StarterOptions
    from kernelrl_plugin_starter.source import StarterTasks

    tasks = StarterTasks(StarterOptions(practice=0, size="huge"))
    found = {}
    for task in tasks.tasks("train"):
        answers = [answer for answer in tasks.demonstrations(task) if answer.backend == "triton"]
        right = [answer.source for answer in answers if answer.outcome is Outcome.CORRECT]
        for style, source in zip(STYLES, right, strict=True):
            candidate = extract_file(source, backend="triton").candidate
            if candidate is not None:
                found[task.id, candidate.sha256] = style
    return found


def seconds_table(samples: Sequence[Row]) -> list[str]:
    judged = [sample["evaluation"] for sample in samples if sample["evaluation"] is not None]
    fresh = [found["seconds"] for found in judged if found["seconds"] and not found["provenance"].get("cached")]
    names = {"build": "loading", "run": "compiling and trials", "timing": "timing", "wait": "waiting for the device"}
    cells = [
        number(statistics.fmean(seconds.get(key, 0.0) for seconds in fresh) if fresh else None, "{:.2f}")
        for key in names
    ]
    return [
        f"| kernels | {' | '.join(f'{name} s' for name in names.values())} |",
        f"|{'---|' * (len(names) + 1)}",
        f"| {len(fresh)} | {' | '.join(cells)} |",
    ]


def provenance_lines(run: RunDir, slices: Sequence[Row], samples: Sequence[Row]) -> list[str]:
    details = run.provenance()
    facts: Row = next(
        (s["evaluation"]["provenance"] for s in samples if s["evaluation"] and s["evaluation"]["provenance"]), {}
    )
    lines = [
        "| slice | until | GPU | cores | steps | seconds | PyTorch | Triton | Python |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for count, one in enumerate(slices, start=1):
        first, last = one["steps"]
        steps = f"{first + 1}–{last}" if last > first else "none"
        cells = [
            count,
            one["date"],
            one["gpu"],
            one["cores"],
            steps,
            one["seconds"],
            one["torch"],
            one["triton"],
            one["python"],
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    stated = [f"kernelrl {details['kernelrl']}", f"state of the run: {run.state()[0]}"]
    stated += [f"{name} {facts[name]}" for name in ("cuda", "driver") if name in facts]
    if details["overrides"]:
        stated.append(f"overrides: {' '.join(details['overrides'])}")
    resolved = parse_value((run.path / "recipe.yaml").read_text(encoding="utf-8"))
    kept = ("tasks", "backend", "policy", "evaluator", "evaluation", "sampling", "rewards", "train", "eval", "seed")
    recipe = dump({key: without_nulls(resolved[key]) for key in kept if key in resolved})
    return [*lines, f"\n{'; '.join(stated)}.\n", "Excerpt of the resolved recipe:\n", f"```yaml\n{recipe.strip()}\n```"]


def without_nulls(block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    return {key: without_nulls(value) for key, value in block.items() if value is not None}


def drawn(rows: Sequence[Row]) -> str:
    """An SVG with two curves over the steps: share correct on the left axis, mean speedup on the right one."""
    width, height, left, top = 640, 260, 48, 30
    speeds = [row["multiturn/best_speedup_mean"] for row in rows if "multiturn/best_speedup_mean" in row]
    most = max(1.0, *speeds) if speeds else 1.0
    inner_w, inner_h = width - 2 * left, height - 2 * top - 10

    def line(key: str, largest: float, colour: str) -> str:
        points = [
            f"{left + inner_w * index / max(1, len(rows) - 1):.1f},{top + inner_h * (1 - row[key] / largest):.1f}"
            for index, row in enumerate(rows)
            if key in row
        ]
        return f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{" ".join(points)}"/>'

    def text(x: float, y: float, words: str, colour: str = "#555", anchor: str = "middle") -> str:
        return f'<text x="{x}" y="{y}" fill="{colour}" text-anchor="{anchor}">{words}</text>'

    blue, orange, bottom, right = "#1f6fb4", "#d1661b", top + inner_h, left + inner_w
    grid = [
        f'<line x1="{left}" x2="{right}" y1="{top + inner_h * share}" y2="{top + inner_h * share}" stroke="#ddd"/>'
        for share in (0, 0.5, 1)
    ]
    labels = [
        *(text(left - 6, bottom - inner_h * share + 4, f"{share:.0%}", blue, "end") for share in (0, 0.5, 1)),
        *(text(right + 6, bottom - inner_h * s + 4, f"{most * s:.1f}", orange, "start") for s in (0, 0.5, 1)),
        text(left, 18, "share correct", blue, "start"),
        text(right, 18, "mean speedup of the correct", orange, "end"),
        text(left, bottom + 18, str(rows[0]["step"] + 1)),
        text(right, bottom + 18, str(rows[-1]["step"] + 1)),
        text(left + inner_w / 2, bottom + 18, "step"),
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-size="12">',
            "<style>text { font-family: sans-serif; }</style>",
            f'<rect width="{width}" height="{height}" fill="#fff"/>',
            *grid,
            line("kernel/correct_rate", 1.0, blue),
            line("multiturn/best_speedup_mean", most, orange),
            *labels,
            "</svg>\n",
        ]
    )


def mean(rows: Sequence[Row], key: str) -> float | None:
    values = [row[key] for row in rows if key in row]
    return statistics.fmean(values) if values else None


def number(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)


def change(first: Sequence[Row], last: Sequence[Row], key: str, form: str) -> str:
    return f"{number(mean(first, key), form)} → {number(mean(last, key), form)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="directory of the run and its caches")
    parser.add_argument("--budget-s", type=float, help="maximum seconds of training")
    parser.add_argument("--page", type=Path, help="file of the page")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="recipe overrides for the first slice")
    arguments = parser.parse_args()
    if arguments.budget_s is None and arguments.page is None:
        parser.error("give --budget-s, --page or both")
    code = train(arguments.folder, arguments.budget_s, arguments.overrides) if arguments.budget_s is not None else 0
    if not code and arguments.page is not None:
        write_page(arguments.folder, arguments.page)
    return code


if __name__ == "__main__":
    sys.exit(main())
