"""Inline CUDA extensions of many shapes, with calls whose results are compared between two ways of building them.

Original sources. `EXTENSIONS` are right; `BROKEN` must not compile, and the compiler must say why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

__all__ = ["BROKEN", "EXTENSIONS", "Broken", "Extension"]


@attrs.frozen
class Extension:
    """Arguments of one `load_inline`, and a call."""

    name: str
    cpp: str
    cuda: str
    functions: tuple[str, ...]
    call: Callable[[Any, Any], Any]
    """`(module, torch)` to tensors."""
    flags: tuple[str, ...] = ()
    route: str = "bound"
    """The way it is expected to be built."""


@attrs.frozen
class Broken:
    """Sources that must fail, and words of the message."""

    name: str
    cpp: str
    cuda: str
    functions: tuple[str, ...]
    words: str


_HEAD = "#include <torch/extension.h>\n#include <cuda_runtime.h>\n"


def _x(torch: Any, *shape: int, dtype: str = "float32") -> Any:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator).to(getattr(torch, dtype)).cuda()


EXTENSIONS = (
    Extension(
        "elementwise",
        "torch::Tensor scaled_sum(torch::Tensor a, torch::Tensor b);",
        _HEAD
        + """
__global__ void scaled_sum_kernel(const float* a, const float* b, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = 2.0f * a[i] + b[i];
}
torch::Tensor scaled_sum(torch::Tensor a, torch::Tensor b) {
  auto out = torch::empty_like(a);
  int n = a.numel();
  scaled_sum_kernel<<<(n + 255) / 256, 256>>>(a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), n);
  return out;
}
""",
        ("scaled_sum",),
        lambda m, torch: m.scaled_sum(_x(torch, 1000), _x(torch, 1000)),
    ),
    Extension(
        "templates_and_dispatch",
        "torch::Tensor cube(torch::Tensor x);",
        _HEAD
        + """
template <typename scalar_t, int STEP = 1>
__global__ void cube_kernel(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, int64_t n) {
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x * STEP)
    y[i] = x[i] * x[i] * x[i];
}
torch::Tensor cube(torch::Tensor x) {
  auto y = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "cube", ([&] {
    cube_kernel<scalar_t><<<64, 256>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), x.numel());
  }));
  return y;
}
""",
        ("cube",),
        lambda m, torch: [m.cube(_x(torch, 777)), m.cube(_x(torch, 777, dtype="float64"))],
    ),
    Extension(
        "half_dispatch",
        "torch::Tensor twice(torch::Tensor x);",
        _HEAD
        + """
template <typename T>
__global__ void twice_kernel(const T* x, T* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = static_cast<T>(static_cast<float>(x[i]) * 2.0f);
}
torch::Tensor twice(torch::Tensor x) {
  auto y = torch::empty_like(x);
  int n = x.numel();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::ScalarType::Half, at::ScalarType::BFloat16, x.scalar_type(), "twice", [&] {
    twice_kernel<scalar_t><<<(n + 127) / 128, 128>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), n);
  });
  return y;
}
""",
        ("twice",),
        lambda m, torch: [m.twice(_x(torch, 300, dtype=name)) for name in ("float32", "float16", "bfloat16")],
    ),
    Extension(
        "shared_memory_reduction",
        "torch::Tensor row_sum(torch::Tensor x);",
        _HEAD
        + """
