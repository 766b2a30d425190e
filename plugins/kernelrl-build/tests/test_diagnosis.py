"""Errors of compilers: mistakes in the sources, and errors that the split of the sources may have caused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernelrl_build.diagnosis import CompileError, Diagnosis, NotCertain
from kernelrl_build.inline_request import InlineRequest
from kernelrl_build.screening import Denied, screen
from kernelrl_build.splitting import split

_SOURCE = "__global__ void k(float* x) {}\nvoid f() {}\n"


def _request(**flags: tuple[str, ...]) -> InlineRequest:
    given: dict[str, Any] = {"cflags": (), "device_flags": (), "ldflags": (), **flags}
    return InlineRequest("cuda", "x", (), (_SOURCE,), (), include_paths=(), arch=("9.0",), **given)


def _fail(log: str, *, is_split: bool) -> None:
    prepared: Any = SimpleNamespace(toolchain=SimpleNamespace(include_dirs=()), known_names=lambda: frozenset[bytes]())
    diagnosis = Diagnosis(_request(), prepared, Path(), lambda text: "")
    parts = [split(_SOURCE, "cuda", "cuda.cu")] if is_split else []
    diagnosis.fail(log, parts, final=False, whole=True)


_OF_ONE_PART = (
    "cuda.cu:4:1: error: expected initializer before ‘at’",
    "cuda.cu:3:20: error: ‘int helper(int)’ used but never defined",
    'cuda.cu(3): error: function "helper" was referenced but not defined',
    "ptxas fatal   : Unresolved extern function 'helper'",
)
_MISTAKES = (
    "cuda.cu:4:1: error: expected initializer before ‘float’",
    "cuda.cu:4:9: error: expected ‘;’ before ‘}’ token",
)


@pytest.mark.parametrize("log", _OF_ONE_PART)
def test_an_error_that_one_part_has_alone_leads_to_the_ordinary_route(log: str) -> None:
    with pytest.raises(NotCertain) as raised:
        _fail(log, is_split=True)
    assert raised.value.whole


@pytest.mark.parametrize("log", _OF_ONE_PART)
def test_the_same_error_of_a_whole_source_is_a_mistake(log: str) -> None:
    with pytest.raises(CompileError):
        _fail(log, is_split=False)


@pytest.mark.parametrize("log", _MISTAKES)
def test_a_mistake_in_the_sources_is_reported_at_once(log: str) -> None:
    with pytest.raises(CompileError):
        _fail(log, is_split=True)


@pytest.mark.parametrize("flags", [("",), (" ", "-O3"), ("-Xcompiler ''", "-O3"), ("-Xcompiler", '""'), ("''",)])
def test_empty_flags_are_no_flags(flags: tuple[str, ...]) -> None:
    request = _request(device_flags=flags, cflags=("",), ldflags=("", "''"))
    screen(request)
    assert request.device_flags in ((), ("-O3",))
    assert (request.cflags, request.ldflags) == ((), ())


def test_a_flag_after_an_empty_one_is_screened() -> None:
    with pytest.raises(Denied, match="-fplugin=x"):
        screen(_request(device_flags=("-Xcompiler", "''", "-fplugin=x")))
