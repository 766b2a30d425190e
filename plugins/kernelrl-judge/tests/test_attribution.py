"""Whose kernels took the time: names as profilers of CUDA report them."""

from __future__ import annotations

from typing import Any

import pytest

from kernelrl_judge.attribution import attributed

OWN = "relu_double_kernel(float const*, float*, long, int)"
COPY = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
    "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}>(int, float)"
)


def profiled(*pairs: tuple[str, float]) -> list[dict[str, Any]]:
    return [{"name": name, "time_us": time_us, "calls": 1, "share": 0.1} for name, time_us in pairs]


def origin(name: str, *own: str) -> str:
    (kernel,) = attributed(profiled((name, 1.0)), own)["device_kernels"]
    return str(kernel["origin"])


@pytest.mark.parametrize(
    "name",
    [
        OWN,
        "relu_double_kernel",
        "relu_double_kernel_0d1d2de",
        "void relu_double_kernel<32, c10::Half>(c10::Half const*)",
        "mine::relu_double_kernel(float*)",
        "(anonymous namespace)::relu_double_kernel(float*)",
        "void (anonymous namespace)::relu_double_kernel<4>(float*)",
        "kernel_cutlass_relu_double_kernel_tensorptrf32gmem_0",
    ],
)
def test_kernels_of_the_source_are_known_by_their_name(name: str) -> None:
    assert origin(name, "relu_double_kernel") == "own"


@pytest.mark.parametrize(
    "name",
    [
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)",
        "void at::native::(anonymous namespace)::softmax_warp_forward<float, float, float, 10, true>(float*)",
        "ampere_sgemm_128x64_tn",
        "sm90_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x16_warpgroupsize1x1x1_execute_kernel__5x_cublas",
        "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT",
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4>(Params)",
        "void cudnn::ops::nchwToNhwcKernel<float, float, float>(cudnn::ops::nchw2nhwc_params_t<float>)",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float>(cublasLt::cublasSplitKParams<float>)",
        "triton_poi_fused_relu_0",
        "void at::native::relu_double_kernel<float>(float*)",
    ],
)
def test_kernels_of_libraries_are_known_by_namespace_or_habit(name: str) -> None:
    assert origin(name, "relu_double_kernel") == "library"


@pytest.mark.parametrize("name", [COPY, "Memcpy DtoD (Device -> Device)", "Memset (Device)"])
def test_copies_are_nobodys(name: str) -> None:
    assert origin(name, "relu_double_kernel") == "arranging"


def test_shares_are_of_the_time_without_copies() -> None:
    found = attributed(profiled((COPY, 80.0), (OWN, 15.0), ("ampere_sgemm_64x64", 5.0)), ["relu_double_kernel"])
    assert found["own_kernel_share"] == pytest.approx(0.75)
    assert found["library_kernel_share"] == pytest.approx(0.25)
    assert found["library_kernels"] == ["ampere_sgemm_64x64"]


def test_what_is_called_otherwise_is_neither_own_nor_a_librarys() -> None:
    found = attributed(profiled(("void cub::DeviceReduceKernel<Policy>(float*)", 3.0)), ["relu_double_kernel"])
    assert (found["own_kernel_share"], found["library_kernel_share"]) == (0.0, 0.0)


def test_shares_count_kernels_that_are_not_shown() -> None:
    found = attributed(profiled(*((f"mine_{index}", 1.0) for index in range(20))), ["mine"])
    assert (len(found["device_kernels"]), found["own_kernel_share"]) == (8, 1.0)


@pytest.mark.parametrize(
    "kernels",
    [None, "x", [], [1, None], [{"name": 3}], [{"name": "x", "time_us": "x"}], [{"name": "x", "time_us": -1.0}]],
)
def test_what_a_runner_says_may_be_anything(kernels: Any) -> None:
    found = attributed(kernels, ["x"])
    assert (found["device_kernels"], found["own_kernel_share"], found["library_kernels"]) == ([], None, [])


def test_a_short_name_is_not_found_inside_of_others() -> None:
    assert origin("reduce_k(float*)", "k") == "other"
    assert origin("k(float*)", "k") == "own"