#define THREADS 256
__device__ __forceinline__ float warp_sum(float v) {
  for (int offset = 16; offset > 0; offset >>= 1) v += __shfl_down_sync(0xffffffff, v, offset);
  return v;
}
__global__ void row_sum_kernel(const float* x, float* out, int columns) {
  __shared__ float partial[THREADS / 32];
  float sum = 0.f;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) sum += x[blockIdx.x * columns + c];
  sum = warp_sum(sum);
  if ((threadIdx.x & 31) == 0) partial[threadIdx.x >> 5] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = threadIdx.x < THREADS / 32 ? partial[threadIdx.x] : 0.f;
    sum = warp_sum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
  }
}
torch::Tensor row_sum(torch::Tensor x) {
  TORCH_CHECK(x.dim() == 2 && x.is_cuda(), "x must be a matrix on the GPU");
  auto out = torch::empty({x.size(0)}, x.options());
  row_sum_kernel<<<x.size(0), THREADS>>>(x.contiguous().data_ptr<float>(), out.data_ptr<float>(), x.size(1));
  return out;
}
""",
        ("row_sum",),
        lambda m, torch: m.row_sum(_x(torch, 33, 1000)),
    ),
    Extension(
        "dynamic_shared_memory",
        "torch::Tensor reversed(torch::Tensor x);",
        _HEAD
        + """
extern "C" __global__ void reverse_rows(const float* x, float* y, int n) {
  extern __shared__ float row[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) row[i] = x[blockIdx.x * n + i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[blockIdx.x * n + i] = row[n - 1 - i];
}
torch::Tensor reversed(torch::Tensor x) {
  auto y = torch::zeros_like(x);
  const int n = x.size(1);
  reverse_rows<<<dim3(x.size(0)), dim3(128), n * sizeof(float)>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  return y;
}
""",
        ("reversed",),
        lambda m, torch: m.reversed(_x(torch, 5, 500)),
    ),
    Extension(
        "two_functions_and_a_stream",
        "torch::Tensor plus(torch::Tensor x, double a);\ntorch::Tensor minus(torch::Tensor x, int64_t k, bool twice);",
        _HEAD
        + """
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
__global__ void add_number(const float* x, float* y, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + a;
}
static inline int blocks_for(int n) { return (n + 255) / 256; }
torch::Tensor plus(torch::Tensor x, double a) {
  auto y = torch::empty_like(x);
  cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  add_number<<<blocks_for(x.numel()), 256, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), (float)a, x.numel());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
torch::Tensor minus(torch::Tensor x, int64_t k, bool twice) {
  auto y = torch::empty_like(x);
  add_number<<<blocks_for(x.numel()), 256, 0, at::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), y.data_ptr<float>(), -(float)k * (twice ? 2 : 1), x.numel());
  return y;
}
""",
        ("plus", "minus"),
        lambda m, torch: [m.plus(_x(torch, 100), 1.5), m.minus(_x(torch, 100), 3, True)],
    ),
    Extension(
        "tuple_result",
        """
std::tuple<torch::Tensor, torch::Tensor> signs(torch::Tensor x);
std::vector<torch::Tensor> halves(torch::Tensor x);
""",
        _HEAD
        + """
#include <vector>
__global__ void signs_kernel(const float* x, float* p, float* m, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { p[i] = fmaxf(x[i], 0.f); m[i] = fminf(x[i], 0.f); }
}
std::tuple<torch::Tensor, torch::Tensor> signs(torch::Tensor x) {
  auto p = torch::empty_like(x), m = torch::empty_like(x);
  signs_kernel<<<(x.numel() + 63) / 64, 64>>>(x.data_ptr<float>(), p.data_ptr<float>(), m.data_ptr<float>(), x.numel());
  return {p, m};
}
std::vector<torch::Tensor> halves(torch::Tensor x) { return {x.narrow(0, 0, 5).clone(), x.narrow(0, 5, 5).clone()}; }
""",
        ("signs", "halves"),
        lambda m, torch: [*m.signs(_x(torch, 500)), *m.halves(_x(torch, 10))],
    ),
    Extension(
        "constant_memory",
        "torch::Tensor blur(torch::Tensor x, torch::Tensor w);",
        _HEAD
        + """
