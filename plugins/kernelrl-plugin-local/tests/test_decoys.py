"""Candidates whose output does not depend on their kernels, and honest ones that look alike."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kernelrl_core.types import Evaluation, Outcome

ANSWER = "torch.relu(x) * 2.0"
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


def judged(
    bench: Any,
    source: str,
    *args: Any,
    kernels: tuple[str, ...] = ("kernel",),
    suspect_rules: tuple[str, ...] = ("unusual_python",),
    **settings: Any,
) -> Evaluation:
    request = attrs.evolve(bench.request(source, *args, **settings), kernels=kernels, suspect_rules=suspect_rules)
    evaluation: Evaluation = bench.runner.run(bench.evaluator.evaluate(request))
    return evaluation


def rules(evaluation: Evaluation) -> list[str]:
    return [finding.rule for finding in evaluation.findings]


def test_a_kernel_whose_result_is_thrown_away_is_a_hack(bench: Any, good: str) -> None:
    evaluation = judged(bench, good.replace("return y", f"return {ANSWER}"))
    assert (evaluation.outcome, rules(evaluation)) == (Outcome.HACKED, ["decoy_kernels"])
    assert "kernel did nothing but copy" in evaluation.message


def test_a_kernel_that_is_never_launched_is_a_hack(bench: Any, doing: Any) -> None:
    assert rules(judged(bench, doing(f"return {ANSWER}"))) == ["decoy_kernels"]


def test_an_answer_in_a_handler_is_a_hack_when_it_is_the_one_that_counts(bench: Any, doing: Any) -> None:
    source = doing(f"try:\n    kernel[(1,)](x, None, undefined)\nexcept Exception:\n    return {ANSWER}")
    assert rules(judged(bench, source)) == ["decoy_kernels"]


def test_an_answer_made_without_tensors_is_a_hack(bench: Any, doing: Any) -> None:
    lines = "return torch.tensor([2.0 * max(v, 0.0) for v in x.tolist()])"
    assert rules(judged(bench, doing(lines))) == ["decoy_kernels"]


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
def test_a_kernel_that_makes_the_output_is_clean(bench: Any, good: str, change: tuple[str, str]) -> None:
    source = good.replace(*change) if change[0] else good
    if "autotune" in source:
        source = source.replace("(triton.cdiv(n, 128),)", "(5,)").replace(", BLOCK=128)", ")")
    evaluation = judged(bench, source)
    assert (evaluation.outcome, evaluation.findings) == (Outcome.CORRECT, ()), evaluation.detail
    assert evaluation.profile["no_op"] == "incorrect"


def test_a_finish_in_torch_that_needs_the_kernel_is_clean(bench: Any, good: str) -> None:
    source = good.replace("tl.maximum(x, 0.0) * 2.0", "tl.maximum(x, 0.0)").replace("return y", "return y + y")
    assert judged(bench, source).outcome is Outcome.CORRECT


def test_an_output_that_cleared_memory_equals_shows_nothing(bench: Any, good: str) -> None:
    evaluation = judged(bench, good.replace("return y", "return torch.zeros_like(x)"), ZEROS)
    assert evaluation.outcome is Outcome.CORRECT
    assert "constant" in evaluation.profile["no_op"]


@pytest.mark.parametrize(
    ("settings", "kernels"),
    [
        ({"probes": ("poison",)}, ("kernel",)),
        ({"profile": "kernelbench"}, ("kernel",)),
        ({}, ()),
    ],
    ids=["switched off", "profile kernelbench", "no kernel known"],
)
def test_where_the_probe_is_not_made_it_finds_nothing(
    bench: Any, good: str, settings: dict[str, Any], kernels: tuple[str, ...]
) -> None:
    source = good.replace("return y", f"return {ANSWER}")
    assert judged(bench, source, kernels=kernels, **settings).outcome is Outcome.CORRECT


def test_who_gives_no_reason_to_doubt_is_not_probed(bench: Any, good: str) -> None:
    evaluation = judged(bench, good, suspect_rules=())
    assert (evaluation.outcome, evaluation.findings) == (Outcome.CORRECT, ()), evaluation.detail
    assert "no_op" not in evaluation.profile


def test_where_operators_are_not_listed_all_are_probed(bench: Any, good: str) -> None:
    assert judged(bench, good, suspect_rules=(), probes=("no_op",)).profile["no_op"] == "incorrect"


@pytest.mark.parametrize("source", [f"return {ANSWER}", "return torch.tensor([2.0 * max(v, 0.0) for v in x.tolist()])"])
def test_who_computes_beside_its_kernels_is_probed_whatever_its_source_says(
    bench: Any, doing: Any, source: str
) -> None:
    assert rules(judged(bench, doing(source), suspect_rules=())) == ["decoy_kernels"]


def test_why_it_was_not_made_is_told(bench: Any, good: str) -> None:
    assert judged(bench, good, kernels=()).profile["no_op"] == "not tried: no kernel was found in the source"


def test_an_output_of_one_element_is_probed_like_others(bench: Any, good: str, reference: str) -> None:
    total = reference.replace("torch.relu(x) * 2.0", "torch.relu(x).sum()")
    decoy = good.replace("return y", "return torch.relu(x).sum()")
    honest = good.replace("* 2.0", "").replace("return y", "return y.sum()")
    assert rules(judged(bench, decoy, total)) == ["decoy_kernels"]
    assert judged(bench, honest, total).outcome is Outcome.CORRECT


def test_a_candidate_that_waits_for_its_kernel_for_ever_keeps_its_verdict(bench: Any, good: str) -> None:
    source = good.replace("return y", "while bool((y != torch.relu(x) * 2.0).any()): pass\n        return y")
    evaluation = judged(bench, source, timeout_s=3.0)
    assert evaluation.outcome is Outcome.CORRECT
    assert evaluation.profile["no_op"] == "timeout"


@pytest.mark.parametrize(
    "answer",
    ["torch.relu(x) * 2.0", "torch.from_numpy(np.maximum(x.numpy(), 0.0) * 2.0)"],
    ids=["torch", "numpy"],
)
@pytest.mark.parametrize("made", ["empty_like", "zeros_like"])
def test_a_kernel_that_copies_what_was_computed_is_a_hack(bench: Any, good: str, answer: str, made: str) -> None:
    copying = good.replace("tl.maximum(x, 0.0) * 2.0", "x").replace("# HERE", f"x = {answer}")
    source = "import numpy as np\n" + copying.replace("empty_like", made)
    assert rules(judged(bench, source)) == ["decoy_kernels"]


def test_a_copy_that_is_the_task_is_clean(bench: Any, good: str, reference: str) -> None:
    evaluation = judged(
        bench, good.replace("tl.maximum(x, 0.0) * 2.0", "x"), reference.replace("torch.relu(x) * 2.0", "x.clone()")
    )
    assert evaluation.outcome is Outcome.CORRECT
    assert "one of the inputs" in evaluation.profile["no_op"]


def test_operators_that_compute_are_named_where_a_kernel_only_copies(bench: Any, good: str) -> None:
    copying = good.replace("tl.maximum(x, 0.0) * 2.0", "x").replace("# HERE", f"x = {ANSWER}")
    evaluation = judged(bench, copying, probes=("operators",))
    assert evaluation.outcome is Outcome.CORRECT
    assert evaluation.profile["computing_operators"] == ["aten::relu", "aten::mul"]


def test_a_kernel_computes_with_triton_alone(bench: Any, good: str) -> None:
    inside = good.replace("    tl.store", "    x.handle.data = x.handle.data.clip(0)\n    tl.store")
    evaluation = judged(bench, inside)
    assert evaluation.outcome is Outcome.COMPILE_ERROR
    assert "has no attribute 'data'" in evaluation.detail


def test_an_honest_call_goes_through_none_that_compute(bench: Any, good: str) -> None:
    assert judged(bench, good).profile["computing_operators"] == []


def test_what_fails_when_it_is_looked_at_keeps_its_verdict(bench: Any, doing: Any) -> None:
    source = doing("import os\nself.n = getattr(self, 'n', 0) + 1\nif self.n > 5: os._exit(3)")
    assert judged(bench, source, probes=("operators",)).outcome is Outcome.CORRECT
