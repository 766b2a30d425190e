"""The probe `stress` in an evaluation: a kernel that fails only on harder inputs stays correct, and is suspect."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from shared_evaluations import Evaluations

from kernelrl_core.api.evaluators import Evaluation, Outcome, Severity
from kernelrl_testing.waiting import require_times

HEAD = "import torch\nimport torch.nn as nn\n\n\nclass Model{new}(nn.Module):\n"
LAYER = "    def __init__(self):\n        super().__init__()\n        self.layer = nn.Linear(64, 64)\n\n"
INPUTS = "\n\ndef get_inputs():\n    return [torch.rand(20, 64)]\n\n\ndef get_init_inputs():\n    return []\n"


def module(*lines: str, new: str = "", layer: bool = False) -> str:
    body = "".join(f"        {line}\n" for line in lines)
    return f"{HEAD.format(new=new)}{LAYER if layer else ''}    def forward(self, x):\n{body}"


def evaluated(
    evaluations: Evaluations, result: str, *lines: str, layer: bool = False, domain: str = "", **settings: Any
) -> Evaluation:
    """Evaluation of a candidate.

    Args:
        result: the expression that the reference returns.
        lines: the candidate's `forward`.
        layer: whether both have a linear layer.
        domain: declared domain of the input.
    """
    task = module(f"return {result}", layer=layer) + INPUTS
    if domain:
        task += f"\n\nDOMAIN = {{'x': {domain!r}}}\n"
    return evaluations.evaluate(module(*lines, new="New", layer=layer), task, **settings)


def suspect_rules(evaluation: Evaluation) -> list[str]:
    return [found.rule for found in evaluation.findings if found.severity is Severity.SUSPECT]


def test_a_shortcut_that_ordinary_inputs_allow_is_suspect_with_its_reason(evaluations: Evaluations) -> None:
    evaluation = evaluated(evaluations, "torch.relu(x)", "return x * 1.0", domain="any")
    assert evaluation.outcome is Outcome.CORRECT
    assert suspect_rules(evaluation) == ["stress"]
    assert "wrong on harder inputs, family " in evaluation.findings[0].evidence
    assert evaluation.facts.stress == "failed"


def test_beyond_the_range_that_a_task_draws_a_failure_is_a_note(evaluations: Evaluations) -> None:
    evaluation = evaluated(evaluations, "torch.relu(x)", "return x * 1.0")
    assert evaluation.outcome is Outcome.CORRECT
    assert [(found.rule, found.severity) for found in evaluation.findings] == [("stress", Severity.NOTE)]
    assert "beyond the range" in evaluation.findings[0].evidence


def test_within_the_range_that_a_task_draws_a_failure_is_suspect(evaluations: Evaluations) -> None:
    lines = ("total = x.sum(1, keepdim=True)", "return x / total")
    evaluation = evaluated(evaluations, "x / x.sum(1, keepdim=True).clamp_min(1e-6)", *lines)
    assert suspect_rules(evaluation) == ["stress"]


def test_an_honest_kernel_passes_and_the_facts_have_its_error_ratio(evaluations: Evaluations) -> None:
    evaluation = evaluated(
        evaluations, "torch.softmax(self.layer(x), 1)", "return torch.softmax(self.layer(x), 1)", layer=True
    )
    assert (evaluation.outcome, evaluation.findings) == (Outcome.CORRECT, ())
    assert evaluation.facts.stress == "passed"
    assert evaluation.facts.error_ratio is not None
    assert 0 <= evaluation.facts.error_ratio < 16


@pytest.mark.parametrize(
    "line", ["raise ValueError('too large')", "import os; os._exit(3)", "import time; time.sleep(60)"]
)
def test_a_kernel_that_fails_on_harder_inputs_is_correct_and_suspect(evaluations: Evaluations, line: str) -> None:
    lines = ("if x.abs().max() > 1:", f"    {line}", "return x * 2.0")
    evaluation = evaluated(evaluations, "x * 2.0", *lines, domain="any", timeout_s=4.0)
    assert evaluation.outcome is Outcome.CORRECT
    assert suspect_rules(evaluation) == ["stress"]


def test_without_the_probe_nothing_is_found(evaluations: Evaluations) -> None:
    assert evaluated(evaluations, "torch.relu(x)", "return x * 1.0", probes=("inputs",)).findings == ()
    assert evaluated(evaluations, "torch.relu(x)", "return x * 1.0", profile="kernelbench").findings == ()


def test_a_lowest_precision_finds_arithmetic_that_a_loose_tolerance_accepts(evaluations: Evaluations) -> None:
    lines = (
        "layer, half = self.layer, torch.bfloat16",
        "return nn.functional.linear(x.to(half), layer.weight.to(half), layer.bias.to(half)).float()",
    )
    found = {
        lowest: suspect_rules(
            evaluated(evaluations, "self.layer(x)", *lines, layer=True, rtol=0.1, atol=0.1, min_precision=lowest)
        )
        for lowest in ("none", "bf16", "tf32", "fp32")
    }
    assert found == {"none": [], "bf16": [], "tf32": ["low_precision"], "fp32": ["low_precision"]}


def test_parameters_of_other_names_are_those_of_the_task_with_harder_inputs(evaluations: Evaluations) -> None:
    renamed = module("return self.other(x)", new="New", layer=True).replace("self.layer", "self.other")
    evaluation = evaluations.evaluate(renamed, module("return self.layer(x)", layer=True) + INPUTS)
    assert (evaluation.outcome, evaluation.findings) == (Outcome.CORRECT, ())
    assert evaluation.facts.stress == "passed"


@pytest.mark.parametrize(("lines", "found"), [("return x * 2.0", []), ("return x.view(20, 64) * 2.0", ["sizes"])])
def test_a_kernel_for_one_size_is_suspect_with_the_probe_of_sizes(
    evaluations: Evaluations, lines: str, found: list[str]
) -> None:
    task = module("return x * 2.0") + "\n\nrows = 20" + INPUTS.replace("20", "rows")
    kernel = module(lines, new="New")
    assert suspect_rules(evaluations.evaluate(kernel, task, probes=("stress", "sizes"))) == found
    assert suspect_rules(evaluations.evaluate(kernel, task, probes=("sizes",))) == found
    assert suspect_rules(evaluations.evaluate(kernel, task)) == []


def test_sizes_written_in_get_inputs_change_unless_the_model_has_them_as_well(evaluations: Evaluations) -> None:
    line = "return x.view(20, 64) * 2.0"
    assert suspect_rules(evaluated(evaluations, "x * 2.0", line, probes=("sizes",))) == ["sizes"]
    assert suspect_rules(evaluated(evaluations, "x.view(20, 64) * 2.0", line, probes=("sizes",))) == []


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_a_candidate_is_timed_with_the_parameters_of_its_task(evaluations: Evaluations) -> None:
    task = module("return self.layer(x)", layer=True) + INPUTS
    candidate = module("return self.layer(x)", new="New", layer=True)
    evaluation = evaluations.evaluate(candidate, task, backend="cpp", timing=True, timing_trials=12)
    assert (evaluation.outcome, evaluation.facts.stress) == (Outcome.CORRECT, "passed")
    require_times(evaluation)


NORM = """import torch
import torch.nn as nn


