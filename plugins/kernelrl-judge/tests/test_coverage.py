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
from kernelrl_judge.task.regions import MIN_AXIS, Region  # noqa: E402

HALF = "torch.rand(16, 4096).bfloat16()"


def is_right(task: Reference, kernel: Callable[..., Any]) -> bool:
    """Whether a kernel is right in every covered trial."""
    coverage = measured_coverage(task, 48)
    assert coverage is not None
    for number in range(coverage.n_trials):
        inputs = covered_inputs(task, number, coverage.of_trial(number))
        expected = task.expected(inputs, number)
        if wrong_values(task, inputs, number, expected, kernel(*inputs), tolerance(task.settings)) is not None:
            return False
    return True


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


def test_half_of_a_mean_of_squares_is_wrong() -> None:
    inputs = "torch.rand(64, 1024).bfloat16(), torch.rand(64, 1024).bfloat16()"
    task = reference("return ((x - y) ** 2).mean()", inputs, names="x, y")
    assert is_right(task, lambda x, y: ((x - y) ** 2).mean())
    assert not is_right(task, lambda x, y: ((x - y) ** 2)[:32].mean())
    assert not is_right(task, lambda x, y: ((x - y) ** 2)[::2].mean())
    assert not is_right(task, lambda x, y: ((x - y) ** 2)[:, :512].mean())


def test_a_constant_in_place_of_a_sum_of_weights_is_wrong() -> None:
    inputs = "torch.rand(16, 2048).bfloat16(), torch.rand(16, 2048).bfloat16()"
    task = reference("return (x * w).sum(1) / w.sum(1)", inputs, names="x, w")
    assert not is_right(task, lambda x, w: (x * w).float().sum(1).div(1024).bfloat16())


def test_values_stay_within_the_range_of_the_task() -> None:
    task = reference("return x * 2", "torch.rand(32, 256)")
    coverage = measured_coverage(task, 48)
    assert coverage is not None
    (covered,) = covered_inputs(task, 3, coverage.of_trial(0))
    assert float(covered.min()) >= 0.0
    assert float(covered.max()) <= 1.0


def test_integers_masks_and_structured_inputs_stay_as_drawn() -> None:
    inputs = "torch.randint(0, 9, (64,)), torch.rand(64) > 0.5, torch.randn(64).sort().values"
    task = reference("return x + y + z", inputs, names="x, y, z")
    assert measured_coverage(task, 48) is None


def test_regions_that_the_reference_ignores_are_listed() -> None:
    coverage = measured_coverage(reference("return x[:, :7]", "torch.rand(8, 64)"), 48)
    assert coverage is not None
    assert "tail along axis 1 of input tensor 1" in {region.text for region in coverage.ignored}


def test_a_reference_that_is_not_finite_between_levels_has_no_coverage() -> None:
    assert (
        measured_coverage(reference("return torch.log(x - x.mean(1, keepdim=True))", "torch.rand(8, 64)"), 48) is None
    )


@pytest.mark.parametrize("kind", MIN_AXIS)
def test_levels_are_computed_on_the_device_of_the_inputs(kind: str) -> None:
    """An axis of eight million elements takes a third of a second for each region on the CPU."""
    assert Region(0, 0, kind).levels(16, torch.device("meta")).device.type == "meta"
