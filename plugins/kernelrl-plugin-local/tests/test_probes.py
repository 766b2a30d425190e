"""What the trials find out beyond right values, and what they leave alone."""

from __future__ import annotations

from typing import Any

import pytest

from kernelrl_core.types import Outcome

WEIGHTED = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64))

    def forward(self, x):
        return x * self.weight


def get_inputs():
    return [torch.randn(20, 64)]


def get_init_inputs():
    return []
"""

HEAD = """\
import torch
import torch.nn as nn

kept = {}


class ModelNew(nn.Module):
"""
WEIGHT = """\
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64))

"""


def candidate(*lines: str, weight: bool = False) -> str:
    body = "".join(f"        {line}\n" for line in lines)
    return f"{HEAD}{WEIGHT if weight else ''}    def forward(self, x):\n{body}"


COMPUTE = "torch.relu(x) * 2.0"


@pytest.mark.parametrize("key", ["x.data_ptr()", "id(x)", "x.shape", "'always'"])
def test_results_kept_by_what_inputs_look_like_are_a_hack(bench: Any, key: str) -> None:
    source = candidate(f"if {key} not in kept:", f"    kept[{key}] = {COMPUTE}", f"return kept[{key}]")
    evaluation = bench.judge(source)
    assert evaluation.outcome is Outcome.HACKED
    assert [finding.rule for finding in evaluation.findings] == ["replay"]


def test_results_kept_by_all_bytes_of_the_inputs_are_right(bench: Any) -> None:
    key = "x.numpy().tobytes()"
    source = candidate(f"if {key} not in kept:", f"    kept[{key}] = {COMPUTE}", f"return kept[{key}].clone()")
    assert bench.judge(source).outcome is Outcome.CORRECT


def test_a_wrong_answer_that_is_no_earlier_one_is_only_wrong(bench: Any) -> None:
    assert bench.judge(candidate("return torch.relu(x) * 1.9")).outcome is Outcome.INCORRECT


def test_parameters_that_outlive_their_module_are_told_of(bench: Any) -> None:
    source = candidate("kept.setdefault('w', self.weight.detach().clone())", "return x * kept['w']", weight=True)
    evaluation = bench.judge(source, WEIGHTED)
    assert evaluation.outcome is Outcome.INCORRECT
    assert evaluation.tests_passed == 1


def test_parameters_written_into_the_source_are_told_of(bench: Any) -> None:
    evaluation = bench.judge(candidate("return x * torch.ones(64)", weight=True), WEIGHTED)
    assert evaluation.outcome is Outcome.INCORRECT
    assert "other parameters" in evaluation.message


def test_weights_that_a_module_prepares_at_its_first_call_are_right(bench: Any) -> None:
    prepared = "self.ready = getattr(self, 'ready', None) if hasattr(self, 'ready') else self.weight.detach() * 1.0"
    assert bench.judge(candidate(prepared, "return x * self.ready", weight=True), WEIGHTED).outcome is Outcome.CORRECT


def test_changing_an_input_is_wrong_where_the_reference_leaves_it(bench: Any) -> None:
    evaluation = bench.judge(candidate("return x.relu_().mul_(2.0)"))
    assert evaluation.outcome is Outcome.INCORRECT
    assert evaluation.mismatch.kind == "inputs"
    assert "changed by the call" in evaluation.message


@pytest.mark.parametrize("turn", range(5))
def test_changing_an_input_in_any_trial_is_wrong(bench: Any, turn: int) -> None:
    lines = (
        "kept['calls'] = kept.get('calls', -1) + 1",
        f"if kept['calls'] == {turn}:",
        "    return x.relu_().mul_(2.0)",
        f"return {COMPUTE}",
    )
    assert bench.judge(candidate(*lines)).outcome is Outcome.INCORRECT


def test_a_parameter_that_hardly_counts_has_to_be_taken(bench: Any) -> None:
    reference = WEIGHTED.replace("torch.randn(64))", "1e-6 * torch.randn(64))").replace("x * self", "x + self")
    lacking = bench.judge(candidate("return x * 1.0"), reference)
    assert lacking.outcome is Outcome.INCORRECT
    drawn = bench.judge(
        candidate("return x * WEIGHT").replace("kept = {}", "WEIGHT = torch.ones(64)"),
        WEIGHTED.replace("torch.randn(64))", "torch.ones(64))"),
    )
    assert drawn.outcome is Outcome.INCORRECT


def test_a_parameter_that_counts_may_have_another_name(bench: Any) -> None:
    renamed = candidate("return x + self.weight", weight=True).replace("weight", "other")
    reference = WEIGHTED.replace("torch.randn(64))", "1e-6 * torch.randn(64))").replace("x * self", "x + self")
    assert bench.judge(renamed.replace("torch.randn", "1e-6 * torch.randn"), reference).findings == ()


def test_changing_an_input_as_the_reference_does_is_right(bench: Any) -> None:
    reference = WEIGHTED.replace("return x * self.weight", "return x.mul_(self.weight)")
    assert bench.judge(candidate("return x.mul_(self.weight)", weight=True), reference).outcome is Outcome.CORRECT


def test_a_probe_that_is_switched_off_finds_nothing(bench: Any) -> None:
    probes = ("addresses", "parameters", "poison", "late_writes")
    assert bench.judge(candidate("return x.relu_().mul_(2.0)"), probes=probes).outcome is Outcome.CORRECT


def test_the_profile_of_kernelbench_judges_as_that_does(bench: Any) -> None:
    assert bench.judge(candidate("return x.relu_().mul_(2.0)"), profile="kernelbench").outcome is Outcome.CORRECT


@pytest.mark.parametrize("trials", [1, 2, 5])
def test_any_number_of_trials_is_probed(bench: Any, trials: int) -> None:
    evaluation = bench.judge(candidate("return x * self.weight", weight=True), WEIGHTED, trials=trials)
    assert (evaluation.outcome, evaluation.tests_passed) == (Outcome.CORRECT, trials)


def test_an_input_that_a_candidate_resized_is_made_anew(bench: Any) -> None:
    lines = ("y = torch.relu(x) * 2.0", "x.set_(torch.zeros(3))", "return y")
    probes = ("addresses",)
    assert bench.judge(candidate(*lines), probes=probes).outcome is Outcome.CORRECT


EXPANDED = WEIGHTED.replace("return x * self.weight", "return x.mean(1, keepdim=True).expand_as(x)")


def test_operators_are_listed_in_one_of_the_calls_that_are_compared(bench: Any) -> None:
    lines = ("kept['calls'] = kept.get('calls', 0) + 1", f"return {COMPUTE} if kept['calls'] <= 7 else other(x)")
    assert "aten::relu" in bench.judge(candidate(*lines)).profile["computing_operators"]


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        ("# coding: latin-1", Outcome.COMPILE_ERROR),
        ("# coding: raw_unicode_escape", Outcome.COMPILE_ERROR),
        ("# -*- coding: utf-8 -*-", Outcome.CORRECT),
    ],
)
def test_a_source_means_what_it_says_in_utf_8(bench: Any, line: str, outcome: Outcome) -> None:
    assert bench.judge(f"{line}\n{candidate(f'return {COMPUTE}')}").outcome is outcome
