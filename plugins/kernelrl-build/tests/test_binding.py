"""Signatures, modules, screening and the compiler's report."""

from __future__ import annotations

from typing import Any

import pytest

from kernelrl_build.binding import Unbindable, module_functions, signatures
from kernelrl_build.inline_request import InlineRequest
from kernelrl_build.screening import Denied, screen
from kernelrl_build.stubs import read_resources


@pytest.mark.parametrize(
    ("declaration", "arguments", "result"),
    [
        ("torch::Tensor f(torch::Tensor a, const at::Tensor& b);", "TT", "T"),
        ("void f(torch::Tensor& out, int64_t n, int k, bool flag);", "Tlib", "v"),
        ("std::vector<torch::Tensor> f(std::vector<at::Tensor> xs, std::vector<int64_t> sizes);", "VL", "V"),
        ("std::tuple<at::Tensor, at::Tensor> f(c10::optional<at::Tensor> b, double eps = 1e-5);", "Od", "2"),
        ("torch::Tensor f(const std::string &mode, float x) { return {}; }", "Sf", "T"),
        ("static inline at::Tensor f();", "", "T"),
        ("torch::Tensor f(torch::Tensor, float);", "Tf", "T"),
    ],
)
def test_common_signatures_are_read(declaration: str, arguments: str, result: str) -> None:
    (found,) = signatures([declaration], [("f", "f")])
    assert "".join(found.arguments) == arguments
    assert found.result == result


@pytest.mark.parametrize(
    "declaration",
    [
        "torch::Tensor g(torch::Tensor a);",
        "torch::Tensor f(float* p);",
        "torch::Tensor f(std::array<int, 2> a);",
        "torch::Tensor f(int a);\ntorch::Tensor f(float a);",
        "template <typename T> T f(T a);",
        "void f(std::vector<torch::Tensor>& out);",
        "MyType f(torch::Tensor a);",
    ],
)
def test_other_signatures_need_a_python_module(declaration: str) -> None:
    with pytest.raises(Unbindable):
        signatures([declaration], [("f", "f")])


def test_a_simple_module_is_read_and_removed() -> None:
    source = 'int g();\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {\n  m.def("f", &g, "says (so)");  // note\n}\n'
    found = module_functions(source)
    assert found is not None
    rest, functions = found
    assert functions == (("f", "says (so)", "g"),)
    assert "PYBIND11" not in rest


@pytest.mark.parametrize(
    "body", ['m.def("f", &f, py::arg("x"));', 'm.attr("a") = 1;', 'py::class_<A>(m, "A");', 'm.def("f", [](int x) {});']
)
def test_a_module_that_does_more_is_left_alone(body: str) -> None:
    assert module_functions("PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { " + body + " }") is None


def request(**changes: object) -> InlineRequest:
    plain = {
        "language": "cuda",
        "name": "x",
        "cpp_sources": ["int a;"],
        "device_sources": [],
        "functions": [["f", "f"]],
        "cflags": [],
        "device_flags": [],
        "ldflags": [],
        "include_paths": [],
        "arch": ["9.0"],
    }
    return InlineRequest.from_json({**plain, **changes})


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"cflags": ["-fplugin=evil.so"]}, "-fplugin=evil.so"),
        ({"cflags": ["-B/tmp"]}, "-B/tmp"),
        ({"cflags": ["-O3; rm -rf x"]}, "x"),
        ({"cflags": ["@file"]}, "@file"),
        ({"device_flags": ["-ccbin", "/tmp/gcc"]}, "-ccbin"),
        ({"device_flags": ["-Xcompiler", "-fplugin=x"]}, "-fplugin=x"),
        ({"device_flags": ["--compiler-options=-wrapper,x"]}, "wrapper"),
        ({"ldflags": ["-Wl,-rpath,/tmp"]}, "-rpath"),
        ({"ldflags": ["-lcublas -Wl,-rpath,/tmp"]}, "-rpath"),
        ({"ldflags": ["-L/tmp"]}, "-L/tmp"),
        ({"include_paths": ["/etc"]}, "/etc"),
    ],
)
def test_what_reaches_outside_is_denied_and_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(Denied) as denied:
        screen(request(**changes))
    assert named in str(denied.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"cflags": ["-O3", "-march=native", "-ffast-math", "-DN=4", "-std=c++17", "-fopenmp", "-Wall"]},
        {"device_flags": ["-O3", "--use_fast_math", "-lineinfo", "--maxrregcount=64", "-Xptxas", "-O3", "-std=c++17"]},
        {"ldflags": ["-lcublas", "-lcurand"]},
        {"ldflags": ["-L/usr/local/cuda/lib64 -lcublas", ""], "cflags": [""], "device_flags": [""]},
        {"include_paths": ["/usr/local/cuda/include"], "device_flags": ["-I/usr/local/cuda-13.0/include"]},
    ],
)
def test_usual_requests_pass(changes: dict[str, Any]) -> None:
    screen(request(**changes))


def test_the_key_depends_on_everything_but_the_name() -> None:
    plain = request().key("t")
    assert request(name="other").key("t") == plain
    others: list[dict[str, list[str]]] = [
        {"cpp_sources": ["int b;"]},
        {"cflags": ["-O3"]},
        {"arch": ["8.0"]},
        {"functions": []},
    ]
    for changes in others:
        assert request(**changes).key("t") != plain
    assert request().key("u") != plain


def test_the_report_of_ptxas_is_read_per_kernel() -> None:
    log = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z9addKernelPKfPfi' for 'sm_90'
ptxas info    : Function properties for _Z9addKernelPKfPfi
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 1056 bytes smem
ptxas info    : Compiling entry function '_ZN2ns3mulEv' for 'sm_90'
ptxas info    : Function properties for _ZN2ns3mulEv
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers
"""
    found = read_resources(log)
    assert [*found] == ["_Z9addKernelPKfPfi", "_ZN2ns3mulEv"]
    first, second = found.values()
    assert first == {
        "name": "addKernel",
        "registers": 40,
        "spill_stores_bytes": 8,
        "spill_loads_bytes": 12,
        "stack_bytes": 16,
        "shared_bytes": 1056,
    }
    assert (second["name"], second["registers"], second["shared_bytes"]) == ("mul", 8, 0)
