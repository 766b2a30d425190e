"""Splits of CUDA sources: tokens, items, units."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_build.lexing import Unreadable, items, text_of, tokens, unbalanced
from kernelrl_build.splitting import Unsplittable, split

_HEAD = "#include <torch/extension.h>\n#include <cuda_runtime.h>\n"
_KERNEL = "__global__ void k(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] = FLT_MAX; }\n"
_HOST = "torch::Tensor f(torch::Tensor x) { k<<<1, 32>>>(x.data_ptr<float>(), 5); return x; }\n"


@given(st.text(alphabet="ab1 \n\t(){}<>[];,\"'/*#=&:\\.", max_size=120))
def test_tokens_are_the_source_or_it_is_unreadable(text: str) -> None:
    try:
        found = tokens(text)
    except Unreadable:
        return
    # Lines that continue are joined, and keep their numbers.
    assert text_of(found).count("\n") == text.count("\n")
    if not re.search(r"\\[^\S\n]*\n", text):
        assert text_of(found) == text


@given(st.lists(st.sampled_from(["int a;", "void f() { g(1); }", "#define X 1\n", "// c\n", "struct S { int x; };"])))
def test_items_keep_everything_but_blanks_at_the_end(pieces: list[str]) -> None:
    source = "\n".join(pieces)
    kept = "".join(text_of(item.tokens) for item in items(source))
    assert source.startswith(kept)
    assert not [token for token in tokens(source[len(kept) :]) if not token.blank]


@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        ("void f() {}", ["function"]),
        ("template <int N = 4> __global__ void k() {}", ["function"]),
        ("struct A { int x; };", ["record"]),
        ("int a[] = {1, 2};", ["declaration"]),
        ("namespace n { int x; }", ["scope"]),
        ('extern "C" { void f(); }', ["scope"]),
        ('extern "C" void f() {}', ["function"]),
        ("bool operator==(A a, A b) { return true; }", ["function"]),
        ("enum class E : int { a };", ["record"]),
        ('const char* s = R"x(} {)x"; int y;', ["declaration", "declaration"]),
        ("#if A\nint x;\n#endif", ["directive", "declaration", "directive"]),
    ],
)
def test_items_have_their_kind(source: str, kinds: list[str]) -> None:
    assert [item.kind for item in items(source)] == kinds


@pytest.mark.parametrize("source", ["void f() {", "f(];", "}", '"abc', "template <int"])
def test_brackets_that_do_not_match_are_unreadable(source: str) -> None:
    with pytest.raises(Unreadable):
        items(source)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("void f() {\n  g(1;\n}", "line 3"),
        ("void f() {\n", "line 1: '{' is never closed"),
        ("void f() {} }", "line 1: '}' closes nothing"),
    ],
)
def test_brackets_that_no_compiler_could_match_are_reported(source: str, message: str) -> None:
    assert message in (unbalanced(source) or "")


@pytest.mark.parametrize(
    "source",
    [
        "void f() { g('{', \"(\"); } // )",
        "#if A\nvoid f() {\n#else\nvoid g() {\n#endif\n}",
        "#define BEGIN {\nvoid f() BEGIN }",
    ],
)
def test_brackets_that_a_preprocessor_may_match_are_left_to_it(source: str) -> None:
    assert unbalanced(source) is None


def test_a_kernel_is_defined_for_the_device_and_has_a_stub_for_the_host() -> None:
    found = split(_HEAD + _KERNEL + _HOST, "cuda", "cuda.cu")
    assert found.kernels == ("k",)
    assert "__global__ void k" in found.device
    assert "torch" not in found.device
    assert "void k(float* x, int n) {" in found.host
    assert "__global__" not in found.host


def test_a_launch_becomes_the_code_that_a_device_compiler_generates() -> None:
    found = split(_HEAD + _KERNEL + _HOST, "cuda", "cuda.cu")
    assert "(::kernelrl::push(1, 32) ? (void)0 : k(x.data_ptr<float>(), 5))" in found.host


def test_a_launch_of_a_template_keeps_its_arguments() -> None:
    source = (
        "template <typename T, int N> __global__ void k(T* x) {}\n"
        "void f(float* x) { k<float, (2 > 1)><<<dim3(1), dim3(2), 0, 0>>>(x); k<double, 3> <<<1, 1>>> (nullptr); }\n"
    )
    found = split(source, "cuda", "cuda.cu")
    assert found.templates == ("k",)
    assert found.host.count("::kernelrl::push(") == 2
    assert "<<<" not in found.host


def test_lines_of_both_units_are_those_of_the_source() -> None:
    found = split(_HEAD + _KERNEL + _HOST, "cuda", "cuda.cu")
    assert '#line 3 "cuda.cu"\n__global__' in found.device
    assert '#line 4 "cuda.cu"\ntorch::Tensor f' in found.host


def test_a_constant_is_one_and_the_same_in_both_units() -> None:
    source = "__constant__ float w[9];\n" + _KERNEL + "void g(float* p) { cudaMemcpyToSymbol(w, p, 36); }\n"
    found = split(source, "cuda", "cuda.cu")
    assert "return (void*)&w;" in found.device
    assert "kernelrl_symbol_w()" in found.host
    assert "__constant__" not in found.host


def test_an_unnamed_namespace_gets_a_name_that_both_units_share() -> None:
    found = split("namespace {\n" + _KERNEL + "}\n" + _HOST, "cuda", "cuda.cu")
    assert "inline namespace kernelrl_unnamed" in found.device
    assert "inline namespace kernelrl_unnamed" in found.host


def test_headers_of_the_standard_library_that_the_device_unit_needs_are_included() -> None:
    assert "#include <cfloat>" in split(_KERNEL, "cuda", "cuda.cu").device
    assert "#include <cfloat>" not in split(_KERNEL.replace("FLT_MAX", "1"), "cuda", "cuda.cu").device


@pytest.mark.parametrize(
    "source",
    [
        "__global__ void k(torch::PackedTensorAccessor32<float, 1> x) {}",
        "#define MAKE(n) __global__ void n() {}\nMAKE(k)",
        "#define RUN(k) k<<<1, 1>>>()\n__global__ void k() {}",
        "__global__ void k() {}\n__global__ void k(int) {}",
        "void f() { cub::DeviceReduce::Sum(); }",
        "__device__ float g(at::Half x) { return x; }",
        "void f() { kernels[0]<<<1, 1>>>(); }",
        "texture<float> t;",
        "#ifdef __CUDACC__\nint a;\n#endif",
        "#if TORCH_VERSION_MAJOR > 1\nint a;\n#endif",
        "#include <ATen/cuda/Atomic.cuh>",
        "namespace at { int a; }",
        "void f() { run([] __device__ (int i) { return i; }); }",
        "void f() { struct Op { __device__ int operator()() const { return 1; } }; }",
    ],
)
def test_a_source_whose_parts_may_have_another_meaning_is_not_split(source: str) -> None:
    with pytest.raises(Unsplittable):
        split(source, "cuda", "cuda.cu")


def test_a_variable_of_the_host_is_one_and_no_more() -> None:
    found = split("static int calls = 0;\nstd::map<int, float> kept;\nconst int N = 4;\n" + _KERNEL, "cuda", "cuda.cu")
    assert "calls" in found.host
    assert "calls" not in found.device
    assert "kept" not in found.device
    assert "const int N" in found.device
    assert {"calls", "kept"} <= found.host_names


def test_names_that_one_unit_alone_defines_are_known() -> None:
    source = (
        "C10_HOST_DEVICE float twice(float x) { return 2 * x; }\nusing half_type = at::Half;\n"
        "struct Store { cub::BlockReduce<float, 32>::TempStorage t; };\n__device__ float g() { return 1; }\n"
    )
    found = split(source, "cuda", "cuda.cu")
    assert {"twice", "half_type"} <= found.host_names
    assert {"Store", "g"} <= found.device_names


def test_headers_of_torch_beyond_the_usual_are_noted() -> None:
    assert not split(_HEAD + "#include <ATen/cuda/CUDAContext.h>\n", "cuda", "cuda.cu").further_headers
    assert split("#include <ATen/AccumulateType.h>\n", "cuda", "cuda.cu").further_headers


@given(st.text(alphabet="k<>(){};,= \n123__global__voidfloat*x&", max_size=200))
def test_any_text_is_split_or_refused(text: str) -> None:
    with contextlib.suppress(Unsplittable):
        split(text, "cuda", "cuda.cu")
