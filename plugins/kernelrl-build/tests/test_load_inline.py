"""`load_inline` of this package: the requests that it sends, and the modules that it returns."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import kernelrl_build
from kernelrl_build import extensions, inline, loading
from kernelrl_build.errors import BuildCrashed, BuildError, BuildUnavailable
from kernelrl_build.service import BuildReply, BuildService
from kernelrl_core.api.evaluators import ExtensionBuild

NONE = (None,) * 5


def test_arguments_become_texts_and_lists() -> None:
    request = inline.request("x", "int f();", ["a", "b"], ["f", "g"], ["-O3"], None, "-lm", ())
    assert request == {
        "name": "x",
        "cpp_sources": ["int f();"],
        "device_sources": ["a", "b"],
        "functions": [["f", "f"], ["g", "g"]],
        "cflags": ["-O3"],
        "device_flags": [],
        "ldflags": ["-lm"],
        "include_paths": [],
    }


@pytest.mark.parametrize(
    ("functions", "bound"),
    [
        (None, []),
        ("f", [["f", "f"]]),
        (("f",), [["f", "f"]]),
        ({"f": "Doubles."}, [["f", "Doubles."]]),
    ],
)
def test_functions_are_a_name_a_list_or_a_dict(functions: Any, bound: list[list[str]]) -> None:
    assert inline.request("x", "", None, functions, *NONE[:4])["functions"] == bound


def test_other_functions_are_refused_as_torch_refuses_them() -> None:
    with pytest.raises(ValueError, match="Expected 'functions' to be a list or dict, but was <class 'int'>"):
        inline.request("x", "", None, 3, *NONE[:4])


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ("/x.so: undefined symbol: _Z1gv", "g"),
        ("/x.so: undefined symbol: _ZN2ns5twiceEi", "ns::twice"),
        ("/x.so: undefined symbol: plain", "plain"),
        ("/x.so: file too short", ""),
    ],
)
def test_a_missing_symbol_is_a_sentence_with_the_name_of_the_function(message: str, name: str) -> None:
    expected = f"{name} is declared, and neither a source nor a linked library defines it" if name else ""
    assert loading.missing_symbol(ImportError(message)) == expected


def test_light_modules_import_neither_torch_nor_the_service() -> None:
    program = (
        "import sys, kernelrl_build.inline, kernelrl_build.loading, kernelrl_build.errors\n"
        "print(sorted({'torch', 'attrs', 'kernelrl_core', 'kernelrl_build.service'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_package_has_no_other_names() -> None:
    assert kernelrl_build.load_inline is extensions.load_inline
    assert kernelrl_build.BuildError is BuildError
    with pytest.raises(AttributeError, match="load_extension"):
        getattr(kernelrl_build, "load_extension")  # noqa: B009


Requests = list[tuple[dict[str, Any], dict[str, Any]]]


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Requests:
    """Requests and specifications of builds, whose extension is an empty module."""
    sent: Requests = []

    def build(self: BuildService, requested: bytes, spec: Any, settings: Any, **options: Any) -> BuildReply:
        sent.append((json.loads(requested), dict(spec)))
        file = tmp_path / "extension.so"
        file.touch()
        descriptor = os.open(file, os.O_RDONLY)
        built = ExtensionBuild("pybind", "a reason", seconds=1.25)
        return BuildReply(b'{"kind": "module"}', [descriptor], built, paths=(str(file),))

    def load(name: str, paths: list[str], reply: Any) -> ModuleType:
        assert paths == [str(tmp_path / "extension.so")]
        return ModuleType(name)

    monkeypatch.setenv("KERNELRL_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(BuildService, "build", build)
    monkeypatch.setattr(loading, "load_extension", load)
    monkeypatch.setattr(extensions, "_built", {})
    return sent


def test_equal_calls_build_once(requests: Requests) -> None:
    first = extensions.load_inline("first", "int f();", functions="f")
    assert extensions.load_inline("first", ["int f();"], functions=["f"]) is first
    assert extensions.load_inline("second", "int f();", functions="f") is first
    assert sys.modules.pop("second") is first
    assert extensions.load_inline("first", "int g();", functions="g") is not first
    assert [request["functions"] for request, _ in requests] == [[["f", "f"]], [["g", "g"]]]


@pytest.mark.parametrize(
    ("arguments", "spec"),
    [
        ({}, {"language": "cpp"}),
        ({"cuda_sources": ""}, {"language": "cpp"}),
        ({"cuda_sources": "x"}, {"language": "cuda", "arch": ["8.0", "9.0+PTX"]}),
        ({"with_cuda": True}, {"language": "cuda", "arch": ["8.0", "9.0+PTX"]}),
        ({"cuda_sources": "x", "with_cuda": False}, {"language": "cpp"}),
    ],
)
def test_device_sources_select_the_language_and_the_environment_the_architectures(
    arguments: dict[str, Any], spec: dict[str, Any], requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.version.hip", None)
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0; 9.0+PTX 8.0")
    extensions.load_inline("x", "", **arguments)
    assert requests[0][1] == spec


def test_hip_needs_an_architecture(requests: Requests, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.version.hip", "6.4")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.delenv("PYTORCH_ROCM_ARCH", raising=False)
    with pytest.raises(BuildError, match="set PYTORCH_ROCM_ARCH"):
        extensions.load_inline("x", "", "x")
    monkeypatch.setenv("PYTORCH_ROCM_ARCH", "gfx90a;gfx942")
    extensions.load_inline("x", "", "x")
    assert requests[0][1] == {"language": "hip", "arch": ["gfx90a", "gfx942"]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"sycl_sources": "x"}, "SYCL"), ({"with_sycl": True}, "SYCL"), ({"cuda_sources": "x"}, "'Hopper' is not the")],
)
def test_arguments_that_no_build_can_serve_are_refused(
    arguments: dict[str, Any], message: str, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.version.hip", None)
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "Hopper")
    with pytest.raises(BuildError, match=f"Error building extension 'x': .*{message}"):
        extensions.load_inline("x", "", **arguments)
    assert requests == []


def test_verbose_prints_the_route(requests: Requests, capsys: pytest.CaptureFixture[str]) -> None:
    extensions.load_inline("x", "", verbose=True)
    assert capsys.readouterr().err == "extension x: built in 1.2 s, route pybind (a reason)\n"


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (
            BuildUnavailable("the compiler g++ is missing", "install g++"),
            "the compiler g++ is missing; fix: install g++",
        ),
        (BuildCrashed("no space is left"), "no space is left"),
    ],
)
def test_a_machine_that_cannot_build_is_a_build_error(
    raised: Exception, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(self: BuildService, *_: Any, **options: Any) -> BuildReply:
        raise raised

    monkeypatch.setenv("KERNELRL_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(BuildService, "build", build)
    with pytest.raises(BuildError) as error:
        extensions.load_inline("x", "")
    assert str(error.value) == f"Error building extension 'x': {message}"


@pytest.mark.parametrize(
    ("headers", "prepares", "warned_at_s"),
    [([], False, [0.0]), (["types"], False, []), (["types"], True, [2.0])],
    ids=["the first build", "a build with headers", "a build with other flags"],
)
def test_waiting_for_headers_is_reported_once(
    headers: list[str],
    prepares: bool,
    warned_at_s: list[float],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    now_s = 0.0
    monkeypatch.setattr("kernelrl_build.extensions.time", SimpleNamespace(monotonic=lambda: now_s))
    monkeypatch.setattr(extensions, "precompiled_headers", lambda language: headers)
    monkeypatch.setattr(extensions, "prepares_headers", lambda language: prepares and now_s >= 1.5)
    report = extensions._header_notice("x", "cpp")
    warned = []
    with caplog.at_level(logging.WARNING):
        for step in range(8):
            now_s = step / 2
            report()
            warned += [now_s] * len(caplog.records)
            caplog.clear()
    assert warned == warned_at_s


TWICE = "torch::Tensor twice(torch::Tensor a) { return a * 2; }"
COUNTER = """
#include <torch/extension.h>
struct Counter { int calls = 0; int next() { return ++calls; } };
static at::Tensor fourfold(const at::Tensor& a) { return a * 4; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  py::class_<Counter>(m, "Counter").def(py::init<>()).def("next", &Counter::next);
}
TORCH_LIBRARY(kernelrl_build_test, m) { m.def("fourfold(Tensor a) -> Tensor", &fourfold); }
"""
FLAGS = ["-march=native", "-fopenmp"]
"""The flags of kernels for the CPU in other tests, whose precompiled headers exist already."""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_extensions_are_built_and_loaded(
    kernelrl_cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    monkeypatch.setenv("KERNELRL_CACHE_DIR", str(kernelrl_cache))
    bound = extensions.load_inline("bound", TWICE, functions="twice", extra_cflags=FLAGS)
    assert bound.twice(torch.ones(2)).tolist() == [2.0, 2.0]
    assert sys.modules.pop("bound") is bound
    module = extensions.load_inline("counted", COUNTER, extra_cflags=FLAGS)
    assert module.Counter().next() == 1
    assert sys.modules.pop("counted") is module
    path = extensions.load_inline("operator", COUNTER, extra_cflags=FLAGS, is_python_module=False, verbose=True)
    assert path.startswith(str(kernelrl_cache))
    assert "extension operator: from the cache" in capsys.readouterr().err
    assert torch.ops.kernelrl_build_test.fourfold(torch.ones(1)).item() == 4.0
    with pytest.raises(BuildError, match=r"(?s)Error building extension 'broken': .*main\.cpp:1:.*‘nothing’"):
        extensions.load_inline("broken", "int f() { return nothing; }", functions="f", extra_cflags=FLAGS)
    missing = "g is declared, and neither a source nor a linked library defines it"
    with pytest.raises(BuildError, match=f"Error building extension 'missing': {missing}"):
        extensions.load_inline("missing", "int g();\nint f() { return g(); }", functions="f", extra_cflags=FLAGS)
    with pytest.raises(BuildError, match="extra_include_paths is not allowed"):
        extensions.load_inline("refused", TWICE, functions="twice", extra_include_paths=["/etc"])
