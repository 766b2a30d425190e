"""Memory that neither torch nor a kernel has written."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import math
import operator
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch.utils._python_dispatch import _disable_current_modes

from kernelrl_judge import calls_back, provenance
from kernelrl_judge.computing import computing
from kernelrl_judge.operators import called
from kernelrl_judge.runner_builds import _tell_of_calls

X = torch.randn(8, 16)
HELD = torch.zeros(8, 16)
ARRAY = HELD.numpy()
ELEMENTS = X.numel()


@pytest.fixture(autouse=True)
def launches_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "_telling", True)


def doubled(x: torch.Tensor) -> torch.Tensor:
    """What a kernel does that tells of its launch, and writes through an address."""
    y = torch.empty_like(x)
    with provenance.launch((x, y)):
        ctypes.memmove(y.data_ptr(), (x.contiguous() * 2.0).data_ptr(), 4 * x.numel())
    return y


def strange(call: Callable[[], Any]) -> int:
    watch = provenance.Watch()
    watch.begin()
    try:
        with torch.no_grad():
            call()
    finally:
        watch.end()
    return watch.strange


@pytest.mark.parametrize(
    "call",
    [
        lambda: doubled(X).clone(),
        lambda: doubled(X.t().contiguous().view(-1)).clone(),
        lambda: doubled(doubled(torch.nn.functional.pad(X, (0, 3)).half().float())),
        lambda: doubled(torch.cat([X, torch.zeros(2, 16)])),
        lambda: doubled(HELD.copy_(X)).sum(),
        lambda: doubled(torch.add(X, X, out=HELD)),
        lambda: doubled(X * (1.0 / X[0, 0].item())),
        lambda: [doubled(part) for part in X.split(2)],
        lambda: X.clone().mul_(2.0).relu_().sum(),
        lambda: doubled(torch.empty_like(X)[2:4].copy_(X[:2])),
    ],
)
def test_what_torch_and_kernels_write_is_theirs(call: Callable[[], Any]) -> None:
    assert strange(call) == 0


def _by_array() -> torch.Tensor:
    HELD.copy_(X)
    ARRAY[ARRAY < 0] = 0
    return doubled(HELD)


def _by_pointer() -> torch.Tensor:
    y = torch.empty_like(X)
    ctypes.memset(y.data_ptr(), 1, 4)
    return doubled(y)


def _after_the_kernel() -> torch.Tensor:
    y = doubled(X)
    ctypes.memset(y.data_ptr(), 1, 4)
    return y.clone()


def _from_elsewhere() -> torch.Tensor:
    return doubled(torch.frombuffer(bytearray(4 * ELEMENTS), dtype=torch.float32).view(8, 16))


def _all_but_one() -> torch.Tensor:
    y = torch.empty_like(X)
    ctypes.memset(y.data_ptr(), 1, 4 * ELEMENTS)
    y.view(-1)[:1].fill_(0.0)
    return doubled(y)


def _read_at_one_place() -> torch.Tensor:
    with _disable_current_modes():
        y = X.abs()
    y[0, 0].item()
    return doubled(y)


def _unseen() -> torch.Tensor:
    with _disable_current_modes():
        y = X.abs()
    return doubled(y)


@pytest.mark.parametrize(
    "call",
    [
        *(_by_array, _by_pointer, _after_the_kernel, _from_elsewhere, _unseen, _all_but_one, _read_at_one_place),
        lambda: X.clone().apply_(abs).sum(),
    ],
)
def test_what_is_written_past_both_is_counted_when_it_is_read(call: Callable[[], Any]) -> None:
    assert strange(call) == ELEMENTS


def test_a_kernel_may_write_through_addresses_that_it_is_given() -> None:
    def call() -> torch.Tensor:
        y = torch.empty_like(X)
        addresses = torch.tensor([y.data_ptr()])
        with provenance.launch((addresses,)):
            ctypes.memset(y.data_ptr(), 1, 4)
        return y.clone()

    # The addresses themselves came from Python.
    assert strange(call) <= 1


def test_a_heap_that_lies_low_holds_addresses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text("00400000-00900000 r-xp 0 00:00 0 /usr/bin/python3\n1cddb000-1ce66000 rw-p 0 00:00 0  [heap]\n")
    monkeypatch.setattr(provenance, "_MAPS", maps)
    assert provenance.least_address.__wrapped__() == 0x1CDDB000


def test_a_function_of_an_extension_may_have_torch_work_on_what_it_writes() -> None:
    def function(x: torch.Tensor, factor: float) -> torch.Tensor:
        y = torch.zeros_like(x)
        ctypes.memset(y.data_ptr(), 1, 4)
        return y * factor

    assert strange(lambda: provenance.told(function)(X, 2.0).sum()) == 0
    assert strange(lambda: function(X, 2.0).sum()) == ELEMENTS


def test_a_function_that_fails_leaves_nothing_behind() -> None:
    def call() -> torch.Tensor:
        with contextlib.suppress(ValueError):
            provenance.told(math.sqrt)(-1.0)
        return _by_pointer()

    assert strange(call) == ELEMENTS
    assert sys.getprofile() is None
    assert gc.isenabled()


class _Shelf:
    def __getitem__(self, key: int) -> int:
        return key


def leads_back(function: Callable[..., Any], *arguments: Any) -> bool:
    watch = provenance.Watch()
    watch.begin()
    try:
        provenance.told(function)(*arguments)
    finally:
        watch.end()
    return watch.leads_back


def test_python_that_a_function_of_an_extension_calls_is_noticed() -> None:
    assert leads_back(functools.partial(operator.getitem, _Shelf(), 0))
    assert not leads_back(functools.partial(operator.getitem, [0], 0))
    weights = torch.nn.ParameterList([torch.nn.Parameter(X)])
    assert not leads_back(operator.getitem, weights, 0)
    # Which goes through the watch itself.
    assert not leads_back(torch.empty_like, X)


def test_objects_that_could_compute_are_noticed_where_a_function_of_an_extension_gets_them() -> None:
    tagged = X.clone()
    assert not leads_back(operator.is_, tagged, [None, 2.0, numpy.sqrt(2.0), {"a": (X, "b", torch.float16)}])
    tagged.shelf = _Shelf()
    for given in (HELD.numpy(), [_Shelf()], {"a": _Shelf}, tagged):
        assert leads_back(operator.is_, X, given)


def test_values_beside_the_functions_of_an_extension_keep_nobody_from_watching(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "_with_extensions", False)
    module = types.ModuleType("extension")
    vars(module).update(root=math.sqrt, version=1, name="a")
    _tell_of_calls(module)
    assert provenance._telling
    module.plan = _Shelf
    _tell_of_calls(module)
    assert not provenance._telling


def test_functions_that_ctypes_looks_up_are_told_unless_everybody_may_use_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls_back, "_names", {})
    for event, name in (("ctypes.dlsym", "sgemm_"), ("ctypes.dlsym/handle", "expf"), ("import", "x")):
        calls_back.look_up(event, (None, name))
    found = called(lambda: X, provenance.Watch())[1]
    assert computing(found, (X, X)) == ["looking for a function by ctypes: sgemm_"]


def test_nothing_is_said_where_some_functions_do_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "_with_extensions", False)
    provenance.extension_calls_tell(all_of_them=False)
    provenance.launches_tell()
    assert strange(_by_array) == 0


@torch.library.custom_op("test_provenance::doubled", mutates_args=("y",))
def _doubled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    y.copy_(x)
    return doubled(y)


@torch.library.custom_op("test_provenance::positive", mutates_args=())
def _positive(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.numpy().clip(0.0))


def test_operators_of_others_are_seen_through() -> None:
    assert strange(lambda: _doubled(_doubled(X, HELD), HELD).sum()) == 0
    assert strange(lambda: doubled(_positive(X))) == ELEMENTS


def _as_numbers() -> torch.Tensor:
    y = torch.empty_like(X)
    for element, held in zip(y.view(-1), (ctypes.c_float * ELEMENTS).from_address(X.data_ptr()), strict=True):
        element.fill_(abs(held))
    return doubled(y)


def test_values_that_come_back_as_numbers_are_counted() -> None:
    assert strange(_as_numbers) >= ELEMENTS
    assert strange(lambda: [X.mul(0.1 * n) for n in range(20)]) == 0


def test_it_is_told_beside_the_operators() -> None:
    watch = provenance.Watch()

    def call() -> torch.Tensor:
        watch.begin()
        return _by_array()

    found = called(call, watch)[1]
    assert "writing past torch and kernels" in computing(found, (X, X))


def test_where_launches_do_not_tell_of_themselves_nothing_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "_telling", False)
    assert strange(_by_array) == 0
