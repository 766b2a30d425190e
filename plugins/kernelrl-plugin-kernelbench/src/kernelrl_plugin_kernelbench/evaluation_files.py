"""A held-out evaluation in the files of KernelBench, for its `scripts/benchmark_eval_analysis.py`.

| file | content |
|---|---|
| `level_L_problem_P_sample_S_kernel.py` | the kernel of one episode |
| `eval_results.json` | task number -> its samples: compiled, correct, run time in milliseconds |
| `pass_at_k_results.json` | pass@k of each task and on average |
| `baseline.json` | run times of the baseline in milliseconds, for `baseline_file` |

An episode counts with one turn: the correct one of highest measured speedup, else the last one. KernelBench divides the
baseline of a task by the run time of the kernel. Here every sample has a baseline of its own, measured beside it. So
`baseline.json` has that of the first sample, and `runtime` is this baseline divided by the speedup that was measured.
For the first sample this is the measured run time; `runtime_stats` has the measured one for all.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.evaluators import BuildStatus, Outcome
from kernelrl_core.api.results import Results, last_rows, pass_at_k
from kernelrl_plugin_kernelbench.kernel_names import KernelFile, task_place

__all__ = ["Written", "write_kernelbench_files"]

Row = Mapping[str, Any]

_UNMEASURED = -1.0
"""KernelBench's value for a time that was not measured."""


@attrs.frozen
class Written:
    """The written evaluation."""

    level: int
    tasks: int
    samples: int
    notes: tuple[str, ...]
    """A line for each difference between the evaluation and the files."""


def write_kernelbench_files(results: Results, directory: Path, *, level: int | None = None) -> Written:
    """Write the last held-out evaluation of a run, or an evaluation from a file, into an existing directory.

    Args:
        level: level of the tasks; None: the only one of the evaluation.

    Raises:
        UsageError: there is no held-out evaluation, no task has a level and a number, or the tasks have several levels.
        OSError: the directory cannot be written.
    """
    rows = last_rows(results)
    episodes = _episodes(rows)
    placed = {
        episode: place
        for episode, turns in episodes.items()
        if (place := task_place(turns[0]["task_id"], turns[0]["level"]))
    }
    level = _level(results, level, {place[0] for place in placed.values()})
    by_number: dict[int, list[tuple[int, Row]]] = defaultdict(list)
    lost = 0
    for episode, (its_level, number) in placed.items():
        turn = _counted(episodes[episode]) if its_level == level else None
        lost += its_level == level and turn is None
        if turn is not None:
            by_number[number].append((turn["attempt"], turn))
    tasks = {number: sorted(by_number[number], key=lambda sample: sample[0]) for number in sorted(by_number)}
    _write_kernels(directory, level, tasks)
    baselines = {number: _baseline([turn for _, turn in samples]) for number, samples in tasks.items()}
    _write_json(
        directory / "eval_results.json",
        {str(n): [_sample(number, turn, baselines[n]) for number, turn in samples] for n, samples in tasks.items()},
    )
    _write_json(directory / "pass_at_k_results.json", _pass_at_k(tasks, _ks(results)))
    timed = {n: baseline for n, baseline in baselines.items() if baseline is not None}
    names = {n: f"{samples[0][1]['task_name']}.py" for n, samples in tasks.items()}
    _write_json(directory / "baseline.json", {f"level{level}": {names[n]: timed[n] for n in timed}})
    notes = []
    if lost:
        notes.append(f"{lost} episodes were lost to infrastructure errors and are not in the files")
    if others := len(episodes) - sum(place[0] == level for place in placed.values()):
        notes.append(f"{others} episodes are of other levels, or of tasks without a number, and are not in the files")
    if len(timed) < len(tasks):
        untimed = len(tasks) - len(timed)
        notes.append(f"{untimed} tasks have a correct kernel that was not timed; the analysis has no speedup of them")
    return Written(level, len(tasks), sum(map(len, tasks.values())), tuple(notes))


def _level(results: Results, level: int | None, present: set[int]) -> int:
    listed = ", ".join(map(str, sorted(present)))
    if not present:
        raise UsageError(
            f"{results.path}: no task has a level and a number, as those of KernelBench have",
            fix="export an evaluation of tasks: {use: kernelbench}, or of files such as level1/19_ReLU.py",
            see="export",
        )
    if level is None and len(present) > 1:
        raise UsageError(
            f"{results.path} has tasks of levels {listed}; files of KernelBench have one",
            fix="add --level",
            see="export",
        )
    if level is not None and level not in present:
        raise UsageError(f"--level {level}: {results.path} has tasks of level {listed} only")
    return level if level is not None else min(present)


def _episodes(rows: Sequence[Row]) -> dict[tuple[int, int], list[Row]]:
    """(task index, episode) -> its turns in order."""
    found: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for row in rows:
        found[row["task_index"], row["attempt"]].append(row)
    return found


