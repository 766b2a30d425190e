"""Which operators of torch a call goes through."""

from __future__ import annotations

import ctypes
import math
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._C import _profiler
from torch.autograd import _enable_record_function
from torch.utils._python_dispatch import _disable_current_modes

from kernelrl_judge import operators
from kernelrl_judge.computing import computing
from kernelrl_judge.listing import TORCHS, Listing
from kernelrl_judge.operators import called

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
        lambda: torch.linspace(0.0, 1.0, 64).view(8, 8),
        lambda: torch.arange(128, dtype=torch.float32).view(8, 16),
        lambda: [part.contiguous() for part in X.tensor_split(3)],
        lambda: torch.vstack([X, X]).tile(2, 2),
        lambda: torch.nn.functional.pad(X[None], (1, 1), mode="reflect").repeat(2, 2, 2),
    ],
)
def test_what_allocates_arranges_or_converts_does_not_compute(call: Callable[[], Any]) -> None:
    assert computing(called(call)[1], (X, X)) == []


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


def _quantised() -> torch.Tensor:
    return torch._empty_affine_quantized(X.shape, scale=0.1, zero_point=0, dtype=torch.qint8).copy_(X)


@pytest.mark.filterwarnings("ignore:.*quantize_per_tensor:UserWarning")
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
        (lambda: X.clone().apply_(abs), "torch.Tensor.apply_"),
        (lambda: X[0].outer(X[0]), "aten::outer"),
        (lambda: (X * 4).int(), "aten::to, of fractions to whole numbers"),
        (lambda: X.to(torch.float8_e4m3fn).float(), "aten::to, of fractions to eight bits"),
        (lambda: torch.arange(4096).view(64, 64).to(torch.uint8), "aten::to, of whole numbers to fewer bits"),
        (lambda: X.equal(X.clone()), "aten::equal"),
        (lambda: X.rot90(), "aten::rot90"),
        (lambda: X.roll(3), "aten::roll"),
        (_quantised, "aten::to, of fractions to whole numbers"),
        (lambda: torch.stack([torch.linspace(x, y, 16) for x, y in X[:, :2].tolist()]), "aten::linspace, of numbers"),
        (lambda: torch.linspace(X[0, 0], X[0, 1], 128), "aten::linspace, of numbers"),
        (lambda: torch.arange(0.0, 6.4, 0.05), "aten::arange, of numbers"),
        (lambda: X > 0, "aten::gt"),
        (lambda: torch.view_as_complex(X.view(8, 8, 2)).mH.mT.imag.clone(), "aten::_neg_view"),
        (lambda: torch.ops.mkldnn._linear_pointwise(X, X, None, "relu", [], ""), "mkldnn::_linear_pointwise"),
    ],
)
def test_what_is_done_elsewhere_in_parts_or_without_torch_is_named_too(call: Callable[[], Any], name: str) -> None:
    assert name in computing(called(call)[1], (X,))


MANY = """abs acos acosh angle arctan asin asinh atan atanh ceil cos cosh deg2rad digamma erf erfc erfinv exp exp2
expm1 fix floor frac i0 isfinite isinf isnan lgamma log log10 log1p log2 logit neg positive rad2deg reciprocal round
rsqrt sgn sigmoid sign signbit sin sinc sinh sqrt square tan tanh trunc argmax argmin amax amin prod std var median sort
nonzero softmax"""


def _many_first() -> torch.Tensor:
    for name in MANY.split():
        getattr(torch.ones(1), name)(*((0,) if name == "softmax" else ()))
    return torch.relu(X)


def test_no_number_of_operators_before_hides_one() -> None:
    assert "aten::relu" in computing(called(_many_first)[1], (X, X))


def test_operators_count_together_under_whatever_names() -> None:
    found = called(lambda: [getattr(X[:1], name)() for name in ("relu", "abs", "exp", "sin")])[1]
    assert set(computing(found, (X, X))) == {"aten::relu", "aten::abs", "aten::exp", "aten::sin"}


def test_what_makes_the_output_counts_however_large_the_input_is() -> None:
    square = torch.zeros(16, 16)
    found = called(square.matrix_exp)[1]
    assert computing(found, (torch.empty(10**5), square)) == ["aten::matrix_exp"]


def test_operators_that_make_the_output_count_together() -> None:
    parts, table = X.repeat(6, 1).split(6), torch.empty(10**5)
    found = called(lambda: [getattr(parts[at], name)() for at, name in enumerate(("relu", "abs"))])[1]
    assert set(computing(found, (table, torch.empty(600)))) == {"aten::relu", "aten::abs"}
    assert computing(found, (table, torch.empty(1000))) == []


def test_a_sum_of_what_kernels_left_may_make_the_output() -> None:
    assert computing(called(lambda: X.sum(0))[1], (torch.empty(10**5), X[0])) == []