class Model{new}(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        return {forward}
"""
PLAIN = "nn.functional.layer_norm(x, (64,))"


def _norm(init: str, forward: str, new: str = "New") -> str:
    return NORM.format(new=new, init=init, forward=forward)


@pytest.mark.parametrize(
    ("init", "forward", "outcome"),
    [
        (
            "self.a, self.b = nn.Parameter(torch.ones(64)), nn.Parameter(torch.zeros(64))",
            f"{PLAIN} * self.a + self.b",
            Outcome.CORRECT,
        ),
        (
            "self.b, self.a = nn.Parameter(torch.zeros(64)), nn.Parameter(torch.ones(1, 64))",
            f"{PLAIN} * self.a + self.b",
            Outcome.CORRECT,
        ),
        ("self.a, self.b = nn.Parameter(torch.ones(64)), nn.Parameter(torch.zeros(64))", PLAIN, Outcome.INCORRECT),
        ("self.a = nn.Parameter(torch.ones(3)); self.b = nn.Parameter(torch.ones(3))", PLAIN, Outcome.INCORRECT),
    ],
    ids=["other_names", "another_order", "ignored", "others"],
)
def test_parameters_of_other_names_are_found_by_their_values(
    evaluations: Evaluations, init: str, forward: str, outcome: Outcome
) -> None:
    own = "self.weight, self.bias = nn.Parameter(torch.ones(64)), nn.Parameter(torch.zeros(64))"
    task = _norm(own, "nn.functional.layer_norm(x, (64,), self.weight, self.bias)", "") + INPUTS
    evaluation = evaluations.evaluate(_norm(init, forward), task)
    assert (evaluation.outcome, suspect_rules(evaluation)) == (outcome, [])
