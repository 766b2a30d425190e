"""Does reinforcement learning of a pretrained model help? Arms with seeds on one to four GPUs, and a page of results.

    python benchmarks/learning.py run --folder DIR --budget-s 540 --gpus 0,1,2 main:0 main:1 main:2
    python benchmarks/learning.py pack --folder DIR --into PARTS
    python benchmarks/learning.py unpack --folder DIR --from PARTS
    python benchmarks/learning.py page --folder DIR --page docs/results.md --notes benchmarks/learning_notes.md

A slice starts or resumes runs of the recipe `smollm2_gpu`, one on each GPU, and stops each after the last step that
fits into the time. `pack` writes their state into small files, and `unpack` restores it on another machine. `page`
begins with what people write about the runs (`--notes`). No command uses a network.

| arm | what differs from `main` |
|---|---|
| `rate0` | learning rate 0, one step: the warm-started model, with which the other arms of its seed are compared |
| `best_of_n` | the same; the evaluations of training are spread over the held-out tasks as further samples |
| `longer_warm_start` | four times the supervised training, learning rate 0 |
| `multi_turn`, `blank_feedback` | two turns; the second with the feedback, or without its content |
| `trloo`, `no_speed` | another estimator; no reward for speed |
"""

from __future__ import annotations

import argparse
import difflib
import json
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from slices import Job, pack, run_slice, slices_of, unpack

from kernelrl_core.heldout.paired import PairedDifference, paired_differences, task_values
from kernelrl_core.heldout.results import Result, read_results
from kernelrl_core.heldout.scoreboard import best_turn, counted_speedup, measures
from kernelrl_core.planning.load import LoadedRecipe, load_recipe
from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe.schema import EvalSettings
from kernelrl_core.runs.directory import RunDir
from kernelrl_core.types import Turn
from kernelrl_sources.similarity import normalised_source, token_structure

RECIPE = Path(__file__).parents[1] / "recipes" / "smollm2_gpu.yaml"
MOST_BYTES = 64 << 20
"""Maximum size of the packed state."""
K = 8
"""Samples per held-out task of pass@k."""
SHOWN = ("correct", "fast_1")
STAGES = {
    "sampling": "time/in_sampling",
    "building": "time/in_building",
    "evaluating": "time/in_evaluating",
    "waiting": "time/in_waiting",
    "learning": "time/in_training",
    "saving": "time/in_saving",
    "whole step": "time/total",
}

Row = dict[str, Any]


# --- runs -----------------------------------------------------------------------------------------------------------


def overrides_of(arm: str, recipe: str, changes: Sequence[str]) -> tuple[str, ...]:
    """Recipe overrides of an arm; its own keys win over `changes`.

    Raises:
        SystemExit: there is no such arm.
    """
    untrained = ("train.learning_rate=0", "train.steps=1", "train.tasks_per_step=1")
    loaded = load_recipe(recipe, list(changes), registry=registry()).recipe
    train, held_out = loaded.train, loaded.eval
    evaluations = (train.steps or 0) * train.tasks_per_step * train.group_size
    n = held_out.samples + evaluations // (held_out.max_tasks or 1)
    warm_start: Any = loaded.policy.options
    arms: dict[str, tuple[str, ...]] = {
        "main": (),
        "rate0": untrained,
        "best_of_n": (*untrained, f"eval.samples={n}", "verify.eval=0"),
        "longer_warm_start": (*untrained, f"policy.warm_start.steps={4 * warm_start.warm_start_settings.steps}"),
        "multi_turn": ("episode.turns=2",),
        "blank_feedback": ("episode.turns=2", "feedback={use: minimal}"),
        "trloo": ("advantage={use: trloo}",),
        "no_speed": ("rewards.speed=null",),
    }
    if arm not in arms:
        raise SystemExit(f"no arm {arm!r}; there are {', '.join(arms)}")
    own = (*arms[arm], "eval.at_start=false")
    decided = {override.partition("=")[0] for override in own}
    return (*own, *(change for change in changes if change.partition("=")[0] not in decided))


