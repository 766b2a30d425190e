"""Names of torch's operators: those that compute nothing; and words for what is no operator and stands among them."""

from __future__ import annotations

import re
from typing import Any

from kernelrl_judge.listing import TORCHS

__all__ = [
    "ARRANGING",
    "BACK",
    "ITEM",
    "LEFT",
    "LOOKED_UP",
    "OF_NUMBERS",
    "PAST",
    "RACED",
    "STOPPED",
    "SUMMING",
    "is_torchs",
    "plain",
]

ARRANGING = re.compile(
    r"aten::_*(?:(?:new_)?(?:empty|zeros|ones|full)\w*|fill|zero|arange|scalar_tensor|lift_fresh|clone|copy|copy_from\w*|to_copy"
    r"|to|contiguous|detach\w*|alias\w*|view\w*|reshape\w*|unsafe_view|permute|transpose|t|expand\w*|squeeze|unsqueeze"
    r"|flatten|unflatten|slice\w*|select\w*|narrow\w*|split\w*|chunk|unbind|unfold|as_strided\w*|cat|stack|repeat"
    r"|constant_pad_nd|pad\w*|\w+ion_pad[123]d|diagonal|movedim|real|imag|local_scalar_dense|item|is_\w+"
    r"|record_stream|set|resize\w*|nested\w*|has_\w+|pin_memory|result_type|resolve_\w+|type_as|numpy_T"
    r"|swapaxes|swapdims|moveaxis|ravel|[hvd]split|tensor_split|unsafe_(?:split\w*|chunk)|mT|mH|adjoint|concat\w*|tile"
    r"|broadcast_t\w+|(?:[hvd]|column_|row_)stack|atleast_[123]d|block_diag|diag_embed)_?"
)
"""Those that allocate, arrange or convert."""
SUMMING = re.compile(r"aten::(?:sum|mean)")
OF_NUMBERS = ", of numbers"
"""Added to the name of one that took no tensor."""
LEFT = "torch.Tensor."
"""Before the name of a method that hands the elements of a tensor to something else than torch."""
ITEM = f"{LEFT}item"
PAST = "writing past torch and kernels"
RACED = "programs that read what others of their launch wrote"
BACK = "Python called by an extension"
LOOKED_UP = "looking for a function by ctypes: "
STOPPED = "stopping torch's trace"


def plain(name: Any) -> str:
    """The name without that of an overload."""
    return str(name).partition(".")[0]


def is_torchs(name: str) -> bool:
    """Whether torch brings the operator of this name."""
    head, separator, _ = name.partition("::")
    return bool(separator) and head in TORCHS
