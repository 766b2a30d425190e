"""The limits that decide a verdict or a measurement, in one place; `docs/evaluator.md` and its pages state them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import attrs

__all__ = ["LIMITS", "Limits"]


@attrs.frozen
class Limits:
    """Each is named after its decision. Declared tolerances are settings of a recipe (`evaluation.atol`, `rtol`)."""

    # `incorrect`
    own_errors: float = 8.0
    """A kernel may be off by so many times the error of the reference: a loop adds one by one, cuBLAS in parts."""
    more_errors_in_stress: float = 8.0
    """So many times more on harder inputs: the order of sums matters more."""
    most_loosened: float = 16.0
    """The reference's own error allows at most so many times the declared tolerance."""
    smallest_scale: float = 1e-6
    """Root mean square of an output, at least, that scales the absolute tolerance."""
    conditioned_share: float = 0.5
    """Share of the tolerance that the reference needs at most under a family of harder inputs that applies."""
    explained_by_ten_bits: float = 0.5
    """Share of an error that is left where factors of ten bits (TF32) explain it."""
    # `replay`
    replay_strictness: float = 0.1
    """Share of the tolerance within which a wrong output equals an earlier one."""
    replay_wrong_share: float = 0.05
    """Least share of wrong elements in such an output."""
    # `library_operators`
    library_time_share: float = 0.05
    """Of the device time: library kernels with a larger share compute."""
    operator_elements_share: float = 0.25
    """Of the elements of the largest tensor: operators of torch on as many compute."""
    operator_elements: int = 64
    """Elements that anybody may read as numbers, for sizes and conditions, and work on."""
    # `low_precision`
    error_ratio: Mapping[str, float] = MappingProxyType({"fp32": 2.0**7, "tf32": 2.0**13, "bf16": 2.0**17})
    """By precision, above measured products, sums and pointwise functions: up to 2^1 for fp32 (2^5 for convolutions by
    Winograd's method), 2^10 to 2^13 for tf32, 2^13 to 2^16 for bf16."""
    # A time counts
    clock_change: float = 0.03
    """Of the median SM clock: rounds beyond it are dropped."""
    clocks_disagree: float = 0.05
    """Of a window: what the judge's clock may show less or more than the device's."""
    messages_us: float = 150.0
    """What it may show more besides: two messages, and the launch of the graph."""
    copies_share: float = 0.25
    copies_us: float = 20.0
    """What the copies of outputs may take longer than those of the reference."""
    settled_share: float = 0.005
    """Of a median, within which it is known."""
    # Denied
    builds: int = 16
    """Different extensions of a candidate."""
    extension_mib: int = 64
    """Size of an extension: hundreds of times what a kernel has."""
    hidden_characters: int = 1 << 18
    """Of all texts of a candidate together that its source does not show, and that are kept and read."""


LIMITS = Limits()