def test_an_operator_that_arranges_hides_nothing_below_it() -> None:
    code = (
        "import torch\n"
        "from torch.library import Library\n"
        "from kernelrl_judge.computing import computing\n"
        "from kernelrl_judge.operators import called\n"
        "library = Library('aten', 'IMPL')\n"
        "library.impl('repeat', lambda given, sizes: given.relu(), 'CPU')\n"
        "x = torch.randn(8, 8)\n"
        "assert set(computing(called(lambda: x.repeat(1, 1))[1], (x, x))) == {'aten::relu', 'aten::repeat, replaced'}\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


class _Normed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(8, 16))
        self.register_buffer("variance", torch.ones(8, 16))


def test_what_is_prepared_of_parameters_alone_is_left_out() -> None:
    model = _Normed()
    with torch.no_grad():
        assert computing(called(lambda: model.weight * (model.variance + 1e-5).rsqrt())[1], (X, X)) == []
        assert computing(called(lambda: model.weight * X)[1], (X, X)) == ["aten::mul"]


def test_a_buffer_that_is_filled_with_an_input_is_no_parameter_any_more() -> None:
    model = _Normed()
    found = called(lambda: model.variance.copy_(X).relu())[1]
    assert computing(found, (X, X)) == ["aten::relu"]


def test_a_buffer_that_no_operator_has_filled_is_no_parameter_either() -> None:
    model = _Normed()
    kept = model.variance.clone()

    def call() -> None:
        ctypes.memmove(model.variance.data_ptr(), X.data_ptr(), 4 * X.numel())
        model.variance.matmul(model.weight.t())
        ctypes.memmove(model.variance.data_ptr(), kept.data_ptr(), 4 * X.numel())

    with torch.no_grad():
        assert computing(called(call)[1], (X, X)) == ["aten::matmul"]
        assert computing(called(lambda: model.variance.mul_(2.0).sqrt())[1], (X, X)) == []


def _paused() -> None:
    _profiler._disable_execution_trace_observer()
    torch.relu(X)
    _profiler._enable_execution_trace_observer()


def _unrecorded() -> None:
    _enable_record_function(False)
    torch.relu(X)
    _enable_record_function(True)


@pytest.mark.parametrize("call", [_paused, _unrecorded])
def test_what_is_called_while_the_trace_stands_still_is_named(call: Callable[[], None]) -> None:
    assert computing(called(call)[1], (X, X)) == ["aten::relu, not in torch's trace"]


def test_nothing_can_be_taken_out_of_the_list() -> None:
    listing = Listing()
    listing.begin()
    torch.relu(X)
    listing.listed.clear()
    listing.end()
    assert listing.listed["aten::relu"] == [1, X.numel(), X.numel(), 4 * X.numel(), 4 * X.numel()]


def test_a_trace_that_does_not_go_on_to_the_end_is_told_of() -> None:
    found = called(_profiler._disable_execution_trace_observer)[1]
    assert computing(found, (X, X)) == ["stopping torch's trace"]


def test_a_trace_begins_though_recording_was_ended_before() -> None:
    _enable_record_function(False)
    try:
        assert computing(called(lambda: torch.relu(X))[1], (X, X)) == ["aten::relu"]
    finally:
        _enable_record_function(True)


def test_operators_that_come_with_torch_are_told_from_those_of_others() -> None:
    assert computing([[name, 128, 128, 512, 512] for name in ("quantized::linear", "mine::linear")], (X, X)) == [
        "quantized::linear"
    ]
    code = "import torch; print(*{name.partition('::')[0] for name in torch._C._dispatch_get_all_op_names()})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) - TORCHS == {"profiler", "debug_mode_ops", "debugprims", "export", "_test"}


def test_arithmetic_on_little_is_left_out() -> None:
    assert computing(called(lambda: X[0] * 2.0)[1], (X,)) == []


def test_an_element_of_eight_bytes_may_stand_for_eight_of_one() -> None:
    pixels = torch.zeros(8, 64, dtype=torch.uint8)
    for call, name in (
        (lambda: torch.bitwise_not(pixels.view(torch.int64)), "aten::bitwise_not"),
        (lambda: pixels.view(torch.int64).numpy(), "torch.Tensor.numpy"),
    ):
        assert computing(called(call)[1], (pixels, pixels)) == [name]
    assert computing(called(lambda: pixels[0].view(torch.int64) + 1)[1], (pixels, pixels)) == []


@pytest.mark.parametrize(
    "found",
    [None, "x", [1], [["aten::relu"]], [["aten::relu", "x", 1, 1, 1]], [["aten::relu", 999]], [[1, 2, 3, 4, 5]], {}],
)
def test_what_a_runner_says_may_be_anything(found: Any) -> None:
    assert computing(found, (X,)) == []


def test_listing_and_watching_do_not_import_the_compiler_of_torch() -> None:
    code = (
        "import sys, torch\n"
        "from kernelrl_judge import provenance\n"
        "from kernelrl_judge.operators import called\n"
        "provenance.launches_tell()\n"
        "watch = provenance.Watch()\n"
        "assert called(lambda: watch.begin() or torch.ones(2) + 1, watch)[1] == [['aten::add', 2, 2, 8, 8]]\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_trace_with_a_number_that_is_none_is_read_all_the_same() -> None:
    (value,) = operators._parsed('{"nodes": [NaN]}')["nodes"]
    assert math.isnan(value)
