"""Inputs whose regions have different levels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from small_tasks import reference  # noqa: E402

from kernelrl_judge.task.comparison import tolerance  # noqa: E402
from kernelrl_judge.task.coverage import covered_inputs, measured_coverage  # noqa: E402
from kernelrl_judge.task.precision import wrong_values  # noqa: E402
from kernelrl_judge.task.reference import Reference  # noqa: E402

HALF = "torch.rand(16, 4096).bfloat16()"


def is_right(task: Reference, kernel: Callable[..., Any]) -> bool:
    coverage = measured_coverage(task, 48)
    assert coverage is not None
    inputs = covered_inputs(task, 3, coverage)
    found = wrong_values(task, inputs, 3, task.expected(inputs, 3), kernel(*inputs), tolerance(task.settings))
    return found is None


@pytest.mark.parametrize(
    "part",
    [
        lambda x: x[:, :1024],
        lambda x: x[:, ::4],
        lambda x: x[:, :3584],
        lambda x: x.view(16, 8, 512)[:, ::2].reshape(16, -1),
        lambda x: x[:, 2048:],
    ],
    ids=["quarter", "every fourth", "without the tail", "every second block", "second half"],
)
def test_a_mean_over_a_part_of_its_input_is_wrong(part: Callable[[Any], Any]) -> None:
    task = reference("return x.mean(1)", HALF)
    assert is_right(task, lambda x: x.mean(1))
    assert not is_right(task, lambda x: part(x).float().mean(1).bfloat16())


def test_every_input_is_covered() -> None:
    task = reference("return ((x - y) ** 2).mean()", f"{HALF}, {HALF}", names="x, y")
    assert not is_right(task, lambda x, y: ((x - y) ** 2)[:4].mean())


def test_values_stay_within_the_range_of_the_task() -> None:
    task = reference("return x * 2", "torch.rand(32, 256)")
    coverage = measured_coverage(task, 48)
    assert coverage is not None
    (covered,) = covered_inputs(task, 3, coverage)
    assert float(covered.min()) >= 0.0
    assert float(covered.max()) <= 1.0


def test_integers_masks_and_structured_inputs_stay_as_drawn() -> None:
    inputs = "torch.randint(0, 9, (64,)), torch.rand(64) > 0.5, torch.randn(64).sort().values"
    task = reference("return x + y + z", inputs, names="x, y, z")
    assert measured_coverage(task, 48) is None


def test_regions_that_the_reference_ignores_are_listed() -> None:
    coverage = measured_coverage(reference("return x[:, :7]", "torch.rand(8, 64)"), 48)
    assert coverage is not None
    assert {region.text for region in coverage.ignored} == {
        "second half along axis 1 of input tensor 1",
        "tail along axis 1 of input tensor 1",
        "odd blocks along axis 1 of input tensor 1",
    } - {region.text for region in coverage.weights}
    assert "tail along axis 1 of input tensor 1" in {region.text for region in coverage.ignored}


def test_a_reference_that_is_not_finite_between_levels_has_no_coverage() -> None:
    assert (
        measured_coverage(reference("return torch.log(x - x.mean(1, keepdim=True))", "torch.rand(8, 64)"), 48) is None
    )
