"""Tiles that the tensor memory accelerator loads, by a descriptor from the driver."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda.h>
#include <cuda/barrier>
#include <utility>

using Barrier = cuda::barrier<cuda::thread_scope_block>;
namespace cde = cuda::device::experimental;
constexpr int kTile = 32;

__global__ void relu_double(const __grid_constant__ CUtensorMap map, float* y, int columns) {
    __shared__ alignas(128) float tile[kTile][kTile];
#pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ Barrier barrier;
    if (threadIdx.x == 0) {
        init(&barrier, blockDim.x);
        cde::fence_proxy_async_shared_cta();
    }
    __syncthreads();
    Barrier::arrival_token token;
    if (threadIdx.x == 0) {
        cde::cp_async_bulk_tensor_2d_global_to_shared(&tile, &map, blockIdx.x * kTile, blockIdx.y * kTile, barrier);
        token = cuda::device::barrier_arrive_tx(barrier, 1, sizeof(tile));
    } else {
        token = barrier.arrive();
    }
    barrier.wait(std::move(token));
    for (int i = threadIdx.x; i < kTile * kTile; i += blockDim.x)
        y[(int64_t)(blockIdx.y * kTile + i / kTile) * columns + blockIdx.x * kTile + i % kTile] =
            fmaxf(tile[i / kTile][i % kTile], 0.0f) * 2.0f;
}

typedef CUresult (*Encode)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
    const cuuint64_t*,
                           const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                           CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

torch::Tensor run(torch::Tensor x) {
    auto stream = c10::cuda::getCurrentCUDAStream();
    void* found = nullptr;
    cudaDriverEntryPointQueryResult status;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &status);
    TORCH_CHECK(status == cudaDriverEntryPointSuccess, "the driver has no cuTensorMapEncodeTiled");
    const int rows = x.size(0), columns = x.size(1);
    CUtensorMap map{};
    const cuuint64_t sizes[2] = {(cuuint64_t)columns, (cuuint64_t)rows}, strides[1] = {(cuuint64_t)columns * 4};
    const cuuint32_t box[2] = {kTile, kTile}, steps[2] = {1, 1};
    ((Encode)found)(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, x.data_ptr<float>(), sizes, strides, box, steps,
                    CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    auto y = torch::empty_like(x);
    relu_double<<<dim3(columns / kTile, rows / kTile), 128, 0, stream>>>(map, y.data_ptr<float>(), columns);
    return y;
}
"""
extension = load_inline(
    name="lab_extension",
    cpp_sources="torch::Tensor run(torch::Tensor x);",
    cuda_sources=source,
    functions=["run"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.run(x)
