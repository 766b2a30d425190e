"""Evaluations of kernels that are right, and of kernels that are wrong in one way."""

from __future__ import annotations

import pytest
from shared_evaluations import KERNEL, Evaluations

from kernelrl_core.api.evaluators import BuildStatus, Outcome, TaskDtypes


def task(forward: str, inputs: str, *, init: str = "[]", constructor: str = "", arguments: str = "x") -> str:
    """A reference.

    Args:
        forward: the expression that `forward` returns.
        init: the result of `get_init_inputs`.
        constructor: parameters of the constructor, then its lines, separated by `|`; empty: none.
    """
    parameters, *lines = constructor.split("|")
    head = f"    def __init__({parameters}):\n        super().__init__()\n"
    body = "".join(f"        {line}\n" for line in lines)
    return (
        "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n"
        + (head + body if constructor else "")
        + f"    def forward(self, {arguments}):\n        return {forward}\n\n\n"
        f"def get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return {init}\n"
    )


def candidate(reference: str, result: str | None = None) -> str:
    """The code of the reference as a candidate.

    Args:
        result: the expression that `forward` returns; None: that of the reference.
    """
    source = reference.replace("class Model(", "class ModelNew(")
    if result is None:
        return source
    head, _, rest = source.partition("        return ")
    return f"{head}        return {result}\n{rest.partition(chr(10))[2]}"


PLAIN = task("x * 2.0", "torch.randn(50)")


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        ("x * 2.1", "values"),
        ("(x * 2.0)[:10]", "shape"),
        ("(x * 2.0)[None]", "shape"),
        ("(x * 2.0).double()", "dtype"),
        ("[x * 2.0]", "structure"),
        ("None", "structure"),
        ("x * 2.0 / (x * 0.0)", "non_finite"),
        ("object()", "structure"),
    ],
)
def test_a_wrong_output_is_incorrect_with_the_kind_of_mismatch(
    evaluations: Evaluations, result: str, kind: str
) -> None:
    evaluation = evaluations.evaluate(candidate(PLAIN, result), PLAIN)
    assert evaluation.outcome is Outcome.INCORRECT
    assert evaluation.mismatch is not None
    assert evaluation.mismatch.kind == kind
    assert evaluation.build is BuildStatus.BUILT


def test_a_right_kernel_passes_every_trial(evaluations: Evaluations) -> None:
    evaluation = evaluations.evaluate(candidate(PLAIN), PLAIN, trials=7)
    assert (evaluation.outcome, evaluation.tests_passed, evaluation.tests_total) == (Outcome.CORRECT, 7, 7)


@pytest.mark.parametrize(
    ("source", "outcome"),
    [
        ("import nothing_of_that_name\n", Outcome.COMPILE_ERROR),
        ("x = 1\n", Outcome.COMPILE_ERROR),
        ("class ModelNew:\n    def __init__(self): raise ValueError('no')\n", Outcome.RUNTIME_ERROR),
        ("class ModelNew:\n    def __call__(self, x): return undefined\n", Outcome.RUNTIME_ERROR),
    ],
)
def test_a_failure_has_the_outcome_of_its_phase(evaluations: Evaluations, source: str, outcome: Outcome) -> None:
    assert evaluations.evaluate(source, PLAIN).outcome is outcome


def test_the_first_output_kept_for_later_calls_is_a_hack(evaluations: Evaluations) -> None:
    source = candidate(PLAIN).replace("return x * 2.0", "self.kept = getattr(self, 'kept', x * 2.0); return self.kept")
    evaluation = evaluations.evaluate(source, PLAIN)
    assert (evaluation.outcome, evaluation.tests_passed) == (Outcome.HACKED, 1)
    assert [finding.rule for finding in evaluation.findings] == ["replay"]
    assert "it was stored, and not computed from its inputs" in evaluation.message


TINY = task("torch.softmax(x, dim=1) * 1e-3", "torch.randn(4, 500)")


def test_zeros_do_not_match_a_tiny_output(evaluations: Evaluations) -> None:
    zeros = candidate(TINY, "torch.zeros_like(x)")
    assert evaluations.evaluate(zeros, TINY).outcome is Outcome.INCORRECT
    assert evaluations.evaluate(zeros, TINY, profile="kernelbench").outcome is Outcome.CORRECT


@pytest.mark.parametrize(
    "reference",
    [
        task("(x.sum(), x * 2.0)", "torch.randn(50)"),
        task("{'a': x * 2.0, 'b': [x]}", "torch.randn(50)"),
        task("x.argmax(dim=1)", "torch.randn(8, 9)"),
        task(
            "torch.nn.functional.cross_entropy(x, t)", "torch.randn(8, 9), torch.randint(0, 9, (8,))", arguments="x, t"
        ),
        task("x * k + (0.0 if b is None else 1.0)", "torch.randn(50), 3, None", arguments="x, k, b"),
        task("x[0] + x[1]", "[torch.randn(5), torch.randn(5)]"),
        task("x > 0", "torch.randn(50)"),
        task("self.fc(x)", "torch.randn(4, 6)", init="[6, 3]", constructor="self, a, b|self.fc = nn.Linear(a, b)"),
    ],
)
def test_inputs_and_outputs_of_every_structure_reach_the_other_process(
    evaluations: Evaluations, reference: str
) -> None:
    evaluation = evaluations.evaluate(candidate(reference), reference)
    assert evaluation.outcome is Outcome.CORRECT, evaluation