def _counted(turns: Sequence[Row]) -> Row | None:
    """The turn that represents an episode; None if all were lost to infrastructure errors."""
    kept = [turn for turn in turns if turn["outcome"] != Outcome.INFRA_ERROR]
    correct = [turn for turn in kept if turn["outcome"] == Outcome.CORRECT]
    if correct:
        return max(correct, key=lambda turn: turn["speedup"] or 0.0)
    return kept[-1] if kept else None


def _baseline(turns: Sequence[Row]) -> dict[str, Any] | None:
    """Baseline of a task; None if a correct kernel was not timed."""
    correct = [turn for turn in turns if turn["outcome"] == Outcome.CORRECT]
    if any(turn["speedup"] is None or turn["evaluation"]["baseline"] is None for turn in correct):
        return None
    if not correct:  # its value is never used, but the analysis counts only tasks with a baseline
        return {"mean": _UNMEASURED, "num_trials": 0}
    return _times(correct[0]["evaluation"]["baseline"]) | _hardware(correct[0])


def _sample(number: int, turn: Row, baseline: Mapping[str, Any] | None) -> dict[str, Any]:
    evaluation = turn["evaluation"]
    correct = turn["outcome"] == Outcome.CORRECT
    found: dict[str, Any] = {
        "sample_id": number,
        "compiled": evaluation is not None and evaluation["build"] == BuildStatus.BUILT,
        "correctness": correct,
        "metadata": {
            **_hardware(turn),
            **{key: turn[key] for key in ("task_id", "kernel_sha256", "outcome", "verdict", "speedup", "message")},
            "verified": turn.get("verified"),
            "findings": [f"{finding['rule']} ({finding['severity']})" for finding in turn["findings"]],
        },
        "runtime": _UNMEASURED,
        "runtime_stats": {},
    }
    if correct and baseline is not None:
        found["runtime"] = baseline["mean"] / turn["speedup"]
        if evaluation["runtime"] is not None:
            found["runtime_stats"] = _times(evaluation["runtime"]) | _hardware(turn)
    return found


def _times(measured: Mapping[str, Any]) -> dict[str, Any]:
    """Times in milliseconds. `mean` is the median, which the evaluator reports in place of a mean."""
    return {
        "mean": measured["median_us"] / 1e3,
        "p10": measured["p10_us"] / 1e3,
        "p90": measured["p90_us"] / 1e3,
        "num_trials": measured["n"],
    }


def _hardware(turn: Row) -> dict[str, Any]:
    known = turn["evaluation"]["provenance"] if turn["evaluation"] is not None else {}
    hardware = known.get("gpu") or known.get("cpu")
    return {"hardware": hardware, "device": known.get("device")} if hardware else {}


def _ks(results: Results) -> list[int]:
    """The k for which the evaluation has pass@k."""
    if results.run is None:
        keys = list(results.document())
    else:
        keys = [key.removeprefix("eval/") for row in results.run.each_row("metrics") for key in row]
    return sorted({1} | {int(key[5:]) for key in keys if key.startswith("pass@") and key[5:].isdecimal()})


def _pass_at_k(tasks: Mapping[int, Sequence[tuple[int, Row]]], ks: Sequence[int]) -> dict[str, Any]:
    counts = {
        number: (len(samples), sum(turn["outcome"] == Outcome.CORRECT for _, turn in samples))
        for number, samples in tasks.items()
    }
    # As in the evaluation, pass@k is for tasks with at least k samples each.
    ks = [k for k in ks if all(n >= k for n, _ in counts.values())]
    problems = {
        str(number): {
            "total_samples": n,
            "correct_samples": correct,
            **{f"pass@{k}": pass_at_k(n, correct, k) for k in ks},
        }
        for number, (n, correct) in counts.items()
    }
    return {
        "averages": {f"avg_pass@{k}": statistics.fmean(one[f"pass@{k}"] for one in problems.values()) for k in ks},
        "metadata": {
            "total_problems": len(problems),
            "problems_with_samples": len(problems),
            "total_evaluated_samples": sum(n for n, _ in counts.values()),
            "total_correct_samples": sum(correct for _, correct in counts.values()),
            **{f"pass@{k}_count": len(problems) for k in ks},
        },
        "problems": problems,
    }


def _write_kernels(directory: Path, level: int, tasks: Mapping[int, Sequence[tuple[int, Row]]]) -> None:
    for number, samples in tasks.items():
        for sample, turn in samples:
            candidate = turn["extraction"]["candidate"]
            if candidate is not None:
                path = directory / KernelFile(level, number, sample).name
                path.write_text(candidate["source"], encoding="utf-8", errors="surrogatepass")


def _write_json(path: Path, document: Any) -> None:
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
