"""`kernelrl eval --kernels` with the plugin of fakes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from kernelrl_command_server import Command, CommandServer

from kernelrl_testing.waiting import wait_until

FAKES = Path(__file__).parents[3] / "tests/fakes"
RECIPE = """
tasks:     {use: fake}
backend:   {use: fake}
policy:    {use: fake}
evaluator: {use: fake}
feedback:  {use: fake}
forbid:    []
rewards:   {correct: {use: fake}}
episode:   {turns: 2}
train:     {tasks_per_step: 2, group_size: 4, steps: 1}
eval:      {samples: 3, at_end: true}
"""
KERNEL = "class ModelNew:\n    def forward(self, x):\n        return {word!r}  # {number}\n"

Start = Callable[..., Command]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def start(tmp_path: Path, command_server: CommandServer) -> Start:
    (tmp_path / "small.yaml").write_text(RECIPE)
    environment = {**os.environ, "PYTHONPATH": str(FAKES), "KERNELRL_CACHE_DIR": str(tmp_path / "cache")}
    return lambda *arguments: command_server.start(*arguments, cwd=tmp_path, env=environment)


@pytest.fixture
def kernelrl(start: Start) -> Run:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return start(*arguments).result()

    return run


def write_kernels(folder: Path, *words: str) -> None:
    """A kernel for each of the first tasks of split `held_out`, named by the task's id."""
    for number, word in enumerate(words):
        path = folder / f"fake/held_out/{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(KERNEL.format(word=word, number=number))


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_kernels_of_a_folder_are_scored_as_replies(kernelrl: Run, tmp_path: Path) -> None:
    write_kernels(tmp_path / "own", "right", "wrong", "right", "wrong")
    report = json.loads(kernelrl("eval", "small.yaml", "--kernels", "own", "--json").stdout)
    assert (report["policy"], report["split"], report["temperature"]) == ("the kernels of own", "held_out", None)
    assert (report["num_tasks"], report["pass@1"], report["fast_1.2"]) == (4, 0.5, 0.5)


def test_an_earlier_output_and_its_run_give_the_same_outcomes(kernelrl: Run, tmp_path: Path) -> None:
    assert kernelrl("run", "small.yaml", "--name", "a").returncode == 0
    first = json.loads(kernelrl("eval", "a", "--output", "first.json", "--json").stdout)
    from_file = kernelrl("eval", "small.yaml", "--kernels", "first.json", "--output", "second.json", "--json")
    again = json.loads(from_file.stdout)
    keys = ("num_tasks", "num_samples", "num_correct", "pass@1", "fast_1.2", "outcomes", "samples", "reward_mean")
    assert {key: again[key] for key in keys} == {key: first[key] for key in keys}
    assert len(json.loads((tmp_path / "second.json").read_text())["rows"]) == 4 * 3 * 2
    assert json.loads(kernelrl("eval", "small.yaml", "--kernels", "a", "--json").stdout)["num_samples"] == 12


def test_after_kills_at_most_the_kernels_in_flight_are_evaluated_again(
    kernelrl: Run, start: Start, tmp_path: Path
) -> None:
    rows, kills, capacity = 240, 10, 2
    rows_path = tmp_path / "rows.json"
    made = json.loads(kernelrl("eval", "small.yaml", "--samples", "30", "--output", "rows.json", "--json").stdout)
    assert made["num_samples"] * 2 == rows
    document = json.loads(rows_path.read_text())
    for number, row in enumerate(document["rows"]):
        row["extraction"]["candidate"]["source"] += f"# {number}\n"
    rows_path.write_text(json.dumps(document))
    log = tmp_path / "evaluated.log"
    slow = ("evaluator.delay_s=0.01", f"evaluator.capacity={capacity}", f"evaluator.log={log}")
    command = ("eval", "small.yaml", "--kernels", "rows.json", "--output", "out.json", *slow, "--json")
    for kill in range(kills):
        process = start(*command)
        wait_until(lambda: len(lines(log)) >= 21 * (kill + 1), process=process)  # noqa: B023  # called at once
        process.send_signal(signal.SIGKILL)
        process.communicate()
    report = json.loads(kernelrl(*command).stdout)
    assert report["num_samples"] * 2 == rows
    evaluated = Counter(lines(log))
    assert len(evaluated) == rows
    assert sum(evaluated.values()) <= rows + kills * 2 * capacity


def test_changed_kernels_do_not_continue_an_interrupted_evaluation(kernelrl: Run, start: Start, tmp_path: Path) -> None:
    write_kernels(tmp_path / "own", *["right"] * 4)
    command = ("eval", "small.yaml", "--kernels", "own", "--output", "out.json", "--json", "evaluator.delay_s=0.3")
    process = start(*command, "evaluator.capacity=1")
    wait_until(lambda: len(lines(tmp_path / "out.json.partial")) > 1, process=process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    write_kernels(tmp_path / "own", *["wrong"] * 4)
    assert json.loads(kernelrl(*command, "evaluator.capacity=1").stdout)["num_correct"] == 0


@pytest.mark.parametrize("option", [("--samples", "2"), ("--checkpoint", "1"), ("--temperature", "1")])
def test_options_of_a_policy_are_refused(kernelrl: Run, option: tuple[str, str]) -> None:
    refused = kernelrl("eval", "small.yaml", "--kernels", "own", *option)
    assert refused.returncode == 2
    assert f"{option[0]} is for a policy" in refused.stderr


BESIDE_A_TASK = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"


def test_a_suite_is_listed_and_needs_no_policy_in_the_recipe(kernelrl: Run, tmp_path: Path) -> None:
    (tmp_path / "least.yaml").write_text("backend: {use: fake}\nevaluator: {use: fake}\nforbid: []\n")
    for name, word in (("first", "right"), ("second", "wrong")):
        place = tmp_path / "suite" / name
        place.mkdir(parents=True)
        (place / "task.py").write_text(BESIDE_A_TASK)
        (place / "kernel.py").write_text(KERNEL.format(word=word, number=0))
    done = kernelrl("eval", "least.yaml", "--kernels", "suite")
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[-3:] == [
        "kernel                  task    outcome    verdict  speedup",
        "suite/first/kernel.py   first   correct    clean    1.50",
        "suite/second/kernel.py  second  incorrect  clean",
    ]
    (tmp_path / "suite/second/kernel.py").write_text(KERNEL.format(word="right", number=1))
    assert kernelrl("eval", "least.yaml", "--kernels", "suite", "--json").returncode == 0
