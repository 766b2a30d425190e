"""Operators of torch that compute in a call. Those that allocate or rearrange memory are not named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from kernelrl_judge.probes.computing import computing_operators  # noqa: E402
from kernelrl_judge.runner.operators import listed  # noqa: E402

X = torch.randn(8, 16)


def named(call: Callable[[], Any], parameters: tuple[Any, ...] = (), outputs: Any = X) -> list[str]:
    return computing_operators(listed(call, [*parameters])[1], (X,), outputs)


@torch.library.custom_op("test_operators::positive", mutates_args=())
def _positive(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: torch.relu(X), "aten::relu"),
        (lambda: X @ X.t(), "aten::mm"),
        (lambda: X.clone().mul_(2.0), "aten::mul_"),
        (lambda: torch.add(X, X, out=torch.empty_like(X)), "aten::add"),
        (lambda: torch.ops.aten.clamp_min.default(X, 0.0), "aten::clamp_min"),
        (lambda: getattr(torch.nn.functional, "soft" + "max")(X, dim=1), "aten::_softmax"),
        (lambda: X.mean(), "aten::mean"),
        (lambda: _positive(X), "aten::relu"),
        (lambda: [torch.relu(row) for row in X], "aten::relu"),
        (lambda: X.numpy() * 2, "torch.Tensor.numpy"),
        (lambda: [2 * value for value in X.flatten().tolist()], "torch.Tensor.tolist"),
    ],
)
def test_an_operator_that_computes_is_named_however_it_is_called(call: Callable[[], Any], name: str) -> None:
    assert name in named(call)


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.empty_like(X),
        lambda: torch.zeros(8, 16),
        lambda: X.t().contiguous().view(-1),
        lambda: X.half().float(),
        lambda: torch.cat([X, X]).permute(1, 0).reshape(4, -1),
        lambda: torch.nn.functional.pad(X, (1, 1)),
        lambda: X[0].sum(),
        lambda: X[:1].mean(dim=1),
        lambda: float(X[0, 0]),
        lambda: X.equal(X.clone()),
        lambda: X.is_floating_point(),
    ],
)
def test_operators_that_allocate_rearrange_or_work_on_little_do_not_compute(call: Callable[[], Any]) -> None:
    assert named(call) == []


LARGE = torch.randn(4096)
MANY = torch.randn(100)


def test_a_step_per_output_beside_a_large_input_finishes_what_kernels_computed() -> None:
    found = listed(lambda: (MANY == 0).logical_not().sum() + MANY.exp().logsumexp(0), [])[1]
    assert computing_operators(found, (LARGE,), MANY) == []


def test_much_work_per_output_beside_a_large_input_computes() -> None:
    square = MANY.view(10, 10)
    found = listed(lambda: torch.linalg.matrix_exp(square), [])[1]
    assert "aten::linalg_matrix_exp" in computing_operators(found, (LARGE,), square)


def test_operators_of_parameters_alone_prepare_them() -> None:
    weight = torch.randn(64, 64)

    def call() -> Any:
        packed = weight.abs().exp()
        return packed.sum()

    assert named(call, (weight,)) == []
    assert named(lambda: (weight.abs() * X.sum()).sum(), (weight,)) == ["aten::sum", "aten::mul"]


@pytest.mark.parametrize(
    ("call", "is_partial"),
    [
        (lambda: torch.empty(4, 128).view(4, 8, 16).sum(0), True),
        (lambda: torch.zeros(4, 128).mean(0), True),
        (lambda: X.sum(0), False),
        (lambda: torch.relu(X).sum(0), False),
        (lambda: torch.empty_like(X).copy_(X).sum(0), False),
        (lambda: (X + torch.empty_like(X)).sum(0), False),
    ],
)
def test_sums_of_results_of_kernels_are_distinguished_from_others(call: Callable[[], Any], is_partial: bool) -> None:
    (found,) = [name for name in named(call) if name.startswith(("aten::sum", "aten::mean"))]
    assert found.endswith(" of what kernels wrote") is is_partial


def test_small_operators_count_together() -> None:
    assert named(lambda: [X[row].relu() for row in range(2)]) == []
    assert named(lambda: [X[row].relu() for row in range(8)]) == ["aten::relu"]


@given(st.recursive(st.none() | st.integers() | st.text() | st.binary(), lambda inner: st.lists(inner, max_size=4)))
def test_any_list_from_a_runner_is_read(found: Any) -> None:
    assert computing_operators(found, (X,), X) == []
