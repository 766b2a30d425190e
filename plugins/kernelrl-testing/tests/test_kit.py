"""Imports and builders of the kit, and its pytest plugin in a project of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernelrl_core.types import Outcome, Verdict
from kernelrl_core.types.serialization import dumps, loads
from kernelrl_testing.values import make_evaluation, make_request, make_turn, turns_of_every_outcome

TESTS = Path(__file__).parents[3] / "tests"
MODULES = ("contracts", "fakes", "training", "values")


def test_only_the_fixtures_need_pytest() -> None:
    code = (
        "import importlib, sys\n"
        "sys.modules['pytest'] = None\n"
        f"for name in {MODULES!r}:\n"
        "    importlib.import_module(f'kernelrl_testing.{name}')\n"
        "assert not {'torch', 'numpy'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("outcome", Outcome)
def test_parts_of_a_turn_fit_its_outcome(outcome: Outcome) -> None:
    turn = make_turn(outcome)
    assert loads(type(turn), dumps(turn)) == turn
    assert (turn.candidate is None) == (outcome in (Outcome.FORMAT_ERROR, Outcome.INFRA_ERROR))
    assert (turn.evaluation is None) == (outcome in (Outcome.FORMAT_ERROR, Outcome.REJECTED, Outcome.INFRA_ERROR))
    assert turn.evaluation is None or turn.evaluation.outcome is outcome
    assert (turn.verdict is Verdict.HACK) == (outcome is Outcome.HACKED)


def test_turns_of_every_outcome_are_those_that_are_scored() -> None:
    assert {turn.outcome for turn in turns_of_every_outcome()} == set(Outcome) - {Outcome.INFRA_ERROR}


def test_the_times_of_a_turn_fit_its_speedup() -> None:
    evaluation = make_turn(Outcome.CORRECT, speedup=4.0).evaluation
    assert evaluation is not None
    assert evaluation.runtime is not None
    assert evaluation.baseline is not None
    assert evaluation.baseline.median_us / evaluation.runtime.median_us == evaluation.speedup == 4.0


def test_fields_replace_defaults() -> None:
    evaluation = make_evaluation(tests_passed=1, speedup=2.0)
    turn = make_turn(evaluation=evaluation, score=0.5, source="x = 1\n")
    assert (turn.evaluation, turn.score.total, turn.speedup) == (evaluation, 0.5, 2.0)
    assert turn.candidate is not None
    assert turn.candidate.source == "x = 1\n"
    assert make_turn(source=None).candidate is None
    assert make_request(settings={"trials": 2}, seed="0").settings.trials == 2


PROJECT = """
from kernelrl_testing.values import make_request

def test_evaluate(evaluate, kernelrl_cache):
    assert evaluate(make_request("return 'right'")).correct
    assert not evaluate(make_request("return 'wrong'")).correct
"""


@pytest.mark.parametrize(
    ("plugins", "arguments", "expected"),
    [
        ("fake", [], "1 passed"),
        ("fake,local", ["--kernelrl-evaluator=fake"], "1 passed"),
        ("fake,local", [], "2 evaluators are installed: fake, local"),
        ("core", [], "no evaluator is installed"),
        ("fake", ["--kernelrl-evaluator=fakke"], "did you mean 'fake'"),
    ],
)
def test_the_evaluator_of_a_project_is_the_named_or_the_installed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plugins: str, arguments: list[str], expected: str
) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["kernelrl_testing.fixtures"]\n')
    (tmp_path / "test_kernels.py").write_text(PROJECT)
    monkeypatch.setenv("KERNELRL_PLUGINS", plugins)
    monkeypatch.setenv("PYTHONPATH", str(TESTS / "fakes"))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--rootdir={tmp_path}", *arguments, "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert expected in done.stdout
