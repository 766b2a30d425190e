"""Families of harder inputs: hand-worked examples, and the structure that they keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tasks import failed, reference

from kernelrl_judge.probes.families import FAMILIES, VARIANTS, harder, nudged
from kernelrl_judge.task.domain import AS_DRAWN, Domain

NUMBERS = Domain("numbers")


@pytest.mark.parametrize(
    ("forward", "inputs", "names", "family", "honest", "lazy"),
    [
        ("return x.relu()", "torch.rand(8, 64)", "x", "scale", lambda x: x.clamp(min=0), lambda x: x),
        (
            "return x.clamp(-7, 7) + torch.exp(8 * x)",
            "torch.randn(8, 64)",
            "x",
            "scale",
            lambda x: x.clamp(-7, 7) + torch.exp(8 * x),
            lambda x: x + torch.exp(8 * x),
        ),
        (
            "return x.abs().mean(1)",
            "torch.randn(8, 4096)",
            "x",
            "rounding",
            lambda x: x.abs().cumsum(1)[:, -1] / 4096,
            lambda x: x.half().float().abs().mean(1),
        ),
        (
            "return torch.round(x * 4)",
            "torch.randn(8, 64)",
            "x",
            "ties",
            lambda x: torch.round(4 * x),
            lambda x: torch.floor(4 * x + 0.5),
        ),
        (
            "return (x * m).sum(1) / m.sum(1).clamp(min=1)",
            "torch.randn(8, 64), torch.rand(8, 64) > 0.5",
            "x, m",
            "ties",
            lambda x, m: (x * m).sum(1) / m.sum(1).clamp(min=1),
            lambda x, m: (x * m).sum(1) / m.sum(1),
        ),
        (
            "return torch.zeros(100000).index_add(0, i, x)",
            "torch.randint(0, 100000, (16,)), torch.randn(16)",
            "i, x",
            "ties",
            lambda i, x: torch.zeros(100000).index_add(0, i, x),
            lambda i, x: torch.zeros(100000).index_put((i,), x),
        ),
        (
            "return x.mean(1)",
            "torch.randn(8, 65537)",
            "x",
            "boundaries",
            lambda x: x.sum(1) / 65537,
            lambda x: x[:, :65536].sum(1) / 65537,
        ),
        (
            "return torch.where(i == 0, 0, i)",
            "torch.randint(0, 1000000, (32,))",
            "i",
            "boundaries",
            lambda i: i * 1,
            lambda i: torch.where(i == 0, 7, i),
        ),
        (
            "return torch.nn.functional.normalize(x, dim=1)",
            "torch.randn(8, 64)",
            "x",
            "zeros",
            lambda x: x / x.norm(dim=1, keepdim=True).clamp(min=1e-12),
            lambda x: x / x.norm(dim=1, keepdim=True),
        ),
        (
            "return torch.softmax(x, 1)",
            "torch.randn(8, 64)",
            "x",
            "extremes",
            lambda x: (x - x.amax(1, keepdim=True)).exp() / (x - x.amax(1, keepdim=True)).exp().sum(1, keepdim=True),
            lambda x: x.exp() / x.exp().sum(1, keepdim=True),
        ),
    ],
)
def test_a_shortcut_fails_in_its_family_and_an_honest_kernel_in_none(
    forward: str, inputs: str, names: str, family: str, honest: Callable[..., Any], lazy: Callable[..., Any]
) -> None:
    task = reference(forward, inputs, names=names)
    assert failed(task, honest) == set()
    assert family in failed(task, lazy)


def test_declared_bounds_nan_and_further_values_are_tried() -> None:
    loss = reference(
        "return torch.nn.functional.binary_cross_entropy(p, t, reduction='none')",
        "torch.rand(8, 64), torch.rand(8, 64)",
        names="p, t",
        domain="{'p': 'probability', 't': 'probability'}",
    )
    assert "boundaries" in failed(loss, lambda p, t: -(t * p.log() + (1 - t) * (1 - p).log()))
    replaced = reference("return torch.nan_to_num(x, 0.0, 9.0, -9.0)", domain="{'x': 'special'}")
    assert failed(replaced, lambda x: x * 1) == {"extremes"}
    labels = reference("return torch.where(x < 0, 0, x)", "torch.randint(0, 9, (16,))", domain="{'x': [0, 8, -100]}")
    assert failed(labels, lambda x: x * 1) == {"boundaries"}


def test_the_first_and_last_places_are_large() -> None:
    found = harder([torch.ones(2, 5)], [NUMBERS], "boundaries")
    assert found is not None
    assert found[0].tolist() == [[64.0, 1.0, 1.0, 1.0, 64.0]] * 2


def test_a_third_of_the_integers_is_the_last_and_a_third_the_first() -> None:
    found = harder([torch.full((6,), 5)], [Domain("integers", 2, 9)], "boundaries")
    assert found is not None
    assert found[0].tolist() == [9, 9, 2, 2, 5, 5]


def test_ties_are_multiples_of_an_eighth_and_rows_repeat() -> None:
    found = harder([torch.randn(8, 1000)], [NUMBERS], "ties")
    assert found is not None
    assert torch.equal(found[0] * 8, (found[0] * 8).round())
    assert torch.equal(found[0][2], found[0][1])


def test_every_row_has_a_number_whose_exponential_overflows() -> None:
    found = harder([torch.randn(64, 32)], [NUMBERS], "extremes")
    assert found is not None
    assert bool((found[0].abs().amax(1) > 89).all())


@given(st.sampled_from([*FAMILIES]), st.integers(0, 2), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_shapes_types_strides_ranges_and_structures_are_kept(family: str, variant: int, number: int) -> None:
    torch.manual_seed(number)
    positive, integers = Domain("numbers", low=1e-30), Domain("integers", 3, 8)
    drawn = [torch.randn(6, 5).t(), torch.rand(4, 9), torch.randint(3, 9, (7,)), torch.randn(8).sort()[0]]
    variant %= VARIANTS[family]
    found = harder(drawn, [NUMBERS, positive, integers, AS_DRAWN], family, variant) or drawn
    for before, after in zip(drawn, found, strict=True):
        assert (after.shape, after.dtype, after.stride()) == (before.shape, before.dtype, before.stride())
    assert bool((found[1] > 0).all() | torch.equal(found[1], drawn[1]))
    assert bool(((found[2] >= 3) & (found[2] <= 8)).all())
    assert torch.equal(found[3], drawn[3])


def test_equal_numbers_remain_equal_with_other_last_bits() -> None:
    drawn = [torch.tensor([0.5, 0.5, 3.0, 0.5])]
    found = nudged(drawn, [NUMBERS], "ties", 0)[0]
    assert bool((found != drawn[0]).all())
    assert len(found.unique()) == 2


def test_a_family_that_can_change_no_input_makes_no_call() -> None:
    assert all(harder([torch.arange(8.0)], [AS_DRAWN], family) is None for family in FAMILIES)
