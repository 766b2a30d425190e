"""Whose kernels a call spends the device's time in: by their names, which come from the runner and prove nothing.

A kernel is the candidate's own when its name holds that of a kernel of the source, a library's when it stands in a
namespace of one or is called as those of the vendor are. What only copies or fills memory (a layout, a cleared buffer)
counts for nobody. The rest, such as code that was compiled at run time under another name, is told apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["attributed"]

_SHOWN = 8
_ARRANGING = re.compile(r"^Mem(?:cpy|set)\b|direct_copy_kernel|FillFunctor|CatArrayBatchedCopy")
_LIBRARY = re.compile(
    r"^(?:at|at_cuda_detail|c10|cublas\w*|cudnn\w*|cask\w*|cutlass|pytorch_\w+|rocblas\w*|miopen\w*|ck)::"
    r"|cublas|cudnn|cutlass_+\d|^nvjet_|xmma_|^(?:volta|turing|ampere|hopper|sm\d+|maxwell)_|^nccl|^splitKreduce"
    r"|^gemm(?:v?[NS]|SN|_k)|^gemv|^internal::gemv|^Cijk_|^fmha_|^triton_(?:poi|red|per|mm|tem|unk)_",
)
_MAX_LIBRARIES = 4
_LEAST = 4


def attributed(kernels: Any, own: Iterable[str]) -> dict[str, Any]:
    """Facts for the profile of an evaluation.

    `device_kernels`: the longest of them, each with its `origin`; `own_kernel_share` and `library_kernel_share`: of the
    device's time without copies, null where nothing else ran; `library_kernels`: names of those that took longest.

    Args:
        kernels: as `profiling.device_kernels` gives them, the longest first; from an untrusted process.
        own: names of the kernels in the source.
    """
    names = {name for name in own if name}
    found = [
        {**kernel, "origin": _origin(kernel["name"], names)}
        for kernel in (kernels if isinstance(kernels, list) else ())
        if isinstance(kernel, Mapping) and isinstance(kernel.get("name"), str) and _is_time(kernel.get("time_us"))
    ]
    computing = [kernel for kernel in found if kernel["origin"] != "arranging"]
    library = [kernel["name"] for kernel in computing if kernel["origin"] == "library"]
    return {
        "device_kernels": found[:_SHOWN],
        "own_kernel_share": _share(computing, "own"),
        "library_kernel_share": _share(computing, "library"),
        "library_kernels": list(dict.fromkeys(library))[:_MAX_LIBRARIES],
    }


def _origin(symbol: str, own: set[str]) -> str:
    if _ARRANGING.search(symbol):
        return "arranging"
    head = _head(symbol)
    if _LIBRARY.search(head):
        return "library"
    last = head.rpartition("::")[2]
    # Compilers add to names; a short one would be found everywhere.
    return "own" if any(name == last or (len(name) >= _LEAST and name in last) for name in own) else "other"


def _head(symbol: str) -> str:
    """The qualified name in front of template arguments and parameters."""
    plain = symbol.removeprefix("void ").replace("(anonymous namespace)::", "")
    return re.split(r"[<(]", plain, maxsplit=1)[0].strip()


def _share(kernels: Sequence[Mapping[str, Any]], origin: str) -> float | None:
    whole_us = sum(kernel["time_us"] for kernel in kernels)
    if whole_us <= 0:
        return None
    return float(sum(kernel["time_us"] for kernel in kernels if kernel["origin"] == origin) / whole_us)


def _is_time(value: Any) -> bool:
    return isinstance(value, float) and 0.0 <= value < float("inf")
