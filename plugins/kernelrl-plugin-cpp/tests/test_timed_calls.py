"""What candidates do in timed calls alone, and find out by looking at who calls them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kernelrl_core.types import (
    Evaluation,
    EvaluationRequest,
    EvaluationSettings,
    Finding,
    Outcome,
    Severity,
    sha256_text,
)
from kernelrl_core.version import API_VERSION
from kernelrl_plugin_local.config import LocalConfig
from kernelrl_plugin_local.evaluator import LocalEvaluator

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


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    """Times what a candidate returns, given as an expression, against what a reference does."""
    loop = asyncio.new_event_loop()
    evaluator = LocalEvaluator(LocalConfig(workers=1))

    def run(kernel: str, reference: str, *, keeps: bool = False, **settings: Any) -> Evaluation:
        task, source = TASK.format(reference), KERNEL.format(keeps, kernel)
        request = EvaluationRequest(
            task_id="task",
            task_source=task,
            task_sha256=sha256_text(task),
            source=source,
            source_sha256=sha256_text(source),
            backend="cpp",
            backend_options={},
            settings=EvaluationSettings(**{"trials": 2, "timing": True, "timing_trials": 6, **settings}),
            seed="1" * 32,
            api_version=API_VERSION,
        )
        return loop.run_until_complete(evaluator.evaluate(request))

    yield run
    loop.run_until_complete(evaluator.aclose())
    loop.close()


RELU = "torch.relu(x)"


def suspect_findings(found: Evaluation) -> list[Finding]:
    # On a busy processor clocks disagree.
    return [finding for finding in found.findings if finding.severity is not Severity.NOTE]


def test_what_is_alike_in_every_call_is_clean(judge: Judge) -> None:
    found = judge(RELU, RELU)
    assert (found.outcome, suspect_findings(found)) == (Outcome.CORRECT, [])
    assert found.profile["computing_operators"] == ["aten::relu"]


def test_operators_of_every_call_but_the_first_are_seen(judge: Judge) -> None:
    kernel = "{1: torch.nn.functional.relu6, 2: torch.relu, 3: torch.relu_}.get(len(calls), torch.relu)(x.clone())"
    found = judge(kernel, RELU, trials=3, timing=False, probes=("operators",))
    assert found.profile["computing_operators"] == ["aten::relu", "aten::relu_"]


def test_operators_of_calls_on_harsher_inputs_are_seen(judge: Judge) -> None:
    kernel = "x.clamp_min(0.0) if x.numpy().max() > 100.0 else torch.relu(x)"
    found = judge(kernel, RELU, timing=False)
    assert {"aten::relu", "aten::clamp_min"} <= set(found.profile["computing_operators"])


def test_operators_of_timed_calls_are_seen(judge: Judge) -> None:
    found = judge("x.clamp_min(0.0) if timed() else torch.relu(x)", RELU)
    assert found.outcome is Outcome.CORRECT
    assert found.profile["computing_operators"] == ["aten::relu", "aten::clamp_min"]


def test_inputs_that_only_timed_calls_change_are_seen(judge: Judge) -> None:
    found = judge("torch.relu_(x).clone() if timed() else torch.relu(x)", RELU)
    assert found.outcome is Outcome.INCORRECT
    assert "Input [0] was changed by the call." in found.message


def test_inputs_that_a_reference_changes_on_harsh_values_alone_may_be_changed_in_timed_calls(judge: Judge) -> None:
    found = judge("x.clamp_(-4.0) * 2.0", "x.clamp_(-4.0) * 2.0", timing_trials=20)
    assert (found.outcome, suspect_findings(found)) == (Outcome.CORRECT, [])


def test_results_that_later_timed_calls_overwrite_are_seen(judge: Judge) -> None:
    kept = "torch.clamp(x, min=0.0, out=globals().setdefault('kept', torch.empty(64, 64)))"
    found = judge(f"{kept} if timed() else torch.relu(x)", RELU)
    assert [finding.rule for finding in suspect_findings(found)] == ["overwritten"]


def test_inputs_that_are_changed_where_nobody_lists_operators_are_seen(judge: Judge) -> None:
    found = judge("torch.relu(x) if len(calls) < 20 or listed() else torch.relu_(x).clone()", RELU)
    assert found.outcome is Outcome.INCORRECT
    assert "Input [0] was changed by the call." in found.message


def test_who_is_slower_where_operators_are_listed_is_a_suspicion(judge: Judge) -> None:
    found = judge("(sum(range(50_000)) if listed() else 0, torch.relu(x))[1]", RELU)
    assert found.outcome is Outcome.CORRECT
    (finding,) = suspect_findings(found)
    assert finding.rule == "slower_when_watched"


def test_what_listing_itself_costs_is_no_suspicion(judge: Judge) -> None:
    assert suspect_findings(judge("torch.stack([row.relu() for row in x])", RELU, timing_trials=4)) == []
    assert (
        suspect_findings(judge("[torch.relu(x) for _ in x.shape * 8 if x.is_contiguous()][0]", RELU, timing_trials=4))
        == []
    )


def test_inputs_that_a_reference_changes_have_to_be_changed_in_timed_calls(judge: Judge) -> None:
    reference = "x.add_(1.0).sum(0)"
    assert judge(reference, reference).outcome is Outcome.CORRECT
    found = judge("(x + 1.0 if timed() else x.add_(1.0)).sum(0)", reference)
    assert found.outcome is Outcome.INCORRECT
    assert "Input [0] does not hold after the call what the reference leaves there." in found.message


def test_memory_that_only_outputs_of_timed_calls_share_is_seen(judge: Judge) -> None:
    found = judge("(x.relu(), x if timed() else x.clone())", "(x.relu(), x.clone())")
    assert found.outcome is Outcome.INCORRECT
    assert "Output [1] must have memory of its own, as that of the reference has" in found.message


def test_memory_that_outputs_share_where_nobody_lists_operators_is_seen(judge: Judge) -> None:
    found = judge("(x.relu(), x if timed() and not listed() else x.clone())", "(x.relu(), x.clone())")
    assert found.outcome is Outcome.INCORRECT
    assert "Output [1] must have memory of its own, as that of the reference has" in found.message


@pytest.mark.parametrize(
    ("place", "expected"), [("ring[len(calls) % 6]", ["overwritten"]), ("ring[len(calls) % 6].clone()", [])]
)
def test_results_that_any_later_timed_call_overwrites_are_seen(judge: Judge, place: str, expected: list[str]) -> None:
    ring = "globals().setdefault('ring', [torch.empty(64, 64) for _ in range(6)])"
    kernel = f"(lambda ring: torch.clamp(x, min=0.0, out={place}))({ring}) if not listed() and timed() else x.relu()"
    assert [finding.rule for finding in suspect_findings(judge(kernel, RELU))] == expected


def test_harsher_inputs_are_among_those_of_timed_calls(judge: Judge) -> None:
    unbounded = "(x.exp() - (-x).exp()) / (x.exp() + (-x).exp())"
    assert suspect_findings(judge("torch.tanh(x)", "torch.tanh(x)")) == []
    found = judge(f"{unbounded} if timed() else torch.tanh(x)", "torch.tanh(x)")
    assert found.outcome is Outcome.CORRECT
    (finding,) = suspect_findings(found)
    assert finding.rule == "stress"
    assert "in a timed call, and right in single ones" in finding.evidence


AVERAGES = "x + self.average.mul_(0.9).add_(x.mean(0), alpha=0.1)"


def test_state_that_changes_from_call_to_call_may_feed_the_output(judge: Judge) -> None:
    found = judge(AVERAGES, AVERAGES, keeps=True)
    assert (found.outcome, "stress" in [finding.rule for finding in found.findings]) == (Outcome.CORRECT, False)
    assert found.runtime is not None
    itself = "self.average.mul_(0.9).add_(x.mean(0))"
    assert judge(itself, itself, keeps=True, probes=()).outcome is Outcome.CORRECT


def test_who_does_not_keep_what_changes_from_call_to_call_is_wrong(judge: Judge) -> None:
    found = judge("x + 0.1 * x.mean(0)", AVERAGES)
    assert found.outcome is Outcome.INCORRECT
    assert "begin with what the call before it left in average" in found.message


def test_state_that_timed_calls_leave_out_is_seen(judge: Judge) -> None:
    reference = "(torch.relu(x), self.average.mul_(0.9).add_(x.mean(0), alpha=0.1))[0]"
    assert judge(reference, reference, keeps=True).outcome is Outcome.CORRECT
    found = judge(f"torch.relu(x) if timed() and not listed() else {reference}", reference, keeps=True)
    assert found.outcome is Outcome.INCORRECT
    assert "State average does not hold after the call what the reference leaves there." in found.message


def test_without_the_probes_no_window_is_watched(judge: Judge) -> None:
    found = judge("torch.relu_(x).clone() if timed() else torch.relu(x)", RELU, probes=("poison",))
    assert found.outcome is Outcome.CORRECT


class _Reference:
    device = "cpu"
    like = None

    def inputs(self, index: int) -> list[Any]:
        return []


def test_watched_windows_lie_farther_and_farther_apart() -> None:
    for _ in range(20):
        watch = Watch(None, _Reference(), None, None, EvaluationSettings(timing_trials=100))  # type: ignore[arg-type]
        due = [counted for counted in range(45) if watch.due(counted)]
        assert [0 <= due[0] < 5, 5 <= due[1] < 15, 15 <= due[2] < 45] == [True] * 3
        assert len(due) == 3
