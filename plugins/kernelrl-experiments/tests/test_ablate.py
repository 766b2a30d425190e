"""`kernelrl ablate`, with a plugin of fakes and policy `scripted` in place of real training."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelrl_testing.waiting import DEADLINE_S, wait_until

FAKES = Path(__file__).parents[3] / "tests/fakes"
MAIN = [sys.executable, "-c", "from kernelrl_core.cli.main import main; main()"]
RECIPE = """
tasks:     {use: fake}
backend:   {use: fake}
policy:    {use: fake}
evaluator: {use: fake}
feedback:  {use: fake}
forbid:    []
rewards:   {correct: {use: fake}}
train:     {tasks_per_step: 2, group_size: 4, steps: 2, learning_rate: 0.5, decontaminate: false}
eval:      {samples: 4}
"""
CHANGE = "train.learning_rate=0.0"

Start = Callable[..., "subprocess.Popen[str]"]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    (tmp_path / "small.yaml").write_text(RECIPE)

    def starter(*arguments: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": str(FAKES), "KERNELRL_CACHE_DIR": str(tmp_path / "cache")}
        pipe = subprocess.PIPE
        return subprocess.Popen([*MAIN, *arguments], cwd=tmp_path, env=environment, stdout=pipe, stderr=pipe, text=True)

    return starter


@pytest.fixture
def kernelrl(start: Start) -> Run:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        process = start(*arguments)
        out, err = process.communicate(timeout=DEADLINE_S)
        assert "Traceback" not in err, err
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    return run


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def names(folder: Path) -> list[str]:
    """Runs without the hash of the recipe."""
    return sorted(f"{part[0]}-{part[1]}-{part[-1]}" for path in folder.iterdir() if (part := path.stem.split("-")))


def test_both_recipes_are_trained_with_each_seed_and_compared(kernelrl: Run, tmp_path: Path) -> None:
    arguments = ("ablate", "small.yaml", CHANGE, "--seeds", "0,3")
    done = kernelrl(*arguments, "--output", "out.json", "--json")
    assert done.returncode == 0, done.stderr
    assert "runs      4, of which 0 are finished" in done.stderr
    # 4 tasks, 8 episodes: (3.182446 + 0.978472) * sqrt((1/9 + 1/24) / 4) = 0.8130.
    assert "detects   differences of at least 0.81 in a share" in done.stderr
    result = json.loads(done.stdout)
    assert (result["tasks"], result["episodes_per_task"], result["tasks_lost"]) == (4, 8, 0)
    assert names(tmp_path / "runs") == [
        "small-base-seed0",
        "small-base-seed3",
        "small-changed-seed0",
        "small-changed-seed3",
    ]
    for run in result["runs"]:
        recipe = (tmp_path / run["path"] / "recipe.yaml").read_text()
        assert f"seed: {run['seed']}" in recipe
        assert ("learning_rate: 0.0" in recipe) == (run["arm"] == "changed")

    correct: dict[str, list[bool]] = {arm: [] for arm in ("base", "changed")}
    for run in result["runs"]:
        found = rows(tmp_path / run["path"] / "eval_samples.jsonl")
        correct[run["arm"]] += [row["outcome"] == "correct" for row in found]
    share = {arm: sum(found) / len(found) for arm, found in correct.items()}
    by_metric = {row["metric"]: row for row in result["comparisons"][0]["differences"]}
    assert list(by_metric) == ["compiled", "correct", "pass@1", "fast_1", "speedup", "reward"]
    # One turn, score 1 if correct, every kernel is built, and every correct one has speedup 1.5.
    assert by_metric.pop("compiled")["difference"] == 0.0
    assert by_metric["speedup"]["base"] == pytest.approx(1.5 * share["base"])
    for row in (row for metric, row in by_metric.items() if metric != "speedup"):
        assert row["base"] == pytest.approx(share["base"])
        assert row["difference"] == pytest.approx(share["changed"] - share["base"])
        assert sum(row["by_seed"]) / 2 == pytest.approx(row["difference"])
        assert row["interval"][0] <= row["difference"] <= row["interval"][1]
    written = json.loads((tmp_path / "out.json").read_text())
    assert {key: written[key] for key in result} == result
    assert [len(seed) for seed in written["values"]["base"]] == [4, 4]
    assert written["provenance"]["kernelrl"]

    again = kernelrl(*arguments)
    assert "runs      4, of which 4 are finished" in again.stderr
    assert "step" not in again.stderr
    assert len(again.stdout.splitlines()) == 1 + 6 + 2
    assert f"{by_metric['correct']['difference']:+.3f}" in again.stdout


def test_several_values_of_keys_are_compared_in_all_combinations(kernelrl: Run, tmp_path: Path) -> None:
    values = ("train.learning_rate=0.0", "train.learning_rate=0.1", "train.substeps=2", "train.substeps=1")
    arguments = ("ablate", "small.yaml", *values, "--seeds", "0,3")
    planned = kernelrl(*arguments, "--dry-run", "--json")
    facts = json.loads(planned.stdout)
    assert facts["arms"] == {
        "base": [],
        "changed 1": ["train.learning_rate=0.0", "train.substeps=2"],
        "changed 2": ["train.learning_rate=0.0", "train.substeps=1"],
        "changed 3": ["train.learning_rate=0.1", "train.substeps=2"],
        "changed 4": ["train.learning_rate=0.1", "train.substeps=1"],
    }
    one = json.loads(kernelrl("run", "small.yaml", "eval.at_end=true", "--dry-run", "--json").stdout)
    # 5 recipes with 2 seeds, all of the same size.
    assert facts["cost"]["reply_tokens_at_most"] == 10 * one["reply_tokens_at_most"]
    assert facts["cost"]["prompt_tokens"] == 10 * one["prompt_tokens"]
    done = kernelrl(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["comparisons"]
    assert [each["arm"] for each in found] == ["changed 1", "changed 2", "changed 3", "changed 4"]
    again = kernelrl(*arguments)
    assert "runs       10, of which 10 are finished" in again.stderr
    assert "cost       at most 0 reply tokens" in again.stderr
    lines = again.stdout.splitlines()
    assert len(lines) == 1 + 4 * 6 + 3
    assert lines[0].split()[:2] == ["compared", "metric"]
    assert lines[7].startswith("train.learning_rate=0.0 train.substeps=1  compiled")


def test_two_changes_to_the_same_recipe_are_refused(kernelrl: Run) -> None:
    refused = kernelrl("ablate", "small.yaml", "train.learning_rate=0.1", "train.learning_rate=0.10")
    assert refused.returncode == 2
    assert "train.learning_rate=0.10 changes nothing in small.yaml train.learning_rate=0.1" in refused.stderr


def test_a_killed_comparison_is_continued(kernelrl: Run, start: Start, tmp_path: Path) -> None:
    """The first run is finished, the second one stopped; neither finished replies nor finished runs are repeated."""
    gate = tmp_path / "gate"
    arguments = ("ablate", "small.yaml", f"policy.gate={gate}", "--seeds", "0")
    # The first run has 2 steps of 2 * 4 replies and an evaluation of 4 * 4; the second one gives 3 of its replies.
    gate.write_text(str(2 * 2 * 4 + 4 * 4 + 3))
    process = start(*arguments)

    def second(name: str) -> str:
        return "".join(path.read_text() for path in tmp_path.glob(f"runs/small-changed-*/{name}"))

    wait_until(lambda: second("samples.jsonl"), process=process)
    process.send_signal(signal.SIGTERM)
    wait_until(lambda: json.loads(second("state.json")).get("progress", {}).get("stopping"), process=process)
    gate.unlink()
    stopped = process.communicate(timeout=DEADLINE_S)[1]
    assert process.returncode == 130
    assert "the same command continues" in stopped
    base = next(tmp_path.glob("runs/small-base-*"))
    before = (base / "samples.jsonl").stat().st_mtime_ns
    done = kernelrl(*arguments)
    assert done.returncode == 0, done.stderr
    assert "runs      2, of which 1 are finished" in done.stderr
    assert (base / "samples.jsonl").stat().st_mtime_ns == before
    ids = [row["sample"] for row in rows(next(tmp_path.glob("runs/small-changed-*/samples.jsonl")))]
    assert len(ids) == len(set(ids)) == 16


def test_eval_only_compares_a_run_with_and_without_the_change(kernelrl: Run, tmp_path: Path) -> None:
    assert kernelrl("run", "small.yaml", "--name", "a").returncode == 0
    arguments = ("ablate", "runs/a", "episode.turns=2", "--eval-only", "--seeds", "1", "--json")
    done = kernelrl(*arguments)
    assert done.returncode == 0, done.stderr
    assert "evaluations  2, of which 0 are finished" in done.stderr
    assert names(tmp_path / "runs/ablations") == ["a-base-seed1", "a-changed-seed1"]
    by_metric = {row["metric"]: row for row in json.loads(done.stdout)["comparisons"][0]["differences"]}
    # A second turn can only solve more.
    assert by_metric["pass@1"]["difference"] > 0
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["a", "ablations"]
    again = kernelrl(*arguments)
    assert json.loads(again.stdout)["comparisons"] == json.loads(done.stdout)["comparisons"]
    assert "evaluations  2, of which 2 are finished" in again.stderr


def test_a_dry_run_starts_nothing(kernelrl: Run, tmp_path: Path) -> None:
    shown = kernelrl("ablate", "small.yaml", CHANGE, "--dry-run")
    assert shown.returncode == 0
    assert "runs      2, of which 0 are finished" in shown.stdout
    facts = json.loads(kernelrl("ablate", "small.yaml", CHANGE, "--dry-run", "--json").stdout)
    assert (facts["tasks"], facts["episodes_per_task"]) == (4, 4)
    assert facts["expected_detectable"] == pytest.approx(0.9173, abs=1e-3)
    one = json.loads(kernelrl("ablate", "small.yaml", CHANGE, "eval.max_tasks=4", "--dry-run", "--json").stdout)
    assert one["arms"] == {"base": [], "changed": [CHANGE, "eval.max_tasks=4"]}
    assert not (tmp_path / "runs").exists()


def test_runs_with_another_index_are_not_reused(kernelrl: Run, tmp_path: Path) -> None:
    (tmp_path / "retrieving.yaml").write_text("extends: small.yaml\nretriever: {use: fake, index: index.json}\n")
    runs = []
    for text in ("[]", "[ ]"):
        (tmp_path / "index.json").write_text(text)
        planned = kernelrl("ablate", "retrieving.yaml", "retriever=null", "--dry-run", "--json")
        runs.append([run["path"] for run in json.loads(planned.stdout)["runs"]])
    (base, changed), (other_base, same_changed) = runs
    assert base != other_base
    assert changed == same_changed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "KEY=VALUE"),
        (("train.steps=2",), "changes nothing in small.yaml"),
        (("seed=7",), "changes nothing in small.yaml"),
        (("eval.max_tasks=2",), "other held-out tasks"),
        (("train.grop_size=2",), "group_size"),
        ((CHANGE, "--seeds", "0,x"), "not a list of integers"),
        ((CHANGE, "--seeds", "1,1"), "repeats a seed"),
        ((CHANGE, "--output", "small.yaml"), "small.yaml already exists"),
        ((CHANGE, "--output", "away/out.json"), "mkdir -p"),
        (("retriever={use: nothing}",), "nothing"),
    ],
)
def test_bad_arguments_are_refused_before_anything_starts(
    kernelrl: Run, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    refused = kernelrl("ablate", "small.yaml", *arguments)
    assert refused.returncode in (2, 3)
    assert words in refused.stderr
    assert not (tmp_path / "runs").exists()
    assert "small" in (tmp_path / "small.yaml").read_text() or (tmp_path / "small.yaml").read_text() == RECIPE


def test_a_failed_run_ends_the_comparison(kernelrl: Run) -> None:
    failed = kernelrl("ablate", "small.yaml", "policy.fail=update")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "planted in update" in failed.stderr
    assert "the same command continues" in failed.stderr
