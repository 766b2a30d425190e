"""Operators of torch in the calls of a C++ candidate, and state that calls change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kernelrl_core.api.checkers import Evaluation, Finding, Severity
from kernelrl_core.api.tasks import Outcome
from kernelrl_testing.fixtures import Evaluate
from kernelrl_testing.values import make_request
from kernelrl_testing.waiting import require_times

pytest.importorskip("torch")

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
import torch

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
    assert found.facts.computing_operators == ("aten::relu",)


def test_operators_of_every_call_are_recorded(judge: Judge) -> None:
    kernel = "{1: torch.nn.functional.relu6, 2: torch.relu, 3: torch.relu_}.get(len(calls), torch.relu)(x.clone())"
    found = judge(kernel, RELU, trials=3, timing=False, probes=("operators",))
    assert found.facts.computing_operators == ("aten::hardtanh", "aten::relu", "aten::relu_")


def test_operators_of_calls_on_harder_inputs_are_recorded(judge: Judge) -> None:
    kernel = "x.clamp_min(0.0) if x.numpy().max() > 100.0 else torch.relu(x)"
    found = judge(kernel, RELU, timing=False)
    assert {"aten::relu", "aten::clamp_min"} <= set(found.facts.computing_operators)


def test_timed_calls_may_change_inputs_that_the_reference_changes_on_hard_values_only(judge: Judge) -> None:
    found = judge("x.clamp_(-4.0) * 2.0", "x.clamp_(-4.0) * 2.0", timing_trials=20)
    assert (found.outcome, suspect_findings(found)) == (Outcome.CORRECT, [])


AVERAGES = "x + self.average.mul_(0.9).add_(x.mean(0), alpha=0.1)"


def test_output_may_depend_on_state_that_changes_between_calls(judge: Judge) -> None:
    found = judge(AVERAGES, AVERAGES, keeps=True)
    assert (found.outcome, "stress" in [finding.rule for finding in found.findings]) == (Outcome.CORRECT, False)
    itself = "self.average.mul_(0.9).add_(x.mean(0))"
    assert judge(itself, itself, keeps=True, probes=()).outcome is Outcome.CORRECT
    require_times(found)


def test_candidate_without_state_that_changes_between_calls_is_incorrect(judge: Judge) -> None:
    found = judge("x + 0.1 * x.mean(0)", AVERAGES, probes=())
    assert found.outcome is Outcome.INCORRECT
    assert "begin with what the call before it left in average" in found.message