__constant__ float weights[3];
__global__ void blur_kernel(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i > 0 && i < n - 1) y[i] = weights[0] * x[i - 1] + weights[1] * x[i] + weights[2] * x[i + 1];
  else if (i < n) y[i] = x[i];
}
torch::Tensor blur(torch::Tensor x, torch::Tensor w) {
  auto y = torch::empty_like(x);
  cudaMemcpyToSymbol(weights, w.data_ptr<float>(), sizeof(weights), 0, cudaMemcpyDeviceToDevice);
  blur_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
""",
        ("blur",),
        lambda m, torch: m.blur(_x(torch, 999), _x(torch, 3)),
    ),
    Extension(
        "half_intrinsics",
        "torch::Tensor half_add(torch::Tensor a, torch::Tensor b);",
        _HEAD
        + """
#include <cuda_fp16.h>
__global__ void half_add_kernel(const __half2* a, const __half2* b, __half2* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = __hadd2(a[i], b[i]);
}
torch::Tensor half_add(torch::Tensor a, torch::Tensor b) {
  auto c = torch::empty_like(a);
  int n = a.numel() / 2;
  half_add_kernel<<<(n + 255) / 256, 256>>>(reinterpret_cast<const __half2*>(a.data_ptr<at::Half>()),
      reinterpret_cast<const __half2*>(b.data_ptr<at::Half>()), reinterpret_cast<__half2*>(c.data_ptr<at::Half>()), n);
  return c;
}
""",
        ("half_add",),
        lambda m, torch: m.half_add(_x(torch, 512, dtype="float16"), _x(torch, 512, dtype="float16")),
    ),
    Extension(
        "own_module",
        "",
        _HEAD
        + """
__global__ void negate_kernel(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = -x[i];
}
torch::Tensor negate(torch::Tensor x) {
  auto y = torch::empty_like(x);
  negate_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("negate", &negate, "minus x");
}
""",
        (),
        lambda m, torch: m.negate(_x(torch, 100)),
    ),
    Extension(
        "wrapper_in_cpp",
        """
#include <torch/extension.h>
void launch_fill(float* p, float v, int n);
torch::Tensor filled(int64_t n, double v) {
  auto t = torch::empty({n}, torch::dtype(torch::kFloat32).device(torch::kCUDA));
  launch_fill(t.data_ptr<float>(), v, n);
  return t;
}
""",
        """
#include <cuda_runtime.h>
__global__ void fill_kernel(float* p, float v, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] = v;
}
void launch_fill(float* p, float v, int n) { fill_kernel<<<(n + 255) / 256, 256>>>(p, v, n); }
""",
        ("filled",),
        lambda m, torch: m.filled(77, 2.5),
    ),
    Extension(
        "namespaces_and_records",
        "torch::Tensor affine(torch::Tensor x);",
        _HEAD
        + """
namespace {
struct Affine { float a; float b; __host__ __device__ float operator()(float v) const { return a * v + b; } };
template <typename F> __global__ void map_kernel(const float* x, float* y, int n, F f) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = f(x[i]);
}
}  // namespace
constexpr int kBlock = 128;
enum class Mode : int { kPlain = 0 };
torch::Tensor affine(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const int n = static_cast<int>(x.numel());
  const Affine f{3.f, 1.f};
  map_kernel<Affine><<<(n + kBlock - 1) / kBlock, kBlock>>>(x.data_ptr<float>(), y.data_ptr<float>(), n, f);
  return y;
}
""",
        ("affine",),
        lambda m, torch: m.affine(_x(torch, 400)),
    ),
    Extension(
        "tiled_product",
        "torch::Tensor product(torch::Tensor a, torch::Tensor b);",
        _HEAD
        + """
