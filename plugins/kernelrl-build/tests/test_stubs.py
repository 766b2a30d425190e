"""The host side of kernels, made without the device compiler."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_build.lexing import items
from kernelrl_build.splitting import split
from kernelrl_build.stubs import assembly, stub_body


def body_of(source: str) -> str | None:
    (item,) = items(source)
    return stub_body(item)


def test_a_stub_hands_on_the_address_of_each_parameter() -> None:
    body = body_of("__global__ void k(const float* __restrict__ x, float y[], unsigned long n) { }")
    assert body is not None
    assert "{ (void*)&x, (void*)&y, (void*)&n, nullptr }" in body
    assert "launch(&k, " in body


def test_a_stub_of_a_template_launches_its_own_instance() -> None:
    body = body_of("template <typename T, int BLOCK = 4> __global__ void __launch_bounds__(64) k(T* x) { }")
    assert body is not None
    assert "launch(&k<T, BLOCK>, " in body


@pytest.mark.parametrize("parameters", ["", "void"])
def test_a_kernel_without_parameters_has_a_stub(parameters: str) -> None:
    body = body_of(f"__global__ void k({parameters}) {{ }}")
    assert body is not None
    assert "{ nullptr }" in body


@pytest.mark.parametrize(
    "head",
    [
        "__global__ void k(float*)",
        "__global__ void k(const Record)",
        "__global__ void k(unsigned long)",
        "__global__ void k(space::Record)",
        "__global__ void k(std::array<int, 2>)",
        "__global__ void k(float (*f)(float))",
        "__global__ void k(int n = a < b)",
        "template <typename... T> __global__ void k(T... x)",
        "template <typename> __global__ void k(float* x)",
        "template <int> __global__ void k(float* x)",
        "template <typename T, std::enable_if_t<true>* = nullptr> __global__ void k(T* x)",
    ],
)
def test_an_uncertain_kernel_has_no_stub(head: str) -> None:
    assert body_of(head + " { }") is None


@given(
    st.lists(st.sampled_from(["float* a", "const int b", "Record<int, 2> c", "unsigned d = 3", "N::R e"]), max_size=6)
)
def test_a_stub_has_as_many_addresses_as_there_are_parameters(parameters: list[str]) -> None:
    body = body_of(f"__global__ void k({', '.join(parameters)}) {{ }}")
    assert body is not None
    assert body.count("(void*)&") == len(parameters)


def test_the_host_unit_of_a_source_without_device_variables_has_stubs() -> None:
    found = split("__global__ void k(float* x) { x[0] = 1; }\nvoid f(float* x) { k<<<1, 1>>>(x); }", "cuda", "cuda.cu")
    assert found.stubs
    assert "launch(&k, " in found.host
    assert "launch(&k, " not in found.device


def test_a_device_variable_leaves_the_host_side_to_the_device_compiler() -> None:
    source = (
        "__constant__ float w[4];\n__global__ void k(float* x) { x[0] = w[0]; }\nvoid f(float* x) { k<<<1, 1>>>(x); }"
    )
    found = split(source, "cuda", "cuda.cu")
    assert not found.stubs
    assert "void k(float* x);" in found.host


def test_one_kernel_without_a_stub_leaves_them_all_to_the_device_compiler() -> None:
    source = (
        "__global__ void k(float* x) { x[0] = 1; }\n__global__ void l(float*) { }\nvoid f(float* x) { k<<<1, 1>>>(x); }"
    )
    assert not split(source, "cuda", "cuda.cu").stubs


def test_each_kernel_is_in_the_table_once() -> None:
    text = assembly(0, "device0.fatbin", ["_Z1lPf", "_Z1kPf"])
    assert text.count(".quad _Z1kPf\n") == text.count(".quad _Z1lPf\n") == 1
    assert '.incbin "device0.fatbin"' in text
