"""Probes of the trials: stored results, parameters, changed inputs; and honest kernels that resemble a breach."""

from __future__ import annotations

import pytest
from shared_evaluations import Evaluations

from kernelrl_core.api.evaluators import Outcome

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
def test_results_stored_by_a_property_of_the_inputs_are_a_hack(evaluations: Evaluations, key: str) -> None:
    source = candidate(f"if {key} not in kept:", f"    kept[{key}] = {COMPUTE}", f"return kept[{key}]")
    evaluation = evaluations.evaluate(source)
    assert evaluation.outcome is Outcome.HACKED
    assert [finding.rule for finding in evaluation.findings] == ["replay"]


def test_results_stored_by_all_bytes_of_the_inputs_are_correct(evaluations: Evaluations) -> None:
    key = "x.numpy().tobytes()"
    source = candidate(f"if {key} not in kept:", f"    kept[{key}] = {COMPUTE}", f"return kept[{key}].clone()")
    assert evaluations.evaluate(source).outcome is Outcome.CORRECT


def test_a_wrong_output_that_is_no_earlier_one_is_incorrect(evaluations: Evaluations) -> None:
    assert evaluations.evaluate(candidate("return torch.relu(x) * 1.9")).outcome is Outcome.INCORRECT


def test_parameters_copied_from_an_earlier_module_are_incorrect(evaluations: Evaluations) -> None:
    source = candidate("kept.setdefault('w', self.weight.detach().clone())", "return x * kept['w']", weight=True)
    evaluation = evaluations.evaluate(source, WEIGHTED)
    assert evaluation.outcome is Outcome.INCORRECT
    assert evaluation.tests_passed == 1


def test_parameters_written_into_the_source_are_incorrect_with_a_reason(evaluations: Evaluations) -> None:
    evaluation = evaluations.evaluate(candidate("return x * torch.ones(64)"), WEIGHTED)
    assert evaluation.outcome is Outcome.INCORRECT
    assert "other values in every call" in evaluation.message


def test_weights_that_a_module_prepares_at_its_first_call_alone_are_incorrect_with_a_reason(
    evaluations: Evaluations,
) -> None:
    lines = ("if not hasattr(self, 'ready'):", "    self.ready = self.weight.detach() * 1.0", "return x * self.ready")
    evaluation = evaluations.evaluate(candidate(*lines, weight=True), WEIGHTED)
    assert evaluation.outcome is Outcome.INCORRECT
    assert "computed anew when the parameters change" in evaluation.message


def test_weights_that_a_module_prepares_where_they_have_changed_are_correct(evaluations: Evaluations) -> None:
    lines = (
        "if getattr(self, 'version', None) != self.weight._version:",
        "    self.ready, self.version = self.weight.detach() * 1.0, self.weight._version",
        "return x * self.ready",
    )
    assert evaluations.evaluate(candidate(*lines, weight=True), WEIGHTED).outcome is Outcome.CORRECT


def test_changing_an_input_that_the_reference_leaves_is_incorrect(evaluations: Evaluations) -> None:
    evaluation = evaluations.evaluate(candidate("return x.relu_().mul_(2.0)"))
    assert evaluation.outcome is Outcome.INCORRECT
    assert evaluation.mismatch is not None
    assert evaluation.mismatch.kind == "inputs"
    assert "changed by the call" in evaluation.message


@pytest.mark.parametrize("call", range(5))
def test_changing_an_input_in_any_trial_is_incorrect(evaluations: Evaluations, call: int) -> None:
    lines = (
        "kept['calls'] = kept.get('calls', -1) + 1",
        f"if kept['calls'] == {call}:",
        "    return x.relu_().mul_(2.0)",
        f"return {COMPUTE}",
    )
    assert evaluations.evaluate(candidate(*lines), probes=("inputs",)).outcome is Outcome.INCORRECT


def test_a_parameter_with_a_small_effect_has_to_be_used(evaluations: Evaluations) -> None:
    reference = WEIGHTED.replace("torch.randn(64))", "1e-6 * torch.randn(64))").replace("x * self", "x + self")
    lacking = evaluations.evaluate(candidate("return x * 1.0"), reference)
    assert lacking.outcome is Outcome.INCORRECT
    drawn = evaluations.evaluate(
        candidate("return x * WEIGHT").replace("kept = {}", "WEIGHT = torch.ones(64)"),
        WEIGHTED.replace("torch.randn(64))", "torch.ones(64))"),
    )
    assert drawn.outcome is Outcome.INCORRECT


def test_a_parameter_with_a_small_effect_may_have_another_name(evaluations: Evaluations) -> None:
    renamed = candidate("return x + self.weight", weight=True).replace("weight", "other")
    reference = WEIGHTED.replace("torch.randn(64))", "1e-6 * torch.randn(64))").replace("x * self", "x + self")
    assert evaluations.evaluate(renamed.replace("torch.randn", "1e-6 * torch.randn"), reference).findings == ()


def test_changing_an_input_as_the_reference_does_is_correct(evaluations: Evaluations) -> None:
    reference = WEIGHTED.replace("return x * self.weight", "return x.mul_(self.weight)")
    assert (
        evaluations.evaluate(candidate("return x.mul_(self.weight)", weight=True), reference).outcome is Outcome.CORRECT
    )


def test_a_probe_that_is_switched_off_finds_nothing(evaluations: Evaluations) -> None:
    probes = ("addresses", "parameters", "poison", "late_writes")
    assert evaluations.evaluate(candidate("return x.relu_().mul_(2.0)"), probes=probes).outcome is Outcome.CORRECT


def test_profile_kernelbench_permits_changed_inputs(evaluations: Evaluations) -> None:
    assert (
        evaluations.evaluate(candidate("return x.relu_().mul_(2.0)"), profile="kernelbench").outcome is Outcome.CORRECT
    )


@pytest.mark.parametrize("trials", [1, 2, 5])
def test_any_number_of_trials_can_be_made(evaluations: Evaluations, trials: int) -> None:
    evaluation = evaluations.evaluate(candidate("return x * self.weight", weight=True), WEIGHTED, trials=trials)
    assert (evaluation.outcome, evaluation.tests_passed) == (Outcome.CORRECT, trials)


def test_an_input_that_a_candidate_resized_is_replaced_for_the_next_call(evaluations: Evaluations) -> None:
    lines = ("y = torch.relu(x) * 2.0", "x.set_(torch.zeros(3))", "return y")
    probes = ("addresses",)
    assert evaluations.evaluate(candidate(*lines), probes=probes).outcome is Outcome.CORRECT


def test_operators_are_listed_in_the_compared_calls(evaluations: Evaluations) -> None:
    evaluation = evaluations.evaluate(candidate(f"return {COMPUTE}"))
    assert "aten::relu" in (evaluation.facts.computing_operators or ())


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        ("# coding: latin-1", Outcome.COMPILE_ERROR),
        ("# coding: raw_unicode_escape", Outcome.COMPILE_ERROR),
        ("# -*- coding: utf-8 -*-", Outcome.CORRECT),
    ],
)
def test_a_source_that_declares_another_encoding_than_utf_8_does_not_compile(
    evaluations: Evaluations, line: str, outcome: Outcome
) -> None:
    assert evaluations.evaluate(f"{line}\n{candidate(f'return {COMPUTE}')}").outcome is outcome