LINEAR = task("self.fc(x)", "torch.randn(4, 6)", constructor="self|self.fc = nn.Linear(6, 3)")


def test_parameters_are_matched_by_name(evaluations: Evaluations) -> None:
    source = candidate(LINEAR).replace("nn.Linear(6, 3)", "nn.Linear(6, 3); nn.init.zeros_(self.fc.weight)")
    evaluation = evaluations.evaluate(source, LINEAR)
    assert evaluation.outcome is Outcome.CORRECT
    assert evaluation.facts.parameters == "matched by name and shape"


def test_parameters_of_other_names_are_matched_by_their_values(evaluations: Evaluations) -> None:
    evaluation = evaluations.evaluate(candidate(LINEAR).replace("self.fc", "self.other"), LINEAR)
    assert evaluation.outcome is Outcome.CORRECT
    assert evaluation.facts.parameters == "matched by values and shape"


HALF = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(64).half() + 0.5)

    def forward(self, x):
        if x.dtype is not torch.float16 or self.weight.dtype is not torch.float16:
            raise TypeError(f"float16 expected, got {x.dtype} and {self.weight.dtype}")
        return (x.float() * self.weight.float()).half()


def get_inputs():
    return [torch.randn(16, 64, dtype=torch.float16)]


def get_init_inputs():
    return []
"""


def test_a_task_keeps_the_dtypes_that_it_writes(evaluations: Evaluations) -> None:
    evaluation = evaluations.evaluate(candidate(HALF), HALF)
    assert (evaluation.outcome, evaluation.facts.cast) == (Outcome.CORRECT, ""), evaluation.message
    assert evaluation.facts.dtypes == TaskDtypes(("float16",), ("float16",), ("float16",))


def test_a_cast_changes_the_dtypes_and_is_reported(evaluations: Evaluations) -> None:
    evaluation = evaluations.evaluate(candidate(PLAIN), PLAIN, precision="fp16")
    assert (evaluation.outcome, evaluation.facts.cast) == (Outcome.CORRECT, "fp16")


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_half_precisions_have_their_tolerance(evaluations: Evaluations, precision: str) -> None:
    assert evaluations.evaluate(candidate(PLAIN), PLAIN, precision=precision).outcome is Outcome.CORRECT
    assert evaluations.evaluate(candidate(PLAIN, "x * 2.001"), PLAIN, precision=precision).outcome is Outcome.CORRECT
    assert evaluations.evaluate(candidate(PLAIN, "x * 2.001"), PLAIN).outcome is Outcome.INCORRECT


def test_inputs_are_a_function_of_the_seed(evaluations: Evaluations) -> None:
    def largest_difference(seed: str) -> float:
        mismatch = evaluations.evaluate(candidate(PLAIN, "x * 3.0"), PLAIN, seed=seed).mismatch
        assert mismatch is not None
        assert mismatch.max_abs is not None
        return mismatch.max_abs

    assert largest_difference("01" * 16) == largest_difference("01" * 16)
    assert largest_difference("01" * 16) != largest_difference("02" * 16)


def test_output_that_a_candidate_prints_is_in_the_log_and_not_in_the_message(evaluations: Evaluations) -> None:
    evaluation = evaluations.evaluate(candidate(PLAIN).replace("return x", "print('hello there'); return x"), PLAIN)
    assert "hello there" in evaluation.detail
    assert "hello there" not in evaluation.message


def test_an_autotuned_kernel_is_interpreted_with_one_of_its_configurations(evaluations: Evaluations) -> None:
    configs = "[triton.Config({'BLOCK': 64}), triton.Config({'BLOCK': 128}, num_warps=8)]"
    tuned = KERNEL.replace("@triton.jit", f"@triton.autotune(configs={configs}, key=['n'])\n@triton.jit")
    tuned = tuned.replace("(triton.cdiv(n, 128),)", "lambda meta: (triton.cdiv(n, meta['BLOCK']),)")
    tuned = tuned.replace(", BLOCK=128)", ")")
    assert tuned.count("BLOCK'") == 3
    assert evaluations.evaluate(tuned).outcome is Outcome.CORRECT


def test_an_error_in_a_kernel_names_the_line_and_the_cause_in_the_interpreter(evaluations: Evaluations) -> None:
    mistaken = KERNEL.replace("tl.maximum(x, 0.0)", "double(x)").replace(
        "@triton.jit", "@triton.jit\ndef double(x):\n    return x + missing\n\n\n@triton.jit"
    )
    evaluation = evaluations.evaluate(mistaken)
    assert evaluation.outcome is Outcome.COMPILE_ERROR
    assert "double(x) * 2.0, mask=mask)\n                           ^" in evaluation.message
    assert evaluation.message.endswith("return x + missing\n               ^\nNameError('missing is not defined')")


@pytest.mark.parametrize("place", ["import torch\n", "        # HERE\n"])
def test_a_compiler_that_a_triton_candidate_starts_is_denied_with_its_name(
    evaluations: Evaluations, place: str
) -> None:
    start = "import subprocess; subprocess.run(['/usr/bin/g++', '-shared', 'x.cpp'])\n"
    mistaken = KERNEL.replace(place, place + place[: len(place) - len(place.lstrip())] + start, 1)
    evaluation = evaluations.evaluate(mistaken)
    assert evaluation.outcome is Outcome.COMPILE_ERROR
    assert "denied: running g++ is not allowed to a candidate; write the kernels in Triton" in evaluation.message
