"""Kinds of torch's operators, by their names in the dispatcher."""

from __future__ import annotations

import re

__all__ = ["OF_KERNELS", "always_counts", "arranges", "finishes"]

OF_KERNELS = " of what kernels wrote"
"""Suffix of the name of an operator that finishes memory which the call allocated and no operator of torch wrote."""
_ARRANGING = re.compile(
    r"aten::_*(?:(?:new_)?(?:empty|zeros|ones|full)\w*|fill|zero|arange\w*|scalar_tensor|lift_fresh|clone|copy|copy_from\w*|to"
    r"|to_(?:copy|dtype\w*|device|other|prim\w*)|contiguous|detach\w*|alias\w*|view\w*|reshape\w*|unsafe_view|permute|transpose\w*|t|expand\w*|squeeze\w*|unsqueeze"
    r"|(?:un)?flatten\w*|slice\w*|select\w*|narrow\w*|split\w*|chunk|unbind\w*|unfold|as_strided\w*|cat|stack|repeat"
    r"|constant_pad_nd|pad\w*|\w+ion_pad[123]d|diagonal|movedim\w*|real|imag|local_scalar_dense|item|is_\w+"
    r"|record_stream|set|resize\w*|nested\w*|has_\w+|pin_memory|result_type|resolve_\w+|type_as|numpy_T"
    r"|swapaxes|swapdims|moveaxis\w*|ravel|[hvd]split\w*|tensor_split\w*|unsafe_(?:split\w*|chunk)|mT|mH|adjoint|concat\w*|tile"
    r"|broadcast_t\w+|(?:[hvd]|column_|row_)stack|atleast_[123]d|block_diag|diag_embed|equal)_?"
)
_FINISHING = re.compile(
    r"aten::(?:add|sub|rsub|mul|div|neg|abs|exp|log|sqrt|rsqrt|reciprocal|square|sum|mean|prod|amax|amin|max|min|maximum"
    r"|minimum|any|all|logsumexp|where|masked_fill|clamp\w*|logical_\w+|bitwise_\w+|eq|ne|lt|le|gt|ge)_?"
)
_HEAVY = re.compile(
    r"aten::_*(?:\w*mm|addb?mv|mv|v?dot|linear|matmul|einsum|\w*convolution\w*|\w*conv\dd\w*|\w*conv_(?:depth|trans)\w*"
    r"|(?:msort|sort|argsort|topk|kthvalue|mode|median|unique\w*|searchsorted)\w*|(?:log)?cum(?:sum|prod|max|min|sumexp)\w*"
    r"|\w*attention\w*|linalg_\w+|fft_\w+|lstm\w*|gru\w*|rnn\w*)_?"
)


def arranges(name: str) -> bool:
    """Whether an operator allocates, arranges, converts, or compares whole tensors."""
    return _ARRANGING.fullmatch(name) is not None


def finishes(name: str) -> bool:
    """Whether an operator takes a step or two per element: on few elements it finishes the work of kernels."""
    return _FINISHING.fullmatch(name) is not None


def always_counts(name: str) -> bool:
    """Whether an operator multiplies matrices, convolves, sorts or scans: more work per byte than its bytes show."""
    return _HEAVY.fullmatch(name) is not None