def jobs_of(names: Iterable[str], recipe: str, changes: Sequence[str]) -> list[Job]:
    """Jobs of runs ARM:SEED."""
    jobs = []
    for name in names:
        arm, _, seed = name.partition(":")
        overrides = (*overrides_of(arm, recipe, changes), f"seed={seed or 0}")
        jobs.append(Job(f"{arm}-{seed or 0}", recipe, overrides))
    return jobs


# --- results --------------------------------------------------------------------------------------------------------


@attrs.frozen
class Arm:
    """The held-out evaluations of an arm's finished runs, in the order of the seeds."""

    name: str
    runs: tuple[RunDir, ...]
    before: tuple[Result, ...]
    """After the warm start: of the runs, or else of the arm `rate0` with the same seeds; empty without either."""
    after: tuple[Result, ...]


def arms_of(folder: Path) -> dict[str, Arm]:
    """The finished runs by arm."""
    found: dict[str, list[RunDir]] = {}
    for path in sorted((folder / "runs").iterdir()):
        run = RunDir(path)
        if run.state()[0] == "finished":
            found.setdefault(path.name.rpartition("-")[0], []).append(run)
    after = {run.path.name: tuple(read_results(str(run.path))) for runs in found.values() for run in runs}
    return {
        name: Arm(name, tuple(runs), _before(name, runs, after), _together(after[run.path.name] for run in runs))
        for name, runs in found.items()
    }


def _before(name: str, runs: Sequence[RunDir], after: Mapping[str, tuple[Result, ...]]) -> tuple[Result, ...]:
    """See `Arm.before`.

    Args:
        after: results at the end of finished runs by their names.
    """
    first = [row for run in runs for row in run.rows("metrics")[:1]]
    if all(any(key.startswith("eval_start/") for key in row) for row in first):
        return _together(tuple(read_results(f"{run.path}@0")) for run in runs)
    untrained = [f"rate0-{run.path.name.rpartition('-')[2]}" for run in runs]
    if name == "rate0" or not all(run in after for run in untrained):
        return ()
    return _together(after[run] for run in untrained)


def _together(results: Iterable[tuple[Result, ...]]) -> tuple[Result, ...]:
    return tuple(result for of_run in results for result in of_run)


def turns_of(results: Iterable[Result]) -> list[tuple[str, Turn]]:
    """Task id and representing turn of every episode."""
    return [
        (group.task.id, turn)
        for result in results
        for group in result.groups
        for episode in group.episodes
        if (turn := best_turn(episode)) is not None
    ]


def structure(turn: Turn) -> str:
    """Digest of a kernel without names, numbers, comments and formatting."""
    candidate = turn.extraction.candidate
    return "" if candidate is None else token_structure(candidate.source).digest


def demonstrations(loaded: LoadedRecipe) -> list[str]:
    """Sources of all demonstrations of the task source."""
    source = registry().make("tasks", loaded.recipe.tasks)
    return [
        one.source for split in source.splits() for task in source.tasks(split) for one in source.demonstrations(task)
    ]


def novelty(arm: Arm, known: Iterable[str], reference: Iterable[Result]) -> Row:
    """Shares of the arm's correct held-out kernels that no demonstration and no sample of the reference equals."""
    shown = {token_structure(source).digest for source in known}
    reached = {(task, structure(turn)) for task, turn in turns_of(reference) if turn.correct}
    correct = [(task, structure(turn)) for task, turn in turns_of(arm.after) if turn.correct]
    if not correct:
        return {"correct": 0}
    different = set(correct)
    return {
        "correct": len(correct),
        "different": len(different),
        "in_no_demonstration": sum(digest not in shown for _, digest in correct) / len(correct),
        "not_reached_before": sum(pair not in reached for pair in correct) / len(correct),
        "different_not_reached_before": sum(pair not in reached for pair in different) / len(different),
    }


