"""More steps for a finished run, and a new run with the weights of another one, with a plugin of fakes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kernelrl_command_server import CommandServer

FAKES = Path(__file__).parents[1] / "fakes"
RECIPE = """
tasks:     {use: fake}
backend:   {use: fake}
policy:    {use: fake}
evaluator: {use: fake}
feedback:  {use: fake}
forbid:    []
rewards:   {correct: {use: fake}}
train:     {tasks_per_step: 2, group_size: 4, steps: 2, learning_rate: 0.01, drop_uniform_groups: false}
eval:      {at_end: true}
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def kernelrl(tmp_path: Path, command_server: CommandServer) -> Run:
    (tmp_path / "small.yaml").write_text(RECIPE)
    environment = {**os.environ, "PYTHONPATH": str(FAKES), "KERNELRL_CACHE_DIR": str(tmp_path / "cache")}
    environment |= {"KERNELRL_RUN_SECRET": "5a" * 32}

    def run(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        return command_server.start(*arguments, cwd=tmp_path, env=environment).result(code)

    return run


def rows(run: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / f"{name}.jsonl").read_text().splitlines()]


def metrics(run: Path) -> list[dict[str, Any]]:
    """Metrics rows without durations, and without the share of the steps that are done."""
    own = ("time/", "cost/", "progress/done_frac", "eval/")
    return [{k: v for k, v in row.items() if not k.startswith(own)} for row in rows(run, "metrics")]


def weight(run: Path, name: str) -> float:
    return float((run / "checkpoints" / name / "weight.json").read_text())


# --- more steps for a finished run ----------------------------------------------------------------------------------


def test_extended_run_equals_a_run_with_more_steps(kernelrl: Run, tmp_path: Path) -> None:
    kernelrl("run", "small.yaml", "--name", "a")
    done = json.loads(kernelrl("run", "small.yaml", "--name", "a", "--extend", "train.steps=4", "--json").stdout)
    kernelrl("run", "small.yaml", "--name", "whole", "train.steps=4")
    a, whole = tmp_path / "runs/a", tmp_path / "runs/whole"
    assert (done["state"], done["steps"], done["steps_total"]) == ("finished", 4, 4)
    assert metrics(a) == metrics(whole)
    assert rows(a, "credits") == rows(whole, "credits")
    assert weight(a, "000004") == weight(whole, "000004") != weight(a, "000002")
    assert (a / "recipe.yaml").read_text() == (whole / "recipe.yaml").read_text()
    ids = [row["sample"] for row in rows(a, "samples")]
    assert len(ids) == len(set(ids)) == 4 * 2 * 4


def test_run_with_overrides_is_extended_with_its_own_recipe(kernelrl: Run, tmp_path: Path) -> None:
    kernelrl("run", "small.yaml", "--name", "a", "seed=1")
    kernelrl("run", "runs/a/recipe.yaml", "--name", "a", "--extend", "train.steps=3")
    kernelrl("run", "small.yaml", "--name", "whole", "seed=1", "train.steps=3")
    assert metrics(tmp_path / "runs/a") == metrics(tmp_path / "runs/whole")


def test_interrupted_extension_is_resumed(kernelrl: Run, tmp_path: Path) -> None:
    """The state after a crash directly after the recipe was replaced."""
    kernelrl("run", "small.yaml", "--name", "a")
    kernelrl("run", "small.yaml", "--name", "whole", "train.steps=4")
    for name in ("recipe.yaml", "provenance.json"):
        shutil.copy(tmp_path / "runs/whole" / name, tmp_path / "runs/a" / name)
    (tmp_path / "runs/a/state.json").write_text('{"state": "running"}')
    kernelrl("resume", "a")
    assert metrics(tmp_path / "runs/a") == metrics(tmp_path / "runs/whole")


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ((), ("train.steps=2",), "--extend: train.steps=2 is not above the 2 steps"),
        ((), ("train.steps=1",), "--extend: train.steps=1 is not above the 2 steps"),
        ((), ("train.steps=4", "seed=1"), "differ in seed (0 -> 1), train.steps (2 -> 4)"),
        (("seed=1",), ("train.steps=4",), "differ in seed (1 -> 0), train.steps (2 -> 4)"),
        (("train.warmup_ratio=0.1",), ("train.warmup_ratio=0.1", "train.steps=4"), "(train.warmup_ratio)"),
        (("train.steps=null", "train.epochs=1"), ("train.steps=4",), "has its number of steps from train.epochs"),
        ((), ("train.steps=null", "train.epochs=1"), "this recipe has its number of steps from train.epochs"),
    ],
)
def test_extension_is_refused_where_the_longer_run_would_differ(
    kernelrl: Run, tmp_path: Path, first: tuple[str, ...], second: tuple[str, ...], words: str
) -> None:
    kernelrl("run", "small.yaml", "--name", "a", *first)
    before = {path.name: path.read_bytes() for path in (tmp_path / "runs/a").iterdir() if path.is_file()}
    refused = kernelrl("run", "small.yaml", "--name", "a", "--extend", *second, code=2)
    assert words in refused.stderr
    assert {path.name: path.read_bytes() for path in (tmp_path / "runs/a").iterdir() if path.is_file()} == before


