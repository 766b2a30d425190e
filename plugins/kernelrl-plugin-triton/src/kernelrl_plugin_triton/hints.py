"""What kernels promise the compiler about numbers (`tl.multiple_of`, `tl.max_contiguous`, `tl.max_constancy`).

A device loads and stores up to 16 bytes at once where they allow it. The interpreter makes nothing of them: here one
that does not hold ends the kernel, as far as it could be noticed on a device.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["look_at"]

_MOST_ALIGNED = 16
"""Elements that a device moves at once are no more."""
_AT_ONCE = 4
"""Elements that it moves at once of single precision."""
_NAMES = {"tt.divisibility": "multiple_of", "tt.contiguity": "max_contiguous", "tt.constancy": "max_constancy"}


def look_at(attribute: str, promised: Any, values: Any) -> None:
    """A kernel promises something about values, as Triton's attribute of that name has it.

    Args:
        promised: a whole number for each dimension.

    Raises:
        ValueError: it does not hold.
    """
    values = np.atleast_1d(values)
    if attribute not in _NAMES or values.dtype.kind not in "iub" or len(promised) != values.ndim:
        return
    values = values.astype(np.uint8) if values.dtype.kind == "b" else values
    for axis, count in enumerate(promised):
        if not isinstance(count, int) or count < 2:
            continue
        rows = np.moveaxis(values, axis, -1)
        if not (_is_multiple if attribute == "tt.divisibility" else _has_runs)(rows, count, attribute):
            raise ValueError(
                f"tl.{_NAMES[attribute]}(..., {count}) does not hold here; a device would load and store where "
                "nobody meant to"
            )


def _is_multiple(rows: Any, count: int, _: str) -> bool:
    """Whether the first number of each run is a multiple."""
    begins = np.ones(rows.shape, dtype=bool)
    begins[..., 1:] = rows[..., 1:] != rows[..., :-1] + rows.dtype.type(1)
    return not (rows[begins] % rows.dtype.type(min(count & -count, _MOST_ALIGNED))).any()


def _has_runs(rows: Any, count: int, attribute: str) -> bool:
    """Whether groups of that many elements go on by one, or are equal.

    Where a number is zero a run may begin: `rows % n` is common, where `n` may be no multiple.
    """
    count = min(count, _AT_ONCE)
    if rows.shape[-1] % count:
        return True
    groups = rows.reshape(*rows.shape[:-1], -1, count)
    before, after = groups[..., :-1], groups[..., 1:]
    if attribute == "tt.constancy":
        return bool((before == after).all())
    return bool(((after == before + rows.dtype.type(1)) | (after == 0)).all())
