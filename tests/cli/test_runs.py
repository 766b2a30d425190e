"""Runs from the command line, with a plugin of fakes: every way a run can begin, end and go on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kernelrl_command_server import Command, CommandServer

from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe.explain import explain
from kernelrl_core.runs.directory import RunDir
from kernelrl_core.sources.yaml import load_yaml
from kernelrl_testing.waiting import DEADLINE_S, wait_until

FAKES = Path(__file__).parents[1] / "fakes"
MAIN = [sys.executable, "-c", "from kernelrl_core.cli.main import main; main()"]
RECIPE = """
tasks:     {use: fake}
backend:   {use: fake}
policy:    {use: fake}
evaluator: {use: fake}
feedback:  {use: fake}
forbid:    []
rewards:   {correct: {use: fake}}
loggers:   {mine: {use: fake}}
episode:   {turns: 2}
returns:   {gamma: 0.4}
train:     {tasks_per_step: 2, group_size: 4, steps: 3, learning_rate: 0.1}
eval:      {at_start: true, at_end: true, samples: 2}
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Process = subprocess.Popen[str] | Command


@pytest.fixture
def start(tmp_path: Path, command_server: CommandServer) -> Callable[..., Process]:
    """Starts a command: forked by the server, or in a new interpreter with `new=True` or options of Popen."""
    (tmp_path / "small.yaml").write_text(RECIPE)
    environment = {**os.environ, "PYTHONPATH": str(FAKES), "KERNELRL_CACHE_DIR": str(tmp_path / "cache")}
    environment |= {"KERNELRL_RUN_SECRET": "5a" * 32}

    def starter(*arguments: str, new: bool = False, **options: Any) -> Process:
        if not new and not options:
            return command_server.start(*arguments, cwd=tmp_path, env=environment)
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [*MAIN, *arguments], cwd=tmp_path, env=environment, stdout=pipe, stderr=pipe, text=True, **options
        )

    return starter


@pytest.fixture
def kernelrl(start: Callable[..., Process]) -> Run:
    def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        process = start(*arguments, **options)
        out, err = process.communicate(timeout=DEADLINE_S)
        assert "Traceback" not in err, err
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    return run


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def metrics(run: Path) -> list[dict[str, Any]]:
    return [
        {k: v for k, v in row.items() if not k.startswith(("time/", "cost/"))} for row in rows(run / "metrics.jsonl")
    ]