def test_extension_of_a_failed_run_names_resume(kernelrl: Run) -> None:
    kernelrl("run", "small.yaml", "--name", "a", "policy.fail=update", code=1)
    refused = kernelrl("run", "small.yaml", "--name", "a", "--extend", "train.steps=4", code=2)
    assert "run runs/a is not finished, but failed" in refused.stderr
    assert "fix: kernelrl resume runs/a" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--extend",), "--extend needs the --name"),
        (("--name", "aa", "--extend"), "did you mean 'a'?"),
        (("--name", "b", "--from", "a", "--exist-ok"), "exclude each other"),
        (("--name", "b", "--from", "aa"), "did you mean 'a'?"),
        (("--name", "b", "--from", "a@7"), "no checkpoint '7' in runs/a/checkpoints; did you mean '00000"),
    ],
)
def test_bad_arguments_are_one_clear_line(
    kernelrl: Run, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    kernelrl("run", "small.yaml", "--name", "a")
    assert words in kernelrl("run", "small.yaml", *arguments, "train.steps=4", code=2).stderr
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["a"]


def test_exist_ok_with_other_overrides_names_the_difference(kernelrl: Run) -> None:
    kernelrl("run", "small.yaml", "--name", "a")
    refused = kernelrl("run", "small.yaml", "--name", "a", "--exist-ok", "train.steps=4", code=2).stderr
    assert "it differs in train.steps (2 -> 4)" in refused
    assert "--extend" in refused


# --- an edited recipe.yaml of a finished run ------------------------------------------------------------------------


def edit(run: Path, old: str, new: str) -> None:
    text = (run / "recipe.yaml").read_text()
    assert old in text
    (run / "recipe.yaml").write_text(text.replace(old, new))


def test_finished_run_with_an_edited_recipe_is_not_resumed_silently(kernelrl: Run, tmp_path: Path) -> None:
    kernelrl("run", "small.yaml", "--name", "a")
    edit(tmp_path / "runs/a", "learning_rate: 0.01", "learning_rate: 0.02")
    assert "was changed after the run started" in kernelrl("resume", "a", code=2).stderr
    refused = kernelrl("resume", "a", "--accept-changes", code=2).stderr
    assert "it has made 2 steps, and the changed recipe has 2, so the changes would have no effect" in refused


def test_accepted_steps_of_a_finished_run_are_trained(kernelrl: Run, tmp_path: Path) -> None:
    kernelrl("run", "small.yaml", "--name", "a")
    edit(tmp_path / "runs/a", "  steps: 2\n", "  steps: 3\n")
    kernelrl("resume", "a", "--accept-changes")
    kernelrl("run", "small.yaml", "--name", "whole", "train.steps=3")
    assert metrics(tmp_path / "runs/a") == metrics(tmp_path / "runs/whole")


# --- a new run with the weights of another one ----------------------------------------------------------------------


def test_branch_begins_with_the_weights_of_the_checkpoint(kernelrl: Run, tmp_path: Path) -> None:
    kernelrl("run", "small.yaml", "--name", "a")
    still = ("train.learning_rate=0", "train.steps=1")
    kernelrl("run", "small.yaml", "--name", "last", "--from", "a", *still)
    kernelrl("run", "small.yaml", "--name", "first", "--from", "runs/a@1", *still)
    runs = tmp_path / "runs"
    assert weight(runs / "last", "000001") == weight(runs / "a", "000002") != weight(runs / "a", "000001")
    assert weight(runs / "first", "000001") == weight(runs / "a", "000001")
    origin = json.loads((runs / "first/provenance.json").read_text())["origin"]
    assert (origin["run"], origin["checkpoint"]) == (str(runs / "a"), "000001")


def test_branch_is_resumed_without_its_origin(kernelrl: Run, tmp_path: Path) -> None:
    kernelrl("run", "small.yaml", "--name", "a")
    kernelrl("run", "small.yaml", "--name", "whole", "--from", "a")
    kernelrl("run", "small.yaml", "--name", "b", "--from", "a", "policy.fail=update", code=1)
    shutil.rmtree(tmp_path / "runs/a")
    edit(tmp_path / "runs/b", "fail: update", "fail: ''")
    kernelrl("resume", "b", "--accept-changes")
    assert metrics(tmp_path / "runs/b") == metrics(tmp_path / "runs/whole")
    assert weight(tmp_path / "runs/b", "000002") == weight(tmp_path / "runs/whole", "000002")


def test_untrained_policy_of_a_branch_has_the_weights_of_its_origin(kernelrl: Run, tmp_path: Path) -> None:
    kernelrl("run", "small.yaml", "--name", "a", "train.learning_rate=10.0")
    assert weight(tmp_path / "runs/a", "000002") > 1  # every reply is right
    kernelrl("run", "small.yaml", "--name", "b", "--from", "a", "train.steps=1")
    report = json.loads(kernelrl("eval", "b", "--checkpoint", "base", "--json").stdout)
    assert report["pass@1"] == 1.0


def test_policies_that_do_not_match_are_one_error(kernelrl: Run, tmp_path: Path) -> None:
    kernelrl("run", "small.yaml", "--name", "a")
    edit(tmp_path / "runs/a", "  use: fake\n  delay_s", "  use: other\n  delay_s")
    refused = kernelrl("run", "small.yaml", "--name", "b", "--from", "a", code=2).stderr
    assert "was trained with policy 'other', and the recipe has policy 'fake'" in refused
    assert not (tmp_path / "runs/b").exists()


# --- damaged checkpoints --------------------------------------------------------------------------------------------


def test_damaged_checkpoint_is_replaced_by_the_one_before_it(kernelrl: Run, tmp_path: Path) -> None:
    kernelrl("run", "small.yaml", "--name", "whole", "train.steps=4")
    kernelrl("run", "small.yaml", "--name", "a", "train.steps=3")
    saved = tmp_path / "runs/a/checkpoints/000003/weight.json"
    saved.write_text("garbage")
    said = kernelrl("run", "small.yaml", "--name", "a", "--extend", "train.steps=4").stderr
    assert "checkpoint 000003 is damaged: weight.json differs from the saved file" in said
    assert "continuing from checkpoint 000002" in said
    a, whole = tmp_path / "runs/a", tmp_path / "runs/whole"
    assert metrics(a) == metrics(whole)
    assert rows(a, "credits") == rows(whole, "credits")
    assert [weight(a, name) for name in ("000003", "000004")] == [weight(whole, name) for name in ("000003", "000004")]
    ids = [row["sample"] for row in rows(a, "samples")]
    assert len(ids) == len(set(ids))


def test_run_without_an_intact_checkpoint_is_trained_again_from_its_samples(kernelrl: Run, tmp_path: Path) -> None:
    kernelrl("run", "small.yaml", "--name", "a")
    shutil.rmtree(tmp_path / "runs/a/checkpoints/000001")
    (tmp_path / "runs/a/checkpoints/000002/weight.json").write_text("0.1")
    before = rows(tmp_path / "runs/a", "samples")
    said = kernelrl("run", "small.yaml", "--name", "a", "--extend", "train.steps=3").stderr
    kernelrl("run", "small.yaml", "--name", "whole", "train.steps=3")
    assert "continuing from the initial weights" in said
    assert rows(tmp_path / "runs/a", "samples")[: len(before)] == before
    assert metrics(tmp_path / "runs/a") == metrics(tmp_path / "runs/whole")
    assert weight(tmp_path / "runs/a", "000003") == weight(tmp_path / "runs/whole", "000003")


@pytest.mark.parametrize("arguments", [("eval", "a"), ("run", "small.yaml", "--from", "a")])
def test_damaged_checkpoint_is_not_evaluated_or_branched_from(
    kernelrl: Run, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    kernelrl("run", "small.yaml", "--name", "a")
    (tmp_path / "runs/a/checkpoints/000002/weight.json").write_text("0.1")
    failed = kernelrl(*arguments, code=1).stderr
    assert "is damaged: weight.json differs from the saved file" in failed
    kernelrl(*arguments[:-1], f"{arguments[-1]}@1" if arguments[0] == "run" else "a", *(
        () if arguments[0] == "run" else ("--checkpoint", "1")
    ))  # fmt: skip
