"""Declarations before each part of a split source. They replace headers that the device compiler includes by itself."""

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

_KERNEL = ("typename R, typename... A, typename... B", "R (*it)(A...)", "reinterpret_cast<const void*>(it)")
_SYMBOL = ("typename T, typename... B", "const T& it", "static_cast<const void*>(&it)")
_COPY = (", const void* source, size_t count", ", source, count")
_RUNTIME_TEMPLATES = {
    name: f"template <{types}> inline cudaError_t {name}({before[0]}{it}{after[0]}, B... others) "
    f"{{ return ::{name}({before[1]}{address}{after[1]}, others...); }}\n"
    for name, (types, it, address), before, after in (
        ("cudaFuncSetAttribute", _KERNEL, ("", ""), ("", "")),
        ("cudaFuncSetCacheConfig", _KERNEL, ("", ""), ("", "")),
        ("cudaLaunchKernel", _KERNEL, ("", ""), ("", "")),
        ("cudaLaunchCooperativeKernel", _KERNEL, ("", ""), ("", "")),
        ("cudaFuncGetAttributes", _KERNEL, ("cudaFuncAttributes* found, ", "found, "), ("", "")),
        ("cudaGetSymbolAddress", _SYMBOL, ("void** found, ", "found, "), ("", "")),
        ("cudaMemcpyToSymbol", _SYMBOL, ("", ""), _COPY),
        ("cudaMemcpyToSymbolAsync", _SYMBOL, ("", ""), _COPY),
        ("cudaMemcpyFromSymbol", _SYMBOL, ("void* target, ", "target, "), (", size_t count", ", count")),
    )
}
"""Overloads of the runtime that CUDA's headers contain for nvcc alone."""
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
"""Functions that CUDA's headers define outside of any namespace, for nvcc alone."""

_PUSH = {
    "cuda": _LAUNCHES.format(push="__cudaPushCallConfiguration", stream="struct CUstream_st*"),
    "hip": _LAUNCHES.format(push="__hipPushCallConfiguration", stream="hipStream_t"),
}
_RUNTIME = {"cuda": "#include <cuda.h>\n#include <cuda_runtime.h>\n", "hip": "#include <hip/hip_runtime.h>\n"}


def device_prelude(language: str, text: str) -> str:
    """Includes of the runtime, and of the headers whose names occur in the text of the device unit."""
    headers = {**_HEADERS, **(_CUDA_HEADERS if language == "cuda" else {})}
    return _RUNTIME[language] + "".join(
        f"#include <{header}>\n" for header, pattern in headers.items() if re.search(pattern, text)
    )


def host_prelude(language: str, names: Collection[str], *, launches: bool) -> str:
    """Declarations of the runtime that a device compiler would add to the host unit.

    Args:
        names: the names that functions of the unit use.
        launches: whether the source has kernels to launch.
    """
    text = _PUSH[language] if launches else ""
    if not {"min", "max"}.isdisjoint(names):
        text += _EXTREMA
    if language == "cuda":
        text += "".join(overload for name, overload in _RUNTIME_TEMPLATES.items() if name in names)
    return text