def pass_at(results: Sequence[Result], k: int) -> list[float]:
    """pass@k of each result that has enough samples."""
    values = []
    for result in results:
        measure = measures(result.groups, EvalSettings(pass_at=(k,), samples=k))[f"pass@{k}"]
        if measure.value is not None:
            values.append(measure.value)
    return values


def best_of(results: Iterable[Result]) -> Row:
    """Each task with the best of all its samples."""
    best: dict[str, float] = {}
    solved: dict[str, bool] = {}
    for task, turn in turns_of(results):
        solved[task] = solved.get(task, False) or turn.correct
        best[task] = max(best.get(task, 0.0), (counted_speedup(turn) or 0.0) if turn.correct else 0.0)
    count = len(solved)
    return {
        "tasks": count,
        "solved": sum(solved.values()) / count,
        "fast_1": sum(speed > 1 for speed in best.values()) / count,
        "mean_best_speedup": statistics.fmean(best.values()),
    }


def hack_gap(results: Iterable[Result]) -> tuple[int, int]:
    """Number of correct samples that were evaluated again on other inputs, and of those that failed there."""
    checked = [turn.verified for _, turn in turns_of(results) if turn.correct and turn.verified is not None]
    return len(checked), sum(not held for held in checked)


def differences(before: Sequence[Result], after: Sequence[Result]) -> dict[str, PairedDifference]:
    """Changes of the metrics that are shown, paired by task, over the seeds."""
    paired = paired_differences(
        [task_values(result.groups) for result in before], [task_values(result.groups) for result in after]
    )
    return {one.metric: one for one in paired if one.metric in SHOWN}


def stage_seconds(run: RunDir) -> Mapping[str, float]:
    """Mean seconds per step by stage, without the first step and those with a held-out evaluation."""
    rows = run.rows("metrics")
    steps = [row for row in rows[1:] if not any(key.startswith("eval/") for key in row)] or rows
    return {name: statistics.fmean(row[key] for row in steps) for name, key in STAGES.items()}


def nearest_demonstration(source: str, known: Sequence[str]) -> str:
    """The demonstration with the most similar tokens."""
    tokens = normalised_source(source).split()
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(tokens)
    best, found = -1.0, ""
    for other in known:
        matcher.set_seq1(normalised_source(other).split())
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best:
            ratio = matcher.ratio()
            if ratio > best:
                best, found = ratio, other
    return found


def best_novel(arm: Arm, known: Iterable[str], reference: Iterable[Result]) -> tuple[str, Turn] | None:
    """Task and fastest clean kernel that no demonstration and no sample of the reference equals."""
    shown = {token_structure(source).digest for source in known}
    reached = {(task, structure(turn)) for task, turn in turns_of(reference) if turn.correct}
    candidates = [
        (task, turn)
        for task, turn in turns_of(arm.after)
        if turn.correct
        and turn.verdict.value == "clean"
        and turn.speedup is not None
        and structure(turn) not in shown
        and (task, structure(turn)) not in reached
    ]
    return max(candidates, key=lambda pair: pair[1].speedup or 0.0, default=None)


# --- the page -------------------------------------------------------------------------------------------------------