#define TILE 16
__global__ void product_kernel(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int N) {
  __shared__ float As[TILE][TILE], Bs[TILE][TILE];
  int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
  float acc = 0.0f;
  for (int t = 0; t < (N + TILE - 1) / TILE; ++t) {
    As[threadIdx.y][threadIdx.x] = (row < N && t * TILE + threadIdx.x < N) ? A[row * N + t * TILE + threadIdx.x] : 0.f;
    Bs[threadIdx.y][threadIdx.x] = (col < N && t * TILE + threadIdx.y < N) ? B[(t * TILE + threadIdx.y) * N + col] : 0;
    __syncthreads();
    #pragma unroll
    for (int k = 0; k < TILE; ++k) acc += As[threadIdx.y][k] * Bs[k][threadIdx.x];
    __syncthreads();
  }
  if (row < N && col < N) C[row * N + col] = acc;
}
torch::Tensor product(torch::Tensor a, torch::Tensor b) {
  int n = a.size(0);
  auto c = torch::zeros({n, n}, a.options());
  dim3 threads(TILE, TILE);
  dim3 blocks((n + TILE - 1) / TILE, (n + TILE - 1) / TILE);
  product_kernel<<<blocks, threads>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), n);
  return c;
}
""",
        ("product",),
        lambda m, torch: m.product(_x(torch, 100, 100), _x(torch, 100, 100)),
        ("-O3", "--use_fast_math"),
    ),
    Extension(
        "block_reduce_of_cub",
        "torch::Tensor maximum_of_rows(torch::Tensor x);",
        _HEAD
        + """
#include <cub/block/block_reduce.cuh>
struct Larger { __device__ float operator()(float a, float b) const { return a > b ? a : b; } };
__global__ void row_max_kernel(const float* x, float* out, int n) {
  typedef cub::BlockReduce<float, 128> Reduce;
  __shared__ typename Reduce::TempStorage storage;
  float best = -FLT_MAX;
  for (int i = threadIdx.x; i < n; i += 128) best = fmaxf(best, x[blockIdx.x * n + i]);
  best = Reduce(storage).Reduce(best, Larger());
  if (threadIdx.x == 0) out[blockIdx.x] = best;
}
torch::Tensor maximum_of_rows(torch::Tensor x) {
  auto out = torch::empty({x.size(0)}, x.options());
  row_max_kernel<<<x.size(0), 128>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.size(1));
  return out;
}
""",
        ("maximum_of_rows",),
        lambda m, torch: m.maximum_of_rows(_x(torch, 7, 700)),
    ),
    Extension(
        "cooperative_groups",
        "torch::Tensor tile_sum(torch::Tensor x);",
        _HEAD
        + """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void tile_sum_kernel(const float* x, float* y, int n) {
  auto tile = cg::tiled_partition<32>(cg::this_thread_block());
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = i < n ? x[i] : 0.f;
  for (int offset = tile.size() / 2; offset > 0; offset /= 2) v += tile.shfl_down(v, offset);
  if (tile.thread_rank() == 0) y[i / 32] = v;
}
torch::Tensor tile_sum(torch::Tensor x) {
  auto y = torch::empty({x.numel() / 32}, x.options());
  tile_sum_kernel<<<x.numel() / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
""",
        ("tile_sum",),
        lambda m, torch: m.tile_sum(_x(torch, 1024)),
    ),
    Extension(
        "inline_ptx",
        "torch::Tensor approximate_exp2(torch::Tensor x);",
        _HEAD
        + """
__device__ float exp2_approx(float v) { float r; asm volatile("ex2.approx.f32 %0, %1;" : "=f"(r) : "f"(v)); return r; }
__global__ void exp2_kernel(const float* x, float* y, size_t n) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (i < n) y[i] = exp2_approx(x[i]);
}
torch::Tensor approximate_exp2(torch::Tensor x) {
  auto y = torch::empty_like(x);
  exp2_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
""",
        ("approximate_exp2",),
        lambda m, torch: m.approximate_exp2(_x(torch, 600)),
    ),
    Extension(
        "macro_makes_kernels",
        "torch::Tensor relu(torch::Tensor x);\ntorch::Tensor square(torch::Tensor x);",
        _HEAD
        + """
#define MAP(NAME, EXPRESSION)                                         \\
  __global__ void NAME##_kernel(const float* x, float* y, int n) {    \\
    int i = blockIdx.x * blockDim.x + threadIdx.x;                    \\
    if (i < n) { float v = x[i]; y[i] = EXPRESSION; }                 \\
  }                                                                   \\
  torch::Tensor NAME(torch::Tensor x) {                               \\
    auto y = torch::empty_like(x);                                    \\
    NAME##_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel()); \\
    return y;                                                         \\
  }