def test_a_run_and_the_output_of_the_commands_about_it(kernelrl: Run, tmp_path: Path) -> None:
    done = kernelrl("run", "small.yaml", "--name", "a", "train.steps=2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "run: runs/a"
    assert "step 1 (2 of 2)" in done.stderr
    run = tmp_path / "runs/a"
    log = (run / "fake.log").read_text().splitlines()
    assert (log[0], log[-1], sum(line.startswith("step") for line in log)) == ("start 0", "finish finished", 2)
    assert sum(line.startswith("turn") for line in log) == 2 * 2 * 4 * 2
    assert [line for line in log if line.startswith("credits")] == ["credits 16"] * 2
    assert [line for line in log if line.startswith("evaluation")] == ["evaluation after 0", "evaluation after 2"]
    assert json.loads((run / "provenance.json").read_text())["overrides"] == ["train.steps=2"]

    status = json.loads(kernelrl("status", "a", "--json").stdout)
    assert (status["state"], status["steps"], status["steps_total"]) == ("finished", 2, 2)
    assert status["held_out_before"] is not None
    assert "step 1 (2 of 2)" in kernelrl("logs", "a", "-f", new=True).stdout
    assert len(kernelrl("logs", "a", "-n", "1").stdout.splitlines()) == 1
    assert [item["run"] for item in json.loads(kernelrl("runs", "list", "--json", new=True).stdout)["runs"]] == [
        "runs/a"
    ]
    assert json.loads(kernelrl("runs", "show", "a", "--json").stdout)["checkpoints"] == ["000001", "000002"]

    before = {name: (run / name).read_bytes() for name in ("metrics.jsonl", "samples.jsonl", "checkpoints.jsonl")}
    assert len(before["metrics.jsonl"].splitlines()) == 2
    again = kernelrl("resume", "a")
    assert again.returncode == 0
    assert {name: (run / name).read_bytes() for name in before} == before

    refused = kernelrl("run", "small.yaml", "--name", "a")
    assert refused.returncode == 2
    assert "kernelrl resume" in refused.stderr
    shown = kernelrl("run", "small.yaml", "--name", "a", "--exist-ok", "--json", "train.steps=2")
    assert json.loads(shown.stdout)["state"] == "finished"

    evaluated = kernelrl("eval", "a", "--samples", "3", "--output", "out.json", "--json")
    report = json.loads(evaluated.stdout)
    assert report["num_samples"] == 12
    assert "checkpoint 000002" in report["policy"]
    assert report["fast_0"] == report["pass@1"]
    assert len(json.loads((tmp_path / "out.json").read_text())["rows"]) == 24
    assert kernelrl("eval", "a", "--checkpoint", "7").returncode == 2


def test_every_key_that_a_run_and_an_evaluation_print_is_explained(kernelrl: Run, tmp_path: Path) -> None:
    options = [
        "verify={train: 1.0, eval: 1.0}",
        "checkers={own: {use: fake}}",
        "cost.prices={prompt: 1.0, reply: 1.0}",
    ]
    assert kernelrl("run", "small.yaml", "--name", "a", *options).returncode == 0
    printed = {key for row in rows(tmp_path / "runs/a/metrics.jsonl") for key in row}
    printed |= json.loads(kernelrl("eval", "a", "--json").stdout).keys()
    printed |= {finding["rule"] for row in rows(tmp_path / "runs/a/samples.jsonl") for finding in row["findings"]}
    assert {"pass@1", "fast_1", "checker_failed", "multiturn/turn_0/correct_rate", "cost/usd"} <= printed
    unspecific = {
        key for key in printed for one in explain(key, registry()) if one.name in ("eval/*", "time/*", "cost/*")
    }
    assert unspecific == set()


def test_a_killed_run_resumes_to_the_same_result(kernelrl: Run, start: Any, tmp_path: Path) -> None:
    slow = "policy.delay_s=0.1"
    assert kernelrl("run", "small.yaml", "--name", "whole", slow).returncode == 0
    process = start("run", "small.yaml", "--name", "a", slow, new=True)
    samples = tmp_path / "runs/a/samples.jsonl"
    wait_until(lambda: samples.exists() and samples.read_text().count("\n") >= 20, process=process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    status = json.loads(kernelrl("status", "a", "--json", new=True).stdout)
    assert status["state"] == "killed"
    assert status["stopped_in"] is None or status["stopped_in"].startswith(("start: ", "step "))
    assert kernelrl("resume", "a", new=True).returncode == 0
    assert metrics(tmp_path / "runs/a") == metrics(tmp_path / "runs/whole")
    ids = [row["sample"] for row in rows(samples)]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("presses", [1, 2])
def test_an_interrupt_ends_after_the_step_and_a_second_one_at_once(
    kernelrl: Run, start: Any, tmp_path: Path, presses: int
) -> None:
    process = start("run", "small.yaml", "--name", "a", "policy.delay_s=0.3", "train.steps=50")
    samples = tmp_path / "runs/a/samples.jsonl"
    wait_until(lambda: samples.exists() and samples.read_text(), process=process)
    process.send_signal(signal.SIGINT)
    if presses == 2:
        state = tmp_path / "runs/a/state.json"
        wait_until(lambda: json.loads(state.read_text()).get("progress", {}).get("stopping"), process=process)
        process.send_signal(signal.SIGINT)
    _out, err = process.communicate()
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert ("stopped immediately" in err) == (presses == 2)
    assert json.loads(kernelrl("status", "a", "--json").stdout)["state"] == "stopped"
    checkpoints = len(rows(tmp_path / "runs/a/checkpoints.jsonl"))
    assert (checkpoints > 0) == (presses == 1)


def test_one_interrupt_stops_the_start_of_the_policy(kernelrl: Run, start: Any, tmp_path: Path) -> None:
    process = start("run", "small.yaml", "--name", "a", "policy.start_s=60")
    state = tmp_path / "runs/a/state.json"
    wait_until(lambda: state.exists() and "preparing policy" in state.read_text(), process=process)
    process.send_signal(signal.SIGINT)
    _out, err = process.communicate()
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "stopped during the preparation; a warm start that had not ended is lost; continue with: kernelrl" in err
    status = kernelrl("status", "a").stdout
    assert "state       stopped\n" in status
    assert "stopped in  start: 0 s; preparing policy 'fake' and evaluator 'fake'\n" in re.sub(
        r": \d+ s", ": 0 s", status
    )
    assert rows(tmp_path / "runs/a/samples.jsonl") == []


@pytest.mark.parametrize("where", ["start", "sample", "update"])
def test_a_failing_policy_is_named_and_the_run_can_resume(kernelrl: Run, tmp_path: Path, where: str) -> None:
    failed = kernelrl("run", "small.yaml", "--name", "a", f"policy.fail={where}")
    assert failed.returncode == 1
    assert f"policy 'fake' failed in {where}: RuntimeError: planted" in failed.stderr
    status = json.loads(kernelrl("status", "a", "--json").stdout)
    assert (status["state"], where in status["error"]) == ("failed", True)
    recipe = tmp_path / "runs/a/recipe.yaml"
    recipe.write_text(recipe.read_text().replace(f"fail: {where}", "fail: ''"))
    changed = kernelrl("resume", "a")
    assert changed.returncode == 2
    assert "was changed" in changed.stderr
    assert kernelrl("resume", "a", "--accept-changes").returncode == 0


@pytest.mark.parametrize("more", [[], ["--exist-ok"]])
def test_the_name_of_a_run_that_failed_before_its_first_sample_is_free(
    kernelrl: Run, tmp_path: Path, more: list[str]
) -> None:
    assert kernelrl("run", "small.yaml", "--name", "a", "policy.fail=start").returncode == 1
    done = kernelrl("run", "small.yaml", "--name", "a", *more, "train.steps=1")
    assert done.returncode == 0, done.stderr
    assert len(rows(tmp_path / "runs/a/metrics.jsonl")) == 1
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["a"]


def test_a_run_that_failed_later_keeps_its_name_and_its_samples(kernelrl: Run, tmp_path: Path) -> None:
    assert kernelrl("run", "small.yaml", "--name", "a", "policy.fail=update").returncode == 1
    refused = kernelrl("run", "small.yaml", "--name", "a")
    assert refused.returncode == 2
    assert "kernelrl resume runs/a" in refused.stderr
    assert rows(tmp_path / "runs/a/samples.jsonl")


def test_a_failing_logger_stops_nothing(kernelrl: Run, tmp_path: Path) -> None:
    done = kernelrl("run", "small.yaml", "--name", "a", "loggers.mine.fail=true")
    assert done.returncode == 0
    assert "logger 'mine' failed in start; it gets no events" in (tmp_path / "runs/a/logs.log").read_text()


def test_a_failing_checker_is_in_the_metrics_and_in_the_summary(kernelrl: Run, tmp_path: Path) -> None:
    done = kernelrl("run", "small.yaml", "--name", "a", "checkers.mine.use=fake")
    assert done.returncode == 0
    error = r"Checker of kernelrl_fake: RuntimeError: planted in the checker \(\S+:\d+\)"
    warning = rf"checkers\.mine failed: {error}; first on kernel"
    assert len(re.findall(warning, done.stderr)) == 1
    assert "checker failures  in 3 of 3 steps; the first failure is in logs.log" in done.stdout
    assert [row["checker_failed_rate"] for row in rows(tmp_path / "runs/a/metrics.jsonl")] == [1.0, 1.0, 1.0]


def test_a_full_disk_fails_the_run_which_can_resume(kernelrl: Run, tmp_path: Path) -> None:
    import resource

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    failed = kernelrl("run", "small.yaml", "--name", "a", "evaluator.padding=20000", preexec_fn=small_files)
    assert failed.returncode == 1
    assert "samples.jsonl: File too large" in failed.stderr
    assert all(row["sample"] for row in rows(tmp_path / "runs/a/samples.jsonl"))
    again = kernelrl("resume", "a", preexec_fn=small_files)
    assert again.returncode == 1
    assert re.fullmatch(r"kernelrl: runs/a/\w+\.jsonl: File too large", again.stderr.splitlines()[-3])
    assert kernelrl("resume", "a").returncode == 0


def test_a_directory_that_cannot_be_written_is_an_error(kernelrl: Run, tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("not a directory")
    failed = kernelrl("run", "small.yaml", "--name", "a")
    assert failed.returncode == 1
    assert failed.stderr.splitlines()[1:] == [
        "kernelrl: runs/a: Not a directory",
        "kernelrl: fix: free disk space or permit access, then repeat this",
        "kernelrl: more: kernelrl explain storage",
    ]


def test_a_state_on_a_full_disk_overwrites_the_earlier_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelrl_core.runs import directory

    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "recipe.yaml").write_text("{}")
    run = directory.RunDir(tmp_path)
    run.set_state("running", "x" * 2000)
    monkeypatch.setattr(directory, "write_atomically", full)
    run.set_state("failed", "samples.jsonl: No space left on device")
    assert run.state() == ("failed", "samples.jsonl: No space left on device")


def test_a_closed_terminal_stops_the_run_after_its_step(kernelrl: Run, start: Any, tmp_path: Path) -> None:
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        pytest.skip("SIGHUP is ignored here, as under nohup")
    process = start("run", "small.yaml", "--name", "a", "policy.delay_s=0.3")
    samples = tmp_path / "runs/a/samples.jsonl"
    wait_until(lambda: samples.exists() and samples.read_text(), process=process)
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
    assert json.loads(kernelrl("status", "a", "--json").stdout)["state"] == "stopped"
    assert kernelrl("resume", "a").returncode == 0


def test_a_damaged_run_is_listed_with_its_damage(kernelrl: Run, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert kernelrl("run", "small.yaml", "--name", name, "train.steps=1", "eval.at_start=false").returncode == 0
    metrics = tmp_path / "runs/a/metrics.jsonl"
    metrics.write_text("{broken\n" + metrics.read_text())
    (tmp_path / "runs/b/recipe.yaml").unlink()
    listed = kernelrl("runs", "list")
    assert listed.returncode == 0
    assert "runs/a  damaged    runs/a/metrics.jsonl" in listed.stdout
    assert "runs/b  damaged    run runs/b has no recipe.yaml" in listed.stdout
    assert {one["damage"] is None for one in json.loads(kernelrl("runs", "list", "--json").stdout)["runs"]} == {False}
    assert "run runs/b has no recipe.yaml" in kernelrl("status", "b").stderr


def test_an_output_file_is_overwritten_only_with_force(kernelrl: Run, tmp_path: Path) -> None:
    assert kernelrl("run", "small.yaml", "--name", "a", "train.steps=1", "eval.at_start=false").returncode == 0
    output = tmp_path / "out"
    output.write_text("mine")
    for command in (("distill", "runs/a", "-o", "out"), ("eval", "runs/a", "--output", "out")):
        refused = kernelrl(*command)
        assert (refused.returncode, output.read_text()) == (2, "mine")
        assert "--output out already exists" in refused.stderr
        assert kernelrl(*command, "--force").returncode == 0
        assert output.read_text() != "mine"
        output.write_text("mine")


def test_the_files_of_a_recipe_are_reported(kernelrl: Run, tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes/smoke.yaml").write_text("extends: ../small.yaml\n")
    (tmp_path / "mine.yaml").write_text("extends: smoke\n")
    assert kernelrl("validate", "smoke").stderr == "recipe: recipes/smoke.yaml, extends small.yaml\n"
    bundled = kernelrl("validate", "mine.yaml").stderr.splitlines()[0]
    assert re.fullmatch(r"recipe: mine\.yaml, extends .*/recipes/smoke\.yaml \(bundled\).*", bundled)


def test_damage_in_the_middle_of_a_journal_is_an_error(kernelrl: Run, tmp_path: Path) -> None:
    kernelrl("run", "small.yaml", "--name", "a", "policy.fail=update")
    samples = tmp_path / "runs/a/samples.jsonl"
    lines = samples.read_text().splitlines(keepends=True)
    samples.write_text("".join([*lines[:2], "garbage\n", *lines[3:]]))
    failed = kernelrl("resume", "a")
    assert failed.returncode == 1
    assert "samples.jsonl:3" in failed.stderr


def test_a_run_stops_at_its_budget_in_one_message_and_resumes_with_more(kernelrl: Run, tmp_path: Path) -> None:
    """A sample reads 50 tokens and draws 2: 52 USD at a dollar a token; a step has 16."""
    prices = "cost.prices={prompt: 1.0e+6, reply: 1.0e+6, train: 0.0}"
    alone = ("eval.at_start=false", "eval.at_end=false")
    stopped = kernelrl("run", "small.yaml", "--name", "a", *alone, prices, "cost.budget_usd=900")
    assert stopped.returncode == 1
    assert "the budget is spent" in stopped.stderr
    assert "--accept-changes" in stopped.stderr
    assert json.loads(kernelrl("status", "a", "--json").stdout)["state"] == "stopped"
    kept = len(rows(tmp_path / "runs/a/samples.jsonl"))
    assert kept >= 18

    assert kernelrl("resume", "a").returncode == 1
    recipe = tmp_path / "runs/a/recipe.yaml"
    recipe.write_text(recipe.read_text().replace("budget_usd: 900", "budget_usd: 90000"))
    assert kernelrl("resume", "a").returncode == 2
    assert kernelrl("resume", "a", "--accept-changes").returncode == 0
    assert len(rows(tmp_path / "runs/a/samples.jsonl")) == 48
    assert metrics(tmp_path / "runs/a")
    assert rows(tmp_path / "runs/a/metrics.jsonl")[-1]["cost/total_usd"] == 48 * 52


def test_a_budget_of_nothing_or_without_prices_is_refused_at_once(kernelrl: Run, tmp_path: Path) -> None:
    for override in ("cost.budget_usd=0", "cost.budget_usd=5"):
        refused = kernelrl("run", "small.yaml", "--name", "a", override)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "cost.budget_usd" in refused.stderr
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_prints_the_maximum_cost(kernelrl: Run) -> None:
    """3 steps of 16 samples and 2 evaluations of 16; a reply has at most 4096 tokens."""
    prices = "cost.prices={prompt: 0.0, reply: 1.0e+6, train: 0.0}"
    plan = json.loads(kernelrl("run", "small.yaml", "--dry-run", "--json", prices).stdout)
    assert plan["reply_tokens_at_most"] == plan["usd_at_most"] == (3 + 2) * 16 * 4096
    assert plan["usd_per_step_at_most"] == 16 * 4096
    scarce = kernelrl("run", "small.yaml", "--dry-run", prices, "cost.budget_usd=9").stdout
    assert "cost.budget_usd, 9.00 USD, is below the estimated maximum cost of 327,680.00 USD" in scarce
    validated = kernelrl("validate", "small.yaml", prices, "cost.budget_usd=9")
    assert (validated.returncode, "9.00 USD, is below" in validated.stderr) == (0, True)
    assert "is below" not in kernelrl("run", "small.yaml", "--dry-run", prices, "cost.budget_usd=400000").stdout
    assert "no prices set: the cost is 0 if" in kernelrl("run", "small.yaml", "--dry-run").stdout


def test_a_free_run_prints_no_dollars(kernelrl: Run) -> None:
    for price, shown in ((0.0, False), (1.0, True)):
        prices = f"cost.prices={{prompt: {price}, reply: {price}, train: {price}}}"
        done = kernelrl("run", "small.yaml", "--name", f"at-{price:.0f}", "train.steps=1", prices)
        assert ("USD" in done.stderr, "USD" in done.stdout) == (shown, shown)


def test_a_dry_run_touches_nothing(kernelrl: Run, tmp_path: Path) -> None:
    plan = json.loads(kernelrl("run", "small.yaml", "--dry-run", "--json").stdout)
    assert (plan["tasks"], plan["steps"], plan["samples_per_step"], plan["missing"]) == (4, 3, 16, [])
    assert not (tmp_path / "runs").exists()
    assert "samples per step" in kernelrl("run", "small.yaml", "--dry-run").stdout


def test_no_run_exceeds_the_reply_tokens_of_its_dry_run(kernelrl: Run) -> None:
    """16 replies per step and per evaluation; limit 10, and 20 from step 2 on. Training: 16 * (10 + 10 + 20) = 640;
    evaluations after 0 and 3 updates: 16 * (10 + 20) = 480. The longest step: 16 * 20."""
    extended = ("sampling.max_tokens=10", "sampling.extend={after_step: 2, max_tokens: 20}")
    plan = json.loads(kernelrl("run", "small.yaml", "--dry-run", "--json", *extended).stdout)
    assert (plan["reply_tokens_at_most"], plan["reply_tokens_per_step_at_most"]) == (1120, 320)


def test_errors_of_the_first_step_are_refused_before_the_run_all_at_once(kernelrl: Run, tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text("class ModelNew: ...")
    wrong = ("curriculum={stages: [{levels: [7]}]}", "demonstrations.file=kernel.py")
    for command in (["validate", "small.yaml"], ["run", "small.yaml", "--dry-run"]):
        refused = kernelrl(*command, *wrong)
        assert refused.returncode == 2
        assert "curriculum.stages.0.levels: no task of split 'train' has one of" in refused.stderr
        assert "demonstrations.file: " in refused.stderr
        assert "kernel.py:1: not JSON" in refused.stderr


def test_a_policy_that_cannot_learn_is_refused_before_the_run(kernelrl: Run, tmp_path: Path) -> None:
    refused = kernelrl("run", "small.yaml", "policy.losses=[]")
    assert refused.returncode == 2
    assert "cannot learn" in refused.stderr
    assert not (tmp_path / "runs").exists()


def test_a_policy_that_cannot_learn_can_be_evaluated(kernelrl: Run) -> None:
    assert kernelrl("eval", "small.yaml", "policy.losses=[]", new=True).returncode == 0


def test_a_fix_of_a_plugin_names_the_run(kernelrl: Run) -> None:
    failed = kernelrl("run", "small.yaml", "--name", "a", "policy.fail=server")
    assert failed.returncode == 1
    assert "fix: when it is back: kernelrl resume runs/a\n" in failed.stderr


def test_an_evaluation_that_lost_every_sample_fails_with_the_last_error_and_its_fix(kernelrl: Run) -> None:
    failed = kernelrl("eval", "small.yaml", "policy.lost=1.0")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "every episode was lost" in failed.stderr
    assert "planted: the endpoint is away" in failed.stderr
    assert "fix: start the endpoint" in failed.stderr


def test_an_evaluation_reports_number_and_reason_of_lost_samples(kernelrl: Run) -> None:
    done = kernelrl("eval", "small.yaml", "--samples", "4", "policy.lost=0.5", "--json")
    lost = json.loads(done.stdout)["num_lost"]
    assert done.returncode == 0
    assert 0 < lost < 16
    assert f"{lost} of 16 episodes were lost to infrastructure errors; last error: planted" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["resume", "nothing"], "no run 'nothing'"),
        (["run", "small.yaml", "--name", "../x"], "directory name"),
        (["eval", "small.yaml", "--split", "nosuch", "eval.max_tasks=0"], "max_tasks"),
        (["run", "small.yaml", "train.steps=2", "train.epochs=1"], "epochs"),
    ],
)
def test_bad_arguments_are_one_clear_line(kernelrl: Run, tmp_path: Path, arguments: list[str], words: str) -> None:
    failed = kernelrl(*arguments)
    assert failed.returncode == 2
    assert words in failed.stderr
    assert not (tmp_path / "runs").exists()


def test_the_times_of_a_run_add_up(kernelrl: Run, tmp_path: Path) -> None:
    begin = time.monotonic()
    assert kernelrl("run", "small.yaml", "--name", "a", "policy.start_s=1").returncode == 0
    wall_s = time.monotonic() - begin
    facts = json.loads(kernelrl("status", "a", "--json").stdout)
    steps_s = facts["seconds"] - sum(row.get("time/eval", 0.0) for row in rows(tmp_path / "runs/a/metrics.jsonl"))
    assert facts["seconds_start"] >= 1
    assert facts["seconds_start"] + steps_s + facts["seconds_held_out"] == pytest.approx(facts["seconds_all"])
    assert facts["seconds_all"] <= wall_s
    assert "  start           1 s  (loading and warm start)" in kernelrl("status", "a").stdout


def test_a_run_prints_at_once_what_it_prepares_and_where_it_continues(kernelrl: Run) -> None:
    line = "preparing policy 'fake' and evaluator 'fake'"
    assert kernelrl("run", "small.yaml", "--name", "a", "train.steps=2").stderr.splitlines()[1] == line
    resumed = kernelrl("run", "small.yaml", "--name", "a", "--extend", "train.steps=3").stderr
    assert resumed.splitlines()[1] == f"{line}, to continue after step 2"


def test_a_pending_preparation_is_printed_before_it_begins(kernelrl: Run) -> None:
    line, pending = "headers: none yet; the first build makes them", "backend.pending=true"
    assert line in kernelrl("run", "small.yaml", "--dry-run", pending).stdout.splitlines()
    assert line in kernelrl("run", "small.yaml", "--name", "a", pending).stderr.splitlines()
    found = kernelrl("doctor", "-r", "runs/a/recipe.yaml").stdout.splitlines()
    assert ["pending", "fake", *line.split()] in [shown.split() for shown in found]


def test_an_extended_run_that_ends_before_it_starts_is_not_finished(kernelrl: Run, tmp_path: Path) -> None:
    assert kernelrl("run", "small.yaml", "--name", "a", "train.steps=2").returncode == 0
    run = RunDir(tmp_path / "runs/a")
    path = run.path / "recipe.yaml"
    run.replace_recipe(load_yaml(path.read_text().replace("steps: 2", "steps: 3"), path))
    assert run.state()[0] == "stopped"
    assert kernelrl("resume", "a").returncode == 0
    assert len(metrics(run.path)) == 3


def test_status_shows_the_phase_of_a_running_run_from_its_start_on(kernelrl: Run, start: Any, tmp_path: Path) -> None:
    process = start("run", "small.yaml", "--name", "a", "policy.start_s=60")
    state = tmp_path / "runs/a/state.json"
    wait_until(lambda: state.exists() and "progress" in json.loads(state.read_text()), process=process)
    facts = json.loads(kernelrl("status", "a", "--json").stdout)
    assert (facts["state"], facts["progress"]["phase"]) == ("running", "start")
    assert "now    start: " in kernelrl("status", "a").stdout
    assert "in use by another process: runs/a" in kernelrl("runs", "rm", "a", "--yes").stderr
    early = r"kernelrl: run runs/a has no checkpoint yet; it is running in phase start: \d+ s; preparing policy 'fake'"
    for command in (("eval", "runs/a"), ("sample", "runs/a", "fake/train/0"), ("run", "small.yaml", "--from", "a")):
        done = kernelrl(*command)
        assert done.returncode == 2
        assert re.search(early, done.stderr), done.stderr
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=DEADLINE_S)
    facts = json.loads(kernelrl("status", "a", "--json").stdout)
    assert (facts["state"], facts["progress"]) == ("stopped", None)


def test_a_run_is_deleted_after_confirmation(kernelrl: Run, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert kernelrl("run", "small.yaml", "--name", name, "train.steps=1", "eval.at_start=false").returncode == 0
    (tmp_path / "runs/b/recipe.yaml").unlink()
    refused = kernelrl("runs", "rm", "a", stdin=subprocess.DEVNULL)
    assert refused.returncode == 2
    assert "add --yes" in refused.stderr
    (tmp_path / "a").mkdir()
    ambiguous = kernelrl("runs", "rm", "a", "--yes")
    assert ambiguous.returncode == 2
    assert "write ./a or runs/a" in ambiguous.stderr
    (tmp_path / "a").rmdir()
    assert (tmp_path / "runs/a").is_dir()
    assert kernelrl("runs", "rm", "a", "b", "--yes").returncode == 0
    assert list((tmp_path / "runs").glob("[!.]*")) == []


def test_the_parts_that_a_run_has_tested(kernelrl: Run, tmp_path: Path) -> None:
    header = "# smoke: one run of all parts.\n#\n# Tests          The installation.\n\n"
    (tmp_path / "smoke.yaml").write_text(header + "extends: small.yaml\n")
    lines = kernelrl("run", "smoke.yaml", "--name", "a").stdout.splitlines()
    assert next(line.split()[:2] for line in lines if "  works  " in line) == ["policy", "fake"]
    assert lines[-1] == "installation         works  a small model need not write correct kernels"


def test_sample_prints_code_and_outcome_for_one_task(kernelrl: Run, tmp_path: Path) -> None:
    assert kernelrl("run", "small.yaml", "--name", "a", "train.steps=1", "eval.at_start=false").returncode == 0
    arguments = ("sample", "runs/a", "fake/train/1", "episode.turns=1", "-n", "3")
    done = kernelrl(*arguments)
    assert done.returncode == 0, done.stderr
    heads = [line for line in done.stdout.splitlines() if line.startswith("--- ")]
    assert [head.partition(":")[0] for head in heads] == ["--- episode 1", "--- episode 2", "--- episode 3"]
    assert done.stdout.count("class ModelNew") == 3
    assert "checkpoint 000001 of run runs/a" in done.stderr
    found = json.loads(kernelrl(*arguments, "--json").stdout)
    assert (found["task"], len(found["samples"])) == ("fake/train/1", 3)
    assert [row["outcome"] for row in found["samples"]] == [head.split(": ")[1].split(";")[0] for head in heads]
    assert kernelrl(*arguments).stdout == done.stdout
    assert "did you mean" in kernelrl("sample", "small.yaml", "fake/train/11").stderr


def test_a_dry_run_estimates_its_duration_from_an_earlier_run(kernelrl: Run, tmp_path: Path) -> None:
    unknown = kernelrl("run", "small.yaml", "--dry-run").stdout
    assert "duration                       unknown: no earlier run to compare with" in unknown
    assert kernelrl("run", "small.yaml", "--name", "a", "policy.delay_s=0.2").returncode == 0
    known = json.loads(kernelrl("status", "a", "--json").stdout)
    steps_s = known["seconds_all"] - known["seconds_start"] - known["seconds_held_out"]
    # Twice the steps of the earlier run, with the same two held-out evaluations.
    plan = json.loads(
        kernelrl("run", "small.yaml", "policy.delay_s=0.2", "train.steps=6", "--dry-run", "--json").stdout
    )
    assert plan["seconds"] == round(known["seconds_start"] + 2 * steps_s + known["seconds_held_out"])
    assert plan["seconds_from"] == "runs/a"
    other = json.loads(kernelrl("run", "small.yaml", "policy.delay_s=0.1", "--dry-run", "--json").stdout)
    assert (other["seconds"], other["seconds_from"]) == (None, None)


def test_a_dry_run_names_components_and_splits_and_shows_a_prompt_on_request(kernelrl: Run, tmp_path: Path) -> None:
    (tmp_path / "stated.yaml").write_text("extends: small.yaml\ncheckers: {c: {use: fake}}\nforbid: [planted]\n")
    plan = json.loads(kernelrl("run", "stated.yaml", "--dry-run", "--show-prompt", "--json").stdout)
    assert (plan["policy"], plan["backend"], plan["rewards"]) == ("fake", "fake", {"correct": 1.0})
    assert plan["splits"] == {"train": "train", "held_out": "held_out"}
    assert (plan["held_out_tasks"], plan["held_out_samples"]) == (4, 4 * 2 * 2 * 2)
    assert "Do nothing." in plan["prompt"][-1]["content"]
    assert "prompt" not in json.loads(kernelrl("run", "stated.yaml", "--dry-run", "--json").stdout)
    assert "[user]" in kernelrl("run", "stated.yaml", "--dry-run", "--show-prompt").stdout
    assert "--show-prompt needs --dry-run" in kernelrl("run", "stated.yaml", "--show-prompt").stderr