def write_page(folder: Path, page: Path, recipe: str, notes: Path | None) -> None:
    arms = arms_of(folder)
    if "main" not in arms or not arms["main"].before:
        raise SystemExit(f"{folder}: no finished runs of the arms main and rate0 with one seed")
    main, known = arms["main"], demonstrations(load_recipe(recipe, (), registry=registry()))
    untrained = (result for name in ("rate0", "best_of_n") if name in arms for result in arms[name].after)
    # Results before the training may be those of `rate0`.
    reference = [*{id(result): result for result in (*main.before, *untrained)}.values()]
    lines = [
        "# Results: a pretrained model on one GPU\n",
        "<!-- Generated by benchmarks/learning.py from the files of the runs. Edit it there. -->\n",
        "SmolLM2-135M-Instruct writes Triton kernels for held-out combinations of operations (recipe `smollm2_gpu`). "
        "Intervals are 95 % intervals over tasks, paired where values are compared; they do not cover the luck of a "
        "training run, which the seeds show.\n",
        *([] if notes is None else [notes.read_text(encoding="utf-8")]),
        "## Training\n",
        *differences_table(arms),
        f"\n*pass@{K}*: mean over the seeds. *Hack gap*: correct samples that failed on other inputs, of those that "
        "were evaluated again.\n",
        "## Novelty\n",
        *novelty_lines(main, known, reference),
        "\n## Alternatives\n",
        *alternatives_table(arms),
        "\n*solved*, *faster*: share of tasks for which the best of all samples is correct, and faster than PyTorch.\n",
        "## Seconds per step\n",
        *stages_table(main),
        "\nWithout the first step and those with a held-out evaluation. A second is shared equally by the samples and "
        "the training that are active in it.",
        "\n## Curves\n",
        *curve_table(main),
        *kernel_lines(main, known, reference),
        "\n## Provenance\n",
        *provenance_lines(folder, arms),
    ]
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(page, file=sys.stderr)