MAP(relu, v > 0.f ? v : 0.f)
MAP(square, v * v)
""",
        ("relu", "square"),
        lambda m, torch: [m.relu(_x(torch, 50)), m.square(_x(torch, 50))],
        route="ordinary",
    ),
    Extension(
        "optional_argument",
        "torch::Tensor maybe_bias(torch::Tensor x, c10::optional<torch::Tensor> bias);",
        _HEAD
        + """
__global__ void bias_kernel(const float* x, const float* b, float* y, int rows, int columns) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < rows * columns) y[i] = x[i] + (b ? b[i % columns] : 0.0f);
}
torch::Tensor maybe_bias(torch::Tensor x, c10::optional<torch::Tensor> bias) {
  auto y = torch::empty_like(x);
  const float* b = bias.has_value() ? bias.value().data_ptr<float>() : nullptr;
  int n = x.numel();
  bias_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), b, y.data_ptr<float>(), x.size(0), x.size(1));
  return y;
}
""",
        ("maybe_bias",),
        lambda m, torch: [m.maybe_bias(_x(torch, 4, 8), None), m.maybe_bias(_x(torch, 4, 8), _x(torch, 8))],
    ),
    Extension(
        "uncommon_argument",
        "torch::Tensor padded(torch::Tensor x, std::array<int64_t, 2> pad);",
        _HEAD
        + """
#include <array>
__global__ void pad_kernel(const float* x, float* y, int n, int left, int m) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < m) y[i] = (i >= left && i < left + n) ? x[i - left] : 0.f;
}
torch::Tensor padded(torch::Tensor x, std::array<int64_t, 2> pad) {
  int m = x.numel() + pad[0] + pad[1];
  auto y = torch::empty({m}, x.options());
  pad_kernel<<<(m + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel(), pad[0], m);
  return y;
}
""",
        ("padded",),
        lambda m, torch: m.padded(_x(torch, 10), [2, 3]),
        route="pybind",
    ),
    Extension(
        "accessors_in_the_kernel",
        "torch::Tensor diagonal_sum(torch::Tensor x);",
        _HEAD
        + """
__global__ void diagonal_kernel(torch::PackedTensorAccessor32<float, 2, torch::RestrictPtrTraits> x, float* out) {
  float sum = 0.f;
  for (int i = 0; i < x.size(0); ++i) sum += x[i][i];
  *out = sum;
}
torch::Tensor diagonal_sum(torch::Tensor x) {
  auto out = torch::empty({1}, x.options());
  diagonal_kernel<<<1, 1>>>(x.packed_accessor32<float, 2, torch::RestrictPtrTraits>(), out.data_ptr<float>());
  return out;
}
""",
        ("diagonal_sum",),
        lambda m, torch: m.diagonal_sum(_x(torch, 9, 9)),
        route="ordinary",
    ),
    Extension(
        "vector_loads_and_raw_strings",
        "torch::Tensor shift(torch::Tensor x);",
        _HEAD
        + r"""
