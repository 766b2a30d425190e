"""Operators of torch that computed in a call, in place of the candidate's kernels.

Operators that only allocate, arrange or convert do not count, nor do operators on few elements compared with the inputs
and outputs of the call, such as the sum of partial results.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch

from kernelrl_judge.limits import LIMITS
from kernelrl_judge.protocol.trees import tensors

__all__ = ["computing_operators", "computing_symbols"]

_MOST_NAMED = 64
_ARRANGING = re.compile(
    r"aten::_*(?:(?:new_)?(?:empty|zeros|ones|full)\w*|fill|zero|arange|scalar_tensor|lift_fresh|clone|copy|copy_from\w*|to"
    r"|to_(?:copy|dtype\w*|device|other|prim\w*)|contiguous|detach\w*|alias\w*|view\w*|reshape\w*|unsafe_view|permute|transpose|t|expand\w*|squeeze|unsqueeze"
    r"|flatten|unflatten|slice\w*|select\w*|narrow\w*|split\w*|chunk|unbind|unfold|as_strided\w*|cat|stack|repeat"
    r"|constant_pad_nd|pad\w*|\w+ion_pad[123]d|diagonal|movedim|real|imag|local_scalar_dense|item|is_\w+"
    r"|record_stream|set|resize\w*|nested\w*|has_\w+|pin_memory|result_type|resolve_\w+|type_as|numpy_T"
    r"|swapaxes|swapdims|moveaxis|ravel|[hvd]split|tensor_split|unsafe_(?:split\w*|chunk)|mT|mH|adjoint|concat\w*|tile"
    r"|broadcast_t\w+|(?:[hvd]|column_|row_)stack|atleast_[123]d|block_diag|diag_embed|equal)_?"
)
"""Operators that allocate, arrange, convert, or compare whole tensors."""
_FINISHING = re.compile(
    r"aten::(?:add|sub|rsub|mul|div|neg|abs|exp|log|sqrt|rsqrt|reciprocal|square|sum|mean|prod|amax|amin|max|min|maximum"
    r"|minimum|any|all|logsumexp|where|masked_fill|clamp\w*|logical_\w+|bitwise_\w+|eq|ne|lt|le|gt|ge)_?"
)
"""Operators with a step or two per element: on few elements they finish the work of kernels."""
_LEAVING = "torch.Tensor."


def computing_operators(found: Any, inputs: Any, outputs: Any) -> list[str]:
    """Names of the operators of torch that computed, and of methods that leave torch, the largest first.

    Operators computed if together they read or write a quarter of the elements of the largest tensor of the call, or if
    they write a quarter of the outputs with more than a step or two per element.

    Args:
        found: from `kernelrl_judge.runner.operators`, in an untrusted process.
    """
    entries = []
    for entry in found if isinstance(found, list) else ():
        match entry:
            case [str(name), int(taken), int(made)]:
                if name.startswith(_LEAVING) or (name.startswith("aten::") and not _ARRANGING.fullmatch(name)):
                    entries.append((name, taken, made))
    largest = max(map(torch.Tensor.numel, tensors((inputs, outputs))), default=0)
    much = max(LIMITS.operator_elements, LIMITS.operator_elements_share * largest)
    results = sum(map(torch.Tensor.numel, tensors(outputs)))
    many = max(LIMITS.operator_elements, LIMITS.operator_elements_share * results)
    heavy = sum(made for name, _, made in entries if not _FINISHING.fullmatch(name))
    if max(sum(taken for _, taken, _ in entries), sum(made for _, _, made in entries)) < much and heavy < many:
        return []
    entries.sort(key=lambda entry: -max(entry[1:]))
    return [name for name, _, _ in entries][:_MOST_NAMED]


def computing_symbols(names: Sequence[str]) -> list[str]:
    """Symbols of an extension (`kernelrl_build.imports`) that compute: those that neither arrange nor sum, call no
    Python objects as a class of pybind11 does, and register no operators."""
    other = ("aten::sum", "aten::mean", "PyObject_", "torch::jit::parse")
    return [name for name in names if not (_ARRANGING.fullmatch(name) or name.startswith(other))]
