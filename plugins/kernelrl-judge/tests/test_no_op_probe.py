"""Candidates whose output does not depend on their kernels, and honest ones that look alike."""

from __future__ import annotations

from typing import Any

import pytest
from shared_evaluations import KERNEL, REFERENCE, Evaluations, kernel_with

from kernelrl_core.api.evaluators import Evaluation, Outcome

IN_TORCH = "torch.relu(x) * 2.0"
IN_PYTHON = "torch.tensor([2.0 * max(v, 0.0) for v in x.tolist()])"
ZEROS = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 0.0


def get_inputs():
    return [torch.rand(300)]


def get_init_inputs():
    return []
"""
AUTOTUNED = """\
@triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def kernel"""


def evaluated(evaluations: Evaluations, source: str, reference: str = REFERENCE, **fields: Any) -> Evaluation:
    """Evaluation of a candidate with the kernel `kernel` that its checkers find suspect."""
    return evaluations.evaluate(
        source, reference, **{"kernels": ("kernel",), "suspect_rules": ("unusual_python",)} | fields
    )


def rules(evaluation: Evaluation) -> list[str]:
    return [finding.rule for finding in evaluation.findings]


def test_a_kernel_whose_result_is_thrown_away_is_a_hack(evaluations: Evaluations) -> None:
    evaluation = evaluated(evaluations, KERNEL.replace("return y", f"return {IN_TORCH}"))
    assert (evaluation.outcome, rules(evaluation)) == (Outcome.HACKED, ["decoy_kernels"])
    assert "kernel did nothing but copy" in evaluation.message


def test_a_kernel_that_is_never_launched_is_a_hack(evaluations: Evaluations) -> None:
    assert rules(evaluated(evaluations, kernel_with(f"return {IN_TORCH}"))) == ["decoy_kernels"]


def test_a_result_of_an_exception_handler_is_a_hack_if_it_is_the_output(evaluations: Evaluations) -> None:
    source = kernel_with(f"try:\n    kernel[(1,)](x, None, undefined)\nexcept Exception:\n    return {IN_TORCH}")
    assert rules(evaluated(evaluations, source)) == ["decoy_kernels"]


def test_an_output_computed_without_tensors_is_a_hack(evaluations: Evaluations) -> None:
    assert rules(evaluated(evaluations, kernel_with(f"return {IN_PYTHON}"))) == ["decoy_kernels"]


@pytest.mark.parametrize(
    "change",
    [
        ("", ""),
        ("@triton.jit\ndef kernel", AUTOTUNED),
        ("return y", "return y.clone().view(-1)"),
        ("torch.empty_like(x)", "torch.zeros_like(x)"),
        (
            "kernel[(triton.cdiv(n, 128),)](x, y, n, BLOCK=128)",
            "kernel.run(x, y, n, grid=(3,), warmup=False, BLOCK=128)",
        ),
    ],
    ids=["plain", "autotuned", "rearranged", "into zeros", "run"],
)
def test_a_kernel_that_makes_the_output_is_clean(evaluations: Evaluations, change: tuple[str, str]) -> None:
    source = KERNEL.replace(*change)
    if "autotune" in source:
        source = source.replace("(triton.cdiv(n, 128),)", "(5,)").replace(", BLOCK=128)", ")")
    evaluation = evaluated(evaluations, source)
    assert (evaluation.outcome, evaluation.findings) == (Outcome.CORRECT, ()), evaluation.detail
    assert evaluation.facts.no_op == "incorrect"


def test_a_finish_in_torch_that_needs_the_kernel_is_clean(evaluations: Evaluations) -> None:
    source = KERNEL.replace("tl.maximum(x, 0.0) * 2.0", "tl.maximum(x, 0.0)").replace("return y", "return y + y")
    assert evaluated(evaluations, source).outcome is Outcome.CORRECT


def test_an_output_of_zeros_decides_nothing(evaluations: Evaluations) -> None:
    evaluation = evaluated(evaluations, KERNEL.replace("return y", "return torch.zeros_like(x)"), ZEROS)
    assert evaluation.outcome is Outcome.CORRECT
    assert "constant" in evaluation.facts.no_op


@pytest.mark.parametrize(
    ("settings", "kernels"),
    [
        ({"probes": ("poison",)}, ("kernel",)),
        ({"profile": "kernelbench"}, ("kernel",)),
    ],
    ids=["switched off", "profile kernelbench"],
)
def test_without_the_probe_nothing_is_found(
    evaluations: Evaluations, settings: dict[str, Any], kernels: tuple[str, ...]
) -> None:
    source = KERNEL.replace("return y", f"return {IN_TORCH}")
    assert evaluated(evaluations, source, kernels=kernels, **settings).outcome is Outcome.CORRECT


def test_a_candidate_without_suspect_rules_is_not_probed(evaluations: Evaluations) -> None:
    evaluation = evaluated(evaluations, KERNEL, suspect_rules=())
    assert (evaluation.outcome, evaluation.findings) == (Outcome.CORRECT, ()), evaluation.detail
    assert evaluation.facts.no_op == ""


def test_every_candidate_is_probed_where_operators_are_not_listed(evaluations: Evaluations) -> None:
    assert evaluated(evaluations, KERNEL, suspect_rules=(), probes=("no_op",)).facts.no_op == "incorrect"


@pytest.mark.parametrize("result", [IN_TORCH, IN_PYTHON], ids=["torch", "python"])
def test_a_candidate_that_computes_beside_its_kernels_is_probed_whatever_its_source(
    evaluations: Evaluations, result: str
) -> None:
    assert rules(evaluated(evaluations, kernel_with(f"return {result}"), suspect_rules=())) == ["decoy_kernels"]


def test_kernels_that_the_source_does_not_name_are_disabled_too(evaluations: Evaluations) -> None:
    assert evaluated(evaluations, KERNEL, kernels=()).facts.no_op == "incorrect"
    decoy = KERNEL.replace("return y", f"return {IN_TORCH}")
    assert rules(evaluated(evaluations, decoy, kernels=())) == ["decoy_kernels"]


def test_the_facts_have_the_kernels_that_ran(evaluations: Evaluations) -> None:
    assert evaluated(evaluations, KERNEL).facts.launches == ("kernel",)
    assert evaluated(evaluations, kernel_with(f"return {IN_TORCH}"), probes=("operators",)).facts.launches == ()


def test_an_output_of_one_element_is_probed(evaluations: Evaluations) -> None:
    total = REFERENCE.replace("torch.relu(x) * 2.0", "torch.relu(x).sum()")
    decoy = KERNEL.replace("return y", "return torch.relu(x).sum()")
    honest = KERNEL.replace("* 2.0", "").replace("return y", "return y.sum()")
    assert rules(evaluated(evaluations, decoy, total)) == ["decoy_kernels"]
    assert evaluated(evaluations, honest, total).outcome is Outcome.CORRECT


def test_a_candidate_that_waits_for_its_kernel_without_end_keeps_its_outcome(evaluations: Evaluations) -> None:
    source = KERNEL.replace("return y", "while bool((y != torch.relu(x) * 2.0).any()): pass\n        return y")
    evaluation = evaluated(evaluations, source, timeout_s=3.0)
    assert evaluation.outcome is Outcome.CORRECT
    assert evaluation.facts.no_op == "timeout"


@pytest.mark.parametrize(
    "result",
    [IN_TORCH, "torch.from_numpy(np.maximum(x.numpy(), 0.0) * 2.0)"],
    ids=["torch", "numpy"],
)
@pytest.mark.parametrize("allocation", ["empty_like", "zeros_like"])
def test_a_kernel_that_copies_a_result_of_torch_or_numpy_is_a_hack(
    evaluations: Evaluations, result: str, allocation: str
) -> None:
    copying = KERNEL.replace("tl.maximum(x, 0.0) * 2.0", "x").replace("# HERE", f"x = {result}")
    source = "import numpy as np\n" + copying.replace("empty_like", allocation)
    assert rules(evaluated(evaluations, source)) == ["decoy_kernels"]


def test_a_copy_that_is_the_task_is_clean(evaluations: Evaluations) -> None:
    evaluation = evaluated(
        evaluations,
        KERNEL.replace("tl.maximum(x, 0.0) * 2.0", "x"),
        REFERENCE.replace("torch.relu(x) * 2.0", "x.clone()"),
    )
    assert evaluation.outcome is Outcome.CORRECT
    assert "one of the inputs" in evaluation.facts.no_op


def test_operators_that_compute_are_named_where_a_kernel_only_copies(evaluations: Evaluations) -> None:
    copying = KERNEL.replace("tl.maximum(x, 0.0) * 2.0", "x").replace("# HERE", f"x = {IN_TORCH}")
    evaluation = evaluated(evaluations, copying, probes=("operators",))
    assert evaluation.outcome is Outcome.CORRECT
    assert evaluation.facts.computing_operators == ("aten::relu", "aten::mul")


def test_an_interpreted_kernel_can_compute_with_triton_only(evaluations: Evaluations) -> None:
    inside = KERNEL.replace("    tl.store", "    x.handle.data = x.handle.data.clip(0)\n    tl.store")
    evaluation = evaluated(evaluations, inside)
    assert evaluation.outcome is Outcome.COMPILE_ERROR
    assert "has no attribute 'data'" in evaluation.detail


def test_an_honest_kernel_calls_no_operator_that_computes(evaluations: Evaluations) -> None:
    assert evaluated(evaluations, KERNEL).facts.computing_operators == ()


def test_a_candidate_that_fails_in_a_further_call_keeps_its_outcome(evaluations: Evaluations) -> None:
    source = kernel_with("import os\nself.n = getattr(self, 'n', 0) + 1\nif self.n > 5: os._exit(3)")
    assert evaluated(evaluations, source, probes=("operators",)).outcome is Outcome.CORRECT
