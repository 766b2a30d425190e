"""Which operators of torch a call goes through."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import _disable_current_modes

from kernelrl_judge.operators import called, computing

X = torch.randn(8, 16)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: torch.relu(X), "aten::relu"),
        (lambda: X @ X.t(), "aten::matmul"),
        (lambda: X.clone().mul_(2.0), "aten::mul_"),
        (lambda: torch.add(X, X, out=torch.empty_like(X)), "aten::add"),
        (lambda: torch.ops.aten.clamp_min.default(X, 0.0), "aten::clamp_min"),
        (lambda: getattr(torch.nn.functional, "soft" + "max")(X, dim=1), "aten::softmax"),
        (lambda: X.abs().sum(), "aten::abs"),
    ],
)
def test_what_computes_is_named_however_it_is_called(call: Callable[[], Any], name: str) -> None:
    assert name in computing(called(call)[1], (X,))


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.empty_like(X),
        lambda: torch.zeros(8, 16),
        lambda: torch.full((8, 16), 3.0),
        lambda: X.t().contiguous().view(-1),
        lambda: X.half().float(),
        lambda: torch.cat([X, X]).permute(1, 0).reshape(4, -1),
        lambda: torch.nn.functional.pad(X, (1, 1)),
        lambda: X[0].sum(),
        lambda: X[:1].mean(dim=1),
        lambda: float(X[0, 0]),
        lambda: X.unsqueeze(0).expand(3, -1, -1).clone(),
        lambda: X.new_empty(3).fill_(1.0),
        lambda: X.clone().zero_(),
    ],
)
def test_what_allocates_arranges_or_converts_does_not_compute(call: Callable[[], Any]) -> None:
    assert computing(called(call)[1], (X,)) == []


def _in_a_thread() -> None:
    thread = threading.Thread(target=lambda: torch.relu(X))
    thread.start()
    thread.join()


def _unseen_by_modes() -> torch.Tensor:
    with _disable_current_modes():
        return torch.relu(X)


@torch.library.custom_op("test_operators::positive", mutates_args=())
def _positive(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (_in_a_thread, "aten::relu"),
        (_unseen_by_modes, "aten::relu"),
        (lambda: _positive(X), "aten::relu"),
        (lambda: [torch.relu(row) for row in X], "aten::relu"),
        (lambda: X.expand(4, -1, -1).sum(0), "aten::sum"),
        (lambda: [float(value) for value in X.flatten()], "torch.Tensor.item"),
        (lambda: X.mean(), "aten::mean"),
        (lambda: X.copysign(torch.ones(())), "aten::copysign"),
        (lambda: bytes(X.untyped_storage()), "torch.Tensor.untyped_storage"),
        (lambda: X.numpy() * 2, "torch.Tensor.numpy"),
        (lambda: [2 * value for value in X.flatten().tolist()], "torch.Tensor.tolist"),
        (lambda: torch.einsum("ij,kj->ik", X, X), "aten::einsum"),
        (lambda: torch._foreach_mul([X[0], X[1]], 2.0), "aten::_foreach_mul"),
    ],
)
def test_what_is_done_elsewhere_in_parts_or_without_torch_is_named_too(call: Callable[[], Any], name: str) -> None:
    assert name in computing(called(call)[1], (X,))


def test_arithmetic_on_little_is_left_out() -> None:
    assert computing(called(lambda: X[0] * 2.0)[1], (X,)) == []


@pytest.mark.parametrize("found", [None, "x", [1], [["aten::relu"]], [["aten::relu", "x"]], [[1, 2]], {}])
def test_what_a_runner_says_may_be_anything(found: Any) -> None:
    assert computing(found, (X,)) == []


def test_listing_operators_does_not_import_the_compiler_of_torch() -> None:
    code = (
        "import sys, torch\n"
        "from kernelrl_judge.operators import called\n"
        "assert called(lambda: torch.ones(2) + 1)[1] == [['aten::add', 2]]\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