def differences_table(arms: Mapping[str, Arm]) -> list[str]:
    lines = [
        f"| arm | seeds | metric | before | after | change | by seed | pass@{K} before → after | hack gap |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for arm in arms.values():
        if not arm.before:
            continue
        checked, failed = hack_gap(arm.after)
        by_seed = [differences([before], [after]) for before, after in zip(arm.before, arm.after, strict=True)]
        for metric, one in differences(arm.before, arm.after).items():
            cells = [
                arm.name,
                len(arm.runs),
                metric,
                percent(one.base),
                percent(one.changed),
                change(one),
                "<br>".join(change(of_seed[metric]) for of_seed in by_seed),
                f"{percent(mean(pass_at(arm.before, K)))} → {percent(mean(pass_at(arm.after, K)))}",
                f"{failed} of {checked}",
            ]
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def change(one: PairedDifference) -> str:
    interval = "–" if one.interval is None else f"{one.interval[0]:+.1%} to {one.interval[1]:+.1%}"
    return f"{percent(one.difference, '+')} ({interval})"


def novelty_lines(main: Arm, known: Sequence[str], reference: Sequence[Result]) -> list[str]:
    found = novelty(main, known, reference)
    if not found["correct"]:
        return ["No held-out kernel is correct."]
    return [
        f"- {found['correct']} correct held-out kernels after training, {found['different']} different ones by task "
        "and structure (syntax without names, numbers and comments).",
        f"- {percent(found['in_no_demonstration'])} have a structure that no demonstration has.",
        f"- {percent(found['not_reached_before'])} ({percent(found['different_not_reached_before'])} of the different "
        f"ones) have a structure that the warm-started model did not reach for the same task in "
        f"{len(turns_of(reference))} samples; the trained model had {len(turns_of(main.after))}.",
    ]


def alternatives_table(arms: Mapping[str, Arm]) -> list[str]:
    lines = ["| arm | samples per task | solved | faster | mean best speedup |", "|---|---|---|---|---|"]
    for arm in arms.values():
        for run, result in zip(arm.runs, arm.after, strict=True):
            found = best_of([result])
            cells = [
                run.path.name,
                round(len(turns_of([result])) / found["tasks"]),
                percent(found["solved"]),
                percent(found["fast_1"]),
                f"{found['mean_best_speedup']:.2f}",
            ]
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def stages_table(main: Arm) -> list[str]:
    lines = [f"| run | {' | '.join(STAGES)} |", f"|{'---|' * (len(STAGES) + 1)}"]
    for run in main.runs:
        seconds = stage_seconds(run)
        lines.append(f"| {run.path.name} | {' | '.join(f'{seconds[name]:.1f}' for name in STAGES)} |")
    return lines


def curve_table(main: Arm) -> list[str]:
    keys = {"reward": "reward/mean", "correct": "kernel/correct_rate", "speedup": "multiturn/best_speedup_mean"}
    lines = [
        "Means over the training samples of five steps, by seed:\n",
        f"| steps | {' | '.join(keys)} |",
        f"|{'---|' * (len(keys) + 1)}",
    ]
    runs = [run.rows("metrics") for run in main.runs]
    n_steps = max(map(len, runs))
    for start in range(0, n_steps, 5):
        cells = [f"{start + 1}–{min(start + 5, n_steps)}"]
        for key in keys.values():
            values = [mean(row[key] for row in rows[start : start + 5] if key in row) for rows in runs]
            cells.append(", ".join("–" if value is None else f"{value:.2f}" for value in values))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def kernel_lines(main: Arm, known: Sequence[str], reference: Sequence[Result]) -> list[str]:
    found = best_novel(main, known, reference)
    if found is None:
        return []
    task, turn = found
    assert turn.extraction.candidate is not None
    source = turn.extraction.candidate.source
    return [
        "\n## The fastest novel kernel\n",
        f"`{task}`, {turn.speedup:.2f} times as fast as PyTorch:\n",
        f"```python\n{source.strip()}\n```\n",
        f"The most similar demonstration:\n\n```python\n{nearest_demonstration(source, known).strip()}\n```",
    ]


def provenance_lines(folder: Path, arms: Mapping[str, Arm]) -> list[str]:
    lines = ["| run | until | GPU | cores | steps | seconds | PyTorch | Triton | Python |", f"|{'---|' * 9}"]
    for arm in arms.values():
        for run in arm.runs:
            for one in slices_of(folder, run.path.name):
                first, last = one["steps"]
                values = [one[key] for key in ("seconds", "torch", "triton", "python")]
                cells = [run.path.name, one["date"], one["gpu"], one["cores"], f"{first}–{last}", *values]
                lines.append(f"| {' | '.join(map(str, cells))} |")
    details = arms["main"].runs[0].provenance()
    model = details.get("policy", {})
    return [*lines, f"\nkernelrl {details['kernelrl']}; model {json.dumps(model)}."]


def mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return statistics.fmean(listed) if listed else None


def percent(value: float | None, sign: str = "") -> str:
    return "–" if value is None else f"{value:{sign}.1%}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "pack", "unpack", "page"])
    parser.add_argument("--folder", type=Path, required=True, help="directory of the runs and their caches")
    parser.add_argument("--recipe", default=str(RECIPE), help="recipe of the arms")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override for all arms")
    parser.add_argument("--budget-s", type=float, default=540.0, help="maximum seconds of a slice")
    parser.add_argument("--gpus", default="0", help="ids of GPUs, separated by commas")
    parser.add_argument("--into", type=Path, help="directory of the packed files")
    parser.add_argument("--from", dest="origin", type=Path, help="directory of the packed files")
    parser.add_argument("--page", type=Path, help="file of the page")
    parser.add_argument("--notes", type=Path, help="text at the beginning of the page")
    parser.add_argument("runs", nargs="*", metavar="ARM:SEED")
    options = parser.parse_intermixed_args()
    if options.command == "run":
        jobs = jobs_of(options.runs or ["main:0"], options.recipe, options.set)
        return run_slice(options.folder, jobs, options.budget_s, options.gpus.split(","))
    needed = {"pack": "into", "unpack": "origin", "page": "page"}[options.command]
    if getattr(options, needed) is None:
        parser.error(f"{options.command} needs --{'from' if needed == 'origin' else needed}")
    if options.command == "pack":
        for part in pack(options.folder, options.into, MOST_BYTES):
            print(part)
    elif options.command == "unpack":
        unpack(options.folder, sorted(options.origin.glob("state.*")))
    else:
        write_page(options.folder, options.page, options.recipe, options.notes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
