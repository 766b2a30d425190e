"""What stands before the units of a device source, in the place of what the device compiler would include unasked."""

from __future__ import annotations

import re
from collections.abc import Collection

__all__ = ["device_prelude", "host_prelude"]

_HEADERS = {
    "cfloat": r"\b(?:FLT|DBL)_\w+\b",
    "climits": r"\b(?:U?(?:INT|LONG|LLONG|CHAR|SHRT)_(?:MAX|MIN))\b",
    "cstdint": r"\bu?int(?:8|16|32|64|ptr)_t\b",
    "limits": r"\bnumeric_limits\b",
    "algorithm": r"\bstd::(?:min|max|swap|clamp)\b",
    "type_traits": r"\bstd::(?:is_\w+|enable_if\w*|conditional\w*|remove_\w+|decay\w*|integral_constant)\b",
    "utility": r"\bstd::(?:pair|move|forward|declval)\b",
    "array": r"\bstd::array\b",
    "tuple": r"\bstd::(?:tuple|tie|get|make_tuple)\b",
    "cmath": r"\b(?:M_PI\w*|M_SQRT\w+|INFINITY|NAN|HUGE_VALF?)\b|\bstd::(?:sqrt|exp|log|pow|abs|tanh|fma|floor|ceil)\b",
    "cassert": r"\bassert\b",
    "cstdio": r"\bprintf\b",
    "cstring": r"\bmem(?:cpy|set)\b",
}
_CUDA_HEADERS = {
    "cuda_fp16.h": r"\b(?:__)?half2?(?:_\w+)?\b|\b__\w*half2?\w*\b",
    "cuda_bf16.h": r"\b(?:__)?nv_bfloat16\w*\b|\b__\w*bfloat16\w*\b",
}

_LAUNCHES = """\
extern "C" unsigned {push}(dim3, dim3, size_t, {stream});
namespace kernelrl {{
inline unsigned push(dim3 grid, dim3 block, size_t shared = 0, {stream} stream = 0) {{
  return {push}(grid, block, shared, stream);
}}
}}
"""

_RUNTIME_TEMPLATES = """\
template <typename T> inline cudaError_t cudaMemcpyToSymbol(
    const T& symbol, const void* source, size_t count, size_t offset = 0,
    cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
  return ::cudaMemcpyToSymbol(static_cast<const void*>(&symbol), source, count, offset, kind);
}
template <typename T> inline cudaError_t cudaMemcpyToSymbolAsync(const T& symbol, const void* source, size_t count,
    size_t offset = 0, cudaMemcpyKind kind = cudaMemcpyHostToDevice, cudaStream_t stream = 0) {
  return ::cudaMemcpyToSymbolAsync(static_cast<const void*>(&symbol), source, count, offset, kind, stream);
}
template <typename T> inline cudaError_t cudaMemcpyFromSymbol(
    void* target, const T& symbol, size_t count, size_t offset = 0, cudaMemcpyKind kind = cudaMemcpyDeviceToHost) {
  return ::cudaMemcpyFromSymbol(target, static_cast<const void*>(&symbol), count, offset, kind);
}
template <typename T> inline cudaError_t cudaGetSymbolAddress(void** address, const T& symbol) {
  return ::cudaGetSymbolAddress(address, static_cast<const void*>(&symbol));
}
template <typename R, typename... A>
inline cudaError_t cudaFuncSetAttribute(R (*kernel)(A...), cudaFuncAttribute attribute, int value) {
  return ::cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
template <typename R, typename... A>
inline cudaError_t cudaFuncSetCacheConfig(R (*kernel)(A...), cudaFuncCache config) {
  return ::cudaFuncSetCacheConfig(reinterpret_cast<const void*>(kernel), config);
}
template <typename R, typename... A>
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, R (*kernel)(A...)) {
  return ::cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}
template <typename R, typename... A> inline cudaError_t cudaLaunchKernel(
    R (*kernel)(A...), dim3 grid, dim3 block, void** arguments, size_t shared = 0, cudaStream_t stream = 0) {
  return ::cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, arguments, shared, stream);
}
template <typename R, typename... A> inline cudaError_t cudaLaunchCooperativeKernel(
    R (*kernel)(A...), dim3 grid, dim3 block, void** arguments, size_t shared = 0, cudaStream_t stream = 0) {
  return ::cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(kernel), grid, block, arguments, shared, stream);
}
"""
"""Overloads of the runtime that CUDA's headers have for its own compiler alone."""
_EXTREMA = """\
#include <type_traits>
template <typename A, typename B> using kernelrl_common_t =
    std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>, std::common_type_t<A, B>>;
template <typename A, typename B> inline kernelrl_common_t<A, B> min(A a, B b) {
  kernelrl_common_t<A, B> x = a, y = b;
  return x < y ? x : y;
}
template <typename A, typename B> inline kernelrl_common_t<A, B> max(A a, B b) {
  kernelrl_common_t<A, B> x = a, y = b;
  return x > y ? x : y;
}
"""
"""What CUDA's headers define outside of any namespace, for its own compiler alone."""
_TEMPLATED = set(re.findall(r"cudaError_t (cuda\w+)\(", _RUNTIME_TEMPLATES))

_PUSH = {
    "cuda": _LAUNCHES.format(push="__cudaPushCallConfiguration", stream="struct CUstream_st*"),
    "hip": _LAUNCHES.format(push="__hipPushCallConfiguration", stream="hipStream_t"),
}
_RUNTIME = {"cuda": "#include <cuda.h>\n#include <cuda_runtime.h>\n", "hip": "#include <hip/hip_runtime.h>\n"}


def device_prelude(language: str, text: str) -> str:
    """The runtime's header, and those that a text of the device unit needs by the names in it."""
    headers = {**_HEADERS, **(_CUDA_HEADERS if language == "cuda" else {})}
    return _RUNTIME[language] + "".join(
        f"#include <{header}>\n" for header, pattern in headers.items() if re.search(pattern, text)
    )


def host_prelude(language: str, names: Collection[str], *, launches: bool) -> str:
    """What the host unit finds of the runtime where a device compiler would declare it.

    Args:
        names: those that its functions use.
        launches: whether there are kernels to launch.
    """
    text = _PUSH[language] if launches else ""
    if not {"min", "max"}.isdisjoint(names):
        text += _EXTREMA
    if language == "cuda" and not _TEMPLATED.isdisjoint(names):
        text += _RUNTIME_TEMPLATES
    return text
