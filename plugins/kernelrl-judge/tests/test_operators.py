"""Which operators of torch a call goes through."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernelrl_judge.operators import called, computing

X = torch.randn(8, 16)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: torch.relu(X), "aten::relu"),
        (lambda: X @ X.t(), "aten::mm"),
        (lambda: X.clone().mul_(2.0), "aten::mul_"),
        (lambda: torch.add(X, X, out=torch.empty_like(X)), "aten::add"),
        (lambda: torch.ops.aten.clamp_min.default(X, 0.0), "aten::clamp_min"),
        (lambda: getattr(torch.nn.functional, "soft" + "max")(X, dim=1), "aten::_softmax"),
        (lambda: X.abs().sum(), "aten::abs"),
    ],
)
def test_what_computes_is_named_however_it_is_called(call: Callable[[], Any], name: str) -> None:
    assert name in computing(called(call), (X,))


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
        lambda: X.sum(dim=1),
        lambda: X.mean(),
        lambda: float(X[0, 0]),
        lambda: X.unsqueeze(0).expand(3, -1, -1).clone(),
        lambda: X.new_empty(3).fill_(1.0),
        lambda: X.clone().zero_(),
    ],
)
def test_what_allocates_arranges_converts_or_sums_does_not_compute(call: Callable[[], Any]) -> None:
    assert computing(called(call), (X,)) == []


def test_arithmetic_on_little_is_left_out() -> None:
    assert computing(called(lambda: X[0] * 2.0), (X,)) == []


@pytest.mark.parametrize("found", [None, "x", [1], [["aten::relu"]], [["aten::relu", "x"]], [[1, 2]], {}])
def test_what_a_runner_says_may_be_anything(found: Any) -> None:
    assert computing(found, (X,)) == []


def test_listing_operators_does_not_import_the_compiler_of_torch() -> None:
    code = (
        "import sys, torch\n"
        "from kernelrl_judge.operators import called\n"
        "assert called(lambda: torch.ones(2) + 1) == [['aten::ones', 2], ['aten::add', 2]]\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