// A brace } in a comment, and <<< >>> in another.
static const char* kNote = R"note(} <<<1, 1>>> ")note";
__launch_bounds__(256) __global__ void shift_kernel(const float4* __restrict__ x, float4* __restrict__ y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { float4 v = x[i]; v.x += 1.f; v.y += 2.f; v.z += 3.f; v.w += 4.f; y[i] = v; }
}
torch::Tensor shift(torch::Tensor x) {
  TORCH_CHECK(kNote[0] == '}', "a note of ", 1'0, " characters");
  auto y = torch::empty_like(x);
  int n = x.numel() / 4;
  if (n) shift_kernel<<<(n + 255) / 256, 256>>>((const float4*)x.data_ptr<float>(), (float4*)y.data_ptr<float>(), n);
  else y.zero_();
  return y;
}
""",
        ("shift",),
        lambda m, torch: m.shift(_x(torch, 1024)),
    ),
    Extension(
        "library_call_beside_a_kernel",
        "torch::Tensor product_relu(torch::Tensor a, torch::Tensor b);",
        _HEAD
        + """
__global__ void relu_(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && x[i] < 0) x[i] = 0;
}
torch::Tensor product_relu(torch::Tensor a, torch::Tensor b) {
  auto c = at::matmul(a, b);
  relu_<<<(c.numel() + 255) / 256, 256>>>(c.data_ptr<float>(), c.numel());
  return c;
}
""",
        ("product_relu",),
        lambda m, torch: m.product_relu(_x(torch, 20, 30), _x(torch, 30, 10)),
    ),
    Extension(
        "switch_over_templates",
        "torch::Tensor unrolled(torch::Tensor x, int64_t k);",
        _HEAD
        + """
template <int K> __global__ void unrolled_kernel(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { float v = x[i];
#pragma unroll
    for (int k = 0; k < K; ++k) v = v * 0.5f + 1.f;
    y[i] = v; }
}
torch::Tensor unrolled(torch::Tensor x, int64_t k) {
  auto y = torch::empty_like(x);
  int n = x.numel();
  switch (k) {
    case 1: unrolled_kernel<1><<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n); break;
    case 4: unrolled_kernel<4><<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n); break;
    default: TORCH_CHECK(false, "k is 1 or 4");
  }
  return y;
}
""",
        ("unrolled",),
        lambda m, torch: [m.unrolled(_x(torch, 300), 1), m.unrolled(_x(torch, 300), 4)],
    ),
    Extension(
        "vendor_library",
        "torch::Tensor gemm(torch::Tensor a, torch::Tensor b);",
        """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cublas_v2.h>
torch::Tensor gemm(torch::Tensor a, torch::Tensor b) {
  auto c = torch::empty({a.size(0), b.size(1)}, a.options());
  float one = 1.f, zero = 0.f;
  cublasHandle_t handle = at::cuda::getCurrentCUDABlasHandle();
  cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, b.size(1), a.size(0), a.size(1), &one, b.data_ptr<float>(), b.size(1),
              a.data_ptr<float>(), a.size(1), &zero, c.data_ptr<float>(), b.size(1));
  return c;
}
""",
        ("gemm",),
        lambda m, torch: m.gemm(_x(torch, 8, 16), _x(torch, 16, 4)),
    ),
)

_PLAIN = "torch::Tensor f(torch::Tensor x);"

BROKEN = (
    Broken("missing_semicolon", _PLAIN, _HEAD + "__global__ void k(float* x) { x[0] = 1.f }\n", ("f",), "expected a"),
    Broken(
        "unknown_name",
        _PLAIN,
        _HEAD + "__global__ void k(float* x) { x[0] = thread_idx; }\ntorch::Tensor f(torch::Tensor x) { return x; }\n",
        ("f",),
        "thread_idx",
    ),
    Broken(
        "wrong_arguments",
        _PLAIN,
        _HEAD
        + "__global__ void k(float* x, int n) { x[0] = n; }\n"
        + "torch::Tensor f(torch::Tensor x) { k<<<1, 1>>>(x.data_ptr<float>()); return x; }\n",
        ("f",),
        "few arguments",
    ),
    Broken("undeclared_function", "", _HEAD + "torch::Tensor f(torch::Tensor x) { return x; }\n", ("f",), "f"),
    Broken(
        "no_such_member",
        _PLAIN,
        _HEAD + "torch::Tensor f(torch::Tensor x) { return x.elementwise_supersqrt(); }\n",
        ("f",),
        "elementwise_supersqrt",
    ),
    Broken("file_of_others", _PLAIN, '#include "/etc/passwd"\n', ("f",), "passwd"),
    Broken("binary_of_others", _PLAIN, 'asm(".incbin \\"/etc/passwd\\"");\n', ("f",), "passwd"),
)
