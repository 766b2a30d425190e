"""Bytes that decide the outputs, on tasks for which they are known."""

from __future__ import annotations

import pytest

from kernelrl_core.api.evaluators import EvaluationSettings
from kernelrl_judge.task.reference import Reference
from kernelrl_judge.task.source import load_reference
from kernelrl_judge.timing.roofline import bytes_that_matter, memory_floor_us

TASK = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1000))
        self.table = nn.Parameter(torch.randn({rows}, 8))

    def forward(self, x):
        return {value}


def get_inputs():
    return [{x}]


def get_init_inputs():
    return []
"""


def reference(value: str, x: str = "torch.randn(50, 1000)", rows: int = 1) -> Reference:
    source = TASK.format(value=value, x=x, rows=rows)
    made = Reference(load_reference(source, "task"), "task", EvaluationSettings(), "cpu").with_seed("0" * 32)
    made.trial(0)
    return made


def test_all_of_an_input_matters_to_a_map() -> None:
    inputs, parameters = bytes_that_matter(reference("torch.relu(x) * 2.0"))
    assert 0.9 * 200_000 < inputs <= 200_000
    assert parameters == 0


def test_elements_that_a_slice_removes_do_not_matter() -> None:
    inputs, _ = bytes_that_matter(reference("x[:, :500] * 2.0"))
    assert 0.2 * 200_000 < inputs < 0.62 * 200_000


def test_a_table_of_which_few_rows_are_read_hardly_matters() -> None:
    _, parameters = bytes_that_matter(reference("x.sum() + self.table[3]", rows=100_000))
    assert parameters < 0.1 * 100_000 * 8 * 4


def test_parameters_that_are_used_matter() -> None:
    _, parameters = bytes_that_matter(reference("x * self.weight", "torch.randn(2, 1000)"))
    assert 0.9 * 4000 < parameters <= 4000


def test_a_constant_output_needs_no_byte() -> None:
    assert bytes_that_matter(reference("torch.zeros_like(x)"))[0] == 0


def test_an_expanded_input_counts_its_stored_bytes() -> None:
    inputs, _ = bytes_that_matter(reference("x * 2.0", "torch.randn(1, 1000).expand(50, 1000)"))
    assert inputs <= 4000


def test_the_measurement_does_not_change_the_reference() -> None:
    made = reference("x * self.weight", "torch.randn(2, 1000)")
    before = made.trial(1).expected
    bytes_that_matter(made)
    assert made.trial(1).expected.equal(before)


def test_the_memory_floor_is_the_one_computed_by_hand() -> None:
    made = reference("torch.relu(x)")
    made.facts.bytes_that_matter = (200_000, 40_000)
    # Four calls: 4 * 200,000 read, 40,000 of parameters, 4 * 200,000 written of which the cache keeps 300,000.
    assert memory_floor_us(made, 4, 1000.0, 300_000) == pytest.approx((800_000 + 40_000 + 500_000) / 4 / 1e6)
