"""Check the alignment hints of kernels (`tl.multiple_of`, `tl.max_contiguous`, `tl.max_constancy`).

A device uses them to load and store up to 16 bytes per instruction. The interpreter ignores them. Here a false hint
raises an error if a device could be affected by it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["check"]

_MOST_ALIGNED = 16
"""Maximum number of elements per memory instruction."""
_AT_ONCE = 4
"""Float32 elements per memory instruction."""
_NAMES = {"tt.divisibility": "multiple_of", "tt.contiguity": "max_contiguous", "tt.constancy": "max_constancy"}


def check(attribute: str, promised: Any, values: Any) -> None:
    """Check a hint against the actual values.

    Args:
        attribute: Triton's name of the hint.
        promised: one integer per dimension.

    Raises:
        ValueError: the hint is false.
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
                f"tl.{_NAMES[attribute]}(..., {count}) is false for these values; a GPU would access wrong addresses"
            )


def _is_multiple(rows: Any, count: int, _: str) -> bool:
    """Whether the first value of each run is a multiple of `count`."""
    begins = np.ones(rows.shape, dtype=bool)
    begins[..., 1:] = rows[..., 1:] != rows[..., :-1] + rows.dtype.type(1)
    return not (rows[begins] % rows.dtype.type(min(count & -count, _MOST_ALIGNED))).any()


def _has_runs(rows: Any, count: int, attribute: str) -> bool:
    """Whether groups of `count` elements are consecutive, or equal.

    A run may begin at any zero: `rows % n` is common, and `n` need not be a multiple of `count`.
    """
    count = min(count, _AT_ONCE)
    if rows.shape[-1] % count:
        return True
    groups = rows.reshape(*rows.shape[:-1], -1, count)
    before, after = groups[..., :-1], groups[..., 1:]
    if attribute == "tt.constancy":
        return bool((before == after).all())
    return bool(((after == before + rows.dtype.type(1)) | (after == 0)).all())
