"""Candidates that behave differently in timed calls only, and candidates that inspect their callers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kernelrl_core.testing.fixtures import Evaluate
from kernelrl_core.testing.values import make_request
from kernelrl_core.types import (
    Evaluation,
    EvaluationSettings,
    Finding,
    Outcome,
    Severity,
)

pytest.importorskip("torch")

from kernelrl_judge.watching import Watch

Judge = Callable[..., Evaluation]

TASK = """\
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("average", torch.zeros(64))

    def forward(self, x):
        return {}


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return []
"""
KERNEL = """\
import sys
import torch


def within(name):
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != name:
        frame = frame.f_back
    return frame is not None


def timed():
    return within("window")


def listed():
    return within("called")


calls = []


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        if {}:
            self.register_buffer("average", torch.zeros(64))

    def forward(self, x):
        calls.append(0)
        return {}
"""


@pytest.fixture
def judge(evaluate: Evaluate) -> Judge:
    """Evaluates and times a candidate against a reference, each given as an expression."""

    def run(kernel: str, reference: str, *, keeps: bool = False, **settings: Any) -> Evaluation:
        timed = {"trials": 2, "timing": True, "timing_trials": 6, **settings}
        return evaluate(make_request(KERNEL.format(keeps, kernel), TASK.format(reference), "cpp", settings=timed))

    return run


RELU = "torch.relu(x)"


def suspect_findings(found: Evaluation) -> list[Finding]:
    # Clocks disagree on a busy CPU, which gives notes.
    return [finding for finding in found.findings if finding.severity is not Severity.NOTE]


def test_same_behaviour_in_every_call_is_clean(judge: Judge) -> None:
    found = judge(RELU, RELU)
    assert (found.outcome, suspect_findings(found)) == (Outcome.CORRECT, [])
    assert found.profile["computing_operators"] == ["aten::relu"]


def test_operators_of_every_call_but_the_first_are_recorded(judge: Judge) -> None:
    kernel = "{1: torch.nn.functional.relu6, 2: torch.relu, 3: torch.relu_}.get(len(calls), torch.relu)(x.clone())"
    found = judge(kernel, RELU, trials=3, timing=False, probes=("operators",))
    assert found.profile["computing_operators"] == ["aten::relu", "aten::relu_"]


def test_operators_of_calls_on_harder_inputs_are_recorded(judge: Judge) -> None:
    kernel = "x.clamp_min(0.0) if x.numpy().max() > 100.0 else torch.relu(x)"
    found = judge(kernel, RELU, timing=False)
    assert {"aten::relu", "aten::clamp_min"} <= set(found.profile["computing_operators"])


def test_operators_of_timed_calls_are_recorded(judge: Judge) -> None:
    found = judge("x.clamp_min(0.0) if timed() else torch.relu(x)", RELU)
    assert found.outcome is Outcome.CORRECT
    assert found.profile["computing_operators"] == ["aten::relu", "aten::clamp_min"]


def test_inputs_changed_only_by_timed_calls_are_reported(judge: Judge) -> None:
    found = judge("torch.relu_(x).clone() if timed() else torch.relu(x)", RELU)
    assert found.outcome is Outcome.INCORRECT
    assert "Input [0] was changed by the call." in found.message


def test_timed_calls_may_change_inputs_that_the_reference_changes_on_hard_values_only(judge: Judge) -> None:
    found = judge("x.clamp_(-4.0) * 2.0", "x.clamp_(-4.0) * 2.0", timing_trials=20)
    assert (found.outcome, suspect_findings(found)) == (Outcome.CORRECT, [])


def test_outputs_overwritten_by_later_timed_calls_are_reported(judge: Judge) -> None:
    kept = "torch.clamp(x, min=0.0, out=globals().setdefault('kept', torch.empty(64, 64)))"
    found = judge(f"{kept} if timed() else torch.relu(x)", RELU)
    assert [finding.rule for finding in suspect_findings(found)] == ["overwritten"]


def test_inputs_changed_while_operators_are_not_recorded_are_reported(judge: Judge) -> None:
    found = judge("torch.relu(x) if len(calls) < 20 or listed() else torch.relu_(x).clone()", RELU)
    assert found.outcome is Outcome.INCORRECT
    assert "Input [0] was changed by the call." in found.message


def test_candidate_that_is_slower_while_operators_are_recorded_is_suspect(judge: Judge) -> None:
    found = judge("(sum(range(50_000)) if listed() else 0, torch.relu(x))[1]", RELU)
    assert found.outcome is Outcome.CORRECT
    (finding,) = suspect_findings(found)
    assert finding.rule == "slower_when_watched"


def test_overhead_of_recording_operators_is_not_suspect(judge: Judge) -> None:
    assert suspect_findings(judge("torch.stack([row.relu() for row in x])", RELU, timing_trials=4)) == []
    assert (
        suspect_findings(judge("[torch.relu(x) for _ in x.shape * 8 if x.is_contiguous()][0]", RELU, timing_trials=4))
        == []
    )


def test_timed_calls_must_change_inputs_that_the_reference_changes(judge: Judge) -> None:
    reference = "x.add_(1.0).sum(0)"
    assert judge(reference, reference).outcome is Outcome.CORRECT
    found = judge("(x + 1.0 if timed() else x.add_(1.0)).sum(0)", reference)
    assert found.outcome is Outcome.INCORRECT
    assert "Input [0] does not hold after the call what the reference leaves there." in found.message


def test_outputs_that_share_memory_only_in_timed_calls_are_reported(judge: Judge) -> None:
    found = judge("(x.relu(), x if timed() else x.clone())", "(x.relu(), x.clone())")
    assert found.outcome is Outcome.INCORRECT
    assert "Output [1] must have memory of its own, as that of the reference has" in found.message


def test_outputs_that_share_memory_while_operators_are_not_recorded_are_reported(judge: Judge) -> None:
    found = judge("(x.relu(), x if timed() and not listed() else x.clone())", "(x.relu(), x.clone())")
    assert found.outcome is Outcome.INCORRECT
    assert "Output [1] must have memory of its own, as that of the reference has" in found.message


@pytest.mark.parametrize(
    ("place", "expected"), [("ring[len(calls) % 6]", ["overwritten"]), ("ring[len(calls) % 6].clone()", [])]
)
def test_outputs_overwritten_by_a_later_timed_call_are_reported(judge: Judge, place: str, expected: list[str]) -> None:
    ring = "globals().setdefault('ring', [torch.empty(64, 64) for _ in range(6)])"
    kernel = f"(lambda ring: torch.clamp(x, min=0.0, out={place}))({ring}) if not listed() and timed() else x.relu()"
    assert [finding.rule for finding in suspect_findings(judge(kernel, RELU))] == expected


def test_timed_calls_include_harder_inputs(judge: Judge) -> None:
    unbounded = "(x.exp() - (-x).exp()) / (x.exp() + (-x).exp())"
    assert suspect_findings(judge("torch.tanh(x)", "torch.tanh(x)")) == []
    found = judge(f"{unbounded} if timed() else torch.tanh(x)", "torch.tanh(x)")
    assert found.outcome is Outcome.CORRECT
    (finding,) = suspect_findings(found)
    assert finding.rule == "stress"
    assert "in a timed call, and right in single ones" in finding.evidence


AVERAGES = "x + self.average.mul_(0.9).add_(x.mean(0), alpha=0.1)"


def test_output_may_depend_on_state_that_changes_between_calls(judge: Judge) -> None:
    found = judge(AVERAGES, AVERAGES, keeps=True)
    assert (found.outcome, "stress" in [finding.rule for finding in found.findings]) == (Outcome.CORRECT, False)
    assert found.runtime is not None
    itself = "self.average.mul_(0.9).add_(x.mean(0))"
    assert judge(itself, itself, keeps=True, probes=()).outcome is Outcome.CORRECT


def test_candidate_without_state_that_changes_between_calls_is_incorrect(judge: Judge) -> None:
    found = judge("x + 0.1 * x.mean(0)", AVERAGES)
    assert found.outcome is Outcome.INCORRECT
    assert "begin with what the call before it left in average" in found.message


def test_state_not_updated_by_timed_calls_is_reported(judge: Judge) -> None:
    reference = "(torch.relu(x), self.average.mul_(0.9).add_(x.mean(0), alpha=0.1))[0]"
    assert judge(reference, reference, keeps=True).outcome is Outcome.CORRECT
    found = judge(f"torch.relu(x) if timed() and not listed() else {reference}", reference, keeps=True)
    assert found.outcome is Outcome.INCORRECT
    assert "State average does not hold after the call what the reference leaves there." in found.message


def test_no_window_is_watched_without_the_probes(judge: Judge) -> None:
    found = judge("torch.relu_(x).clone() if timed() else torch.relu(x)", RELU, probes=("poison",))
    assert found.outcome is Outcome.CORRECT


class _Reference:
    device = "cpu"
    like = None

    def inputs(self, index: int) -> list[Any]:
        return []


def test_distance_of_watched_windows_increases() -> None:
    for _ in range(20):
        watch = Watch(None, _Reference(), None, None, EvaluationSettings(timing_trials=100))  # type: ignore[arg-type]
        due = [counted for counted in range(45) if watch.due(counted)]
        assert [0 <= due[0] < 5, 5 <= due[1] < 15, 15 <= due[2] < 45] == [True] * 3
        assert len(due) == 3
