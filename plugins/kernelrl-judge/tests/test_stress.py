"""The probe `stress`: what decides, what it changes and leaves, and when it does not decide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kernelrl_core.types import EvaluationSettings, Severity

torch = pytest.importorskip("torch")

from stress_tasks import SETTINGS, reference, wrong_parts  # noqa: E402

from kernelrl_judge.probes import stress  # noqa: E402
from kernelrl_judge.probes.stress_calls import judged  # noqa: E402
from kernelrl_judge.task.input_indices import FIRST_STRESSED  # noqa: E402
from kernelrl_judge.task.input_structure import structure  # noqa: E402
from kernelrl_judge.task.reference import Reference  # noqa: E402
from kernelrl_judge.task.stress_functions import Functions  # noqa: E402


def reason(task: Reference) -> str:
    return stress.prepared(task, SETTINGS, spread=True)[2]


@pytest.mark.parametrize(
    ("forward", "inputs", "honest", "lazy"),
    [
        (
            "return torch.softmax(x, 1)",
            "torch.randn(8, 64)",
            lambda x: (x - x.amax(1, keepdim=True)).exp() / (x - x.amax(1, keepdim=True)).exp().sum(1, keepdim=True),
            lambda x: x.exp() / x.exp().sum(1, keepdim=True),
        ),
        ("return torch.clamp(x, 0, 1)", "torch.rand(8, 64)", lambda x: x.relu().minimum(torch.ones(())), lambda x: x),
        (
            "return x.abs().mean(1)",
            "torch.randn(8, 4096)",
            lambda x: x.abs().cumsum(1)[:, -1] / 4096,
            lambda x: x.abs().bfloat16().float().mean(1),
        ),
        (
            "return torch.logsumexp(x, 1)",
            "torch.randn(8, 64)",
            lambda x: x.amax(1) + (x - x.amax(1, keepdim=True)).exp().sum(1).log(),
            lambda x: x.exp().sum(1).log(),
        ),
        (
            "return x.double().square().sum(1)",
            "torch.randn(8, 512)",
            lambda x: x.double().square().flip(1).sum(1),
            lambda x: x.square().sum(1).double(),
        ),
        (
            "return x.square().sum(1).double()",
            "torch.randn(8, 512)",
            lambda x: x.square().flip(1).sum(1).double(),
            lambda x: x.bfloat16().float().square().sum(1).double(),
        ),
    ],
)
def test_a_shortcut_fails_and_another_order_of_the_same_work_does_not(
    forward: str, inputs: str, honest: Callable[..., Any], lazy: Callable[..., Any]
) -> None:
    task = reference(forward, inputs)
    assert wrong_parts(task, honest) == set()
    assert wrong_parts(task, lazy)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_half_precision_is_decided_too(precision: Any) -> None:
    settings = EvaluationSettings(precision=precision)
    clamp = reference("return torch.clamp(x, 0, 1)", "torch.rand(8, 64)", settings=settings)
    assert wrong_parts(clamp, lambda x: x.clamp(0, 1), settings) == set()
    assert wrong_parts(clamp, lambda x: x, settings) == {"mixed", "spiked", "edges"}
    product = reference("return x @ y", "torch.randn(32, 64), torch.randn(64, 32)", names="x, y", settings=settings)
    assert wrong_parts(product, lambda x, y: (x.float() @ y.float()).to(x.dtype), settings) == set()
    assert wrong_parts(product, lambda x, y: x[:, 1:] @ y[1:], settings)


def test_parameters_that_the_constructor_makes_constant_or_tiny_count() -> None:
    task = reference(
        "return x + self.scale * torch.tanh(x)", init="self.scale = torch.nn.Parameter(1e-6 * torch.ones(64))"
    )
    assert wrong_parts(task, lambda x, scale: x + scale * torch.tanh(x)) == set()
    assert "mixed" in wrong_parts(task, lambda x, scale: x)


def test_parameters_stay_for_a_candidate_that_draws_its_own() -> None:
    task = reference("return self.layer(x)", init="self.layer = torch.nn.Linear(64, 64)")
    used, calls, _ = stress.prepared(task, SETTINGS, spread=False)
    assert used is task
    assert [call.part for call in calls] == ["mixed", "spiked", "aligned", "edges"]


def test_shapes_dtypes_integers_and_structure_stay() -> None:
    inputs = "torch.randn(16, 16), torch.randint(9, (16, 16)), torch.rand(16, 16).softmax(1), torch.ones(16, 16)"
    task = reference("return a + b + c + d", inputs, names="a, b, c, d")
    ordinary = task.inputs(FIRST_STRESSED)
    _, calls, _ = stress.prepared(task, SETTINGS, spread=True)
    changed = calls[0].trial.inputs
    assert [(one.shape, one.dtype) for one in changed] == [(one.shape, one.dtype) for one in ordinary]
    assert [torch.equal(*pair) for pair in zip(changed, ordinary, strict=True)] == [False, True, True, True]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: torch.randn(8, 16), None),
        (lambda: torch.ones(8, 16), "fixed"),
        (lambda: torch.randint(2, (8, 16)).float(), "whole_numbers"),
        (lambda: torch.randn(8, 8).triu(), "zeros"),
        (lambda: torch.randn(8, 16).relu(), None),
        (lambda: (lambda a: a + a.T)(torch.randn(8, 8)), "symmetric"),
        (lambda: torch.randn(8, 16).sort()[0], "sorted"),
        (lambda: torch.randn(8, 16).softmax(1), "normalised"),
        (lambda: torch.nn.functional.normalize(torch.randn(8, 16)), "normalised"),
        (lambda: torch.randn(8, 16).masked_fill(torch.eye(8, 16, dtype=torch.bool), -torch.inf), "non_finite"),
        (lambda: torch.randint(9, (8, 16)), None),
    ],
)
def test_structures_are_told_from_numbers_that_are_drawn(make: Callable[[], Any], expected: str | None) -> None:
    torch.manual_seed(0)
    assert structure(make(), make()) == expected


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (lambda: reference("return x * torch.inf"), "not finite"),
        (lambda: reference("return torch.sin(1e7 * x)"), "own errors"),
    ],
)
def test_where_the_reference_decides_nothing_there_is_no_call(task: Callable[[], Reference], expected: str) -> None:
    assert expected in reason(task())


def test_a_bound_that_keeps_indices_in_range_counts_where_an_assertion_ends_nothing() -> None:
    task = reference("return (torch.arange(64.0) * 2)[(x * 8).long().clamp(0, 63)]", "torch.rand(8, 64)")
    assert wrong_parts(task, lambda x: (torch.arange(64.0) * 2)[(x * 8).long().clamp(0, 63)]) == set()
    assert wrong_parts(task, lambda x: (torch.arange(64.0) * 2)[(x * 8).long() % 64]) == {"mixed", "spiked", "edges"}


@pytest.mark.parametrize(
    ("call", "hazard"),
    [
        (lambda x: torch.nn.functional.binary_cross_entropy(x, x), True),
        (lambda x: torch.ones(64, 4)[(x * 8).long()], True),
        (lambda x: torch.ones(64, 4)[x.argmax(1)], False),
    ],
)
def test_what_would_end_the_context_of_a_gpu_is_seen(call: Callable[[Any], Any], hazard: bool) -> None:
    watch = Functions()
    with watch:
        call(torch.rand(8, 64))
    assert watch.hazard == hazard


def test_complex_outputs_are_decided_by_their_parts() -> None:
    task = reference("return torch.complex(x.relu(), x.abs())", "torch.rand(8, 64)")
    assert wrong_parts(task, lambda x: torch.complex(x.relu(), x.abs())) == set()
    assert wrong_parts(task, lambda x: torch.complex(x, x)) == {"mixed", "spiked"}


def _looks_ordinary(x: Any) -> bool:
    return 2.5 < float(x.abs().max()) < 7.0 and float((x.abs() < 1.0).float().mean()) > 0.6


@pytest.mark.parametrize("narrow", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("forward", "kernel"),
    [("x.abs().mean(1)", lambda x: x.abs().mean(1)), ("x.square().sum()", lambda x: (x * x).sum())],
)
def test_a_narrow_type_is_seen_where_harsh_inputs_are_told_from_ordinary_ones(
    narrow: Any, forward: str, kernel: Callable[..., Any]
) -> None:
    task = reference(f"return {forward}", "torch.randn(8, 4096)")
    assert wrong_parts(task, kernel) == set()
    gated = wrong_parts(task, lambda x: kernel(x.to(narrow).float() if _looks_ordinary(x) else x))
    assert gated == {"aligned"}


def test_inputs_are_aligned_in_single_precision_alone() -> None:
    half = EvaluationSettings(precision="fp16")
    task = reference("return x * 2", settings=half)
    assert "aligned" not in {call.part for call in stress.prepared(task, half, spread=True)[1]}


def test_what_overflows_behind_a_convolution_is_tried() -> None:
    init = "self.w = torch.nn.Parameter(torch.randn(16, 4, 3) / 4)"
    task = reference("return torch.logsumexp(torch.conv1d(x, self.w), 1)", "torch.randn(8, 4, 48)", init)
    assert wrong_parts(task, lambda x, w: torch.conv1d(x.double(), w.double()).logsumexp(1).float()) == set()
    assert "loud" in wrong_parts(task, lambda x, w: torch.conv1d(x, w).exp().sum(1).log())


def test_spikes_are_moderate_where_the_reference_convolves() -> None:
    task = reference("return self.layer(x)", "torch.randn(2, 3, 8, 8)", "self.layer = torch.nn.Conv2d(3, 4, 3)")
    _, calls, _ = stress.prepared(task, SETTINGS, spread=True)
    assert [call.trial.inputs[0].abs().max() <= 16 for call in calls if call.part == "spiked"] == [True]


def test_inputs_that_must_be_positive_keep_their_signs() -> None:
    task = reference("return torch.log(x)", "torch.rand(8, 64) + 0.1")
    assert wrong_parts(task, lambda x: x.log()) == set()


def test_only_a_recipe_that_asks_for_precision_finds_less_of_it() -> None:
    kinds = [
        stress.concluded(EvaluationSettings(min_precision=least), None, ratio)[0]
        for least in ("none", "bf16", "tf32", "fp32")
        for ratio in (2.0, 2.0**12, 2.0**16)
    ]
    assert [[finding.rule for finding in found] for found in kinds] == [
        *([[]] * 6),
        *([], [], ["low_precision"]),
        *([], ["low_precision"], ["low_precision"]),
    ]
    assert {finding.severity for found in kinds for finding in found} == {Severity.SUSPECT}


def test_the_error_ratio_tells_types_apart() -> None:
    task = reference("return x @ y", "torch.randn(32, 64), torch.randn(64, 32)", names="x, y")
    loose = EvaluationSettings(atol=0.05, rtol=0.05)
    _, calls, _ = stress.prepared(task, loose, spread=True)
    ratios = {
        dtype: max(
            judged(
                call, (call.trial.inputs[0].to(dtype) @ call.trial.inputs[1].to(dtype)).float(), loose, torch.float32
            ).error_ratio
            or 0.0
            for call in calls
        )
        for dtype in (torch.float32, torch.bfloat16)
    }
    assert ratios[torch.float32] < 2**7
    assert ratios[torch.bfloat16] > 2**13
