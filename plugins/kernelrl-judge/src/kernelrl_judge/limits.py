"""The limits that decide an outcome, a finding or a measurement; `docs/evaluator.md` and its pages document them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import attrs

__all__ = ["LIMITS", "Limits"]


@attrs.frozen
class Limits:
    """Limits by decision. Declared tolerances are settings of a recipe (`evaluation.atol`, `rtol`)."""

    # `incorrect`
    errors: float = 8.0
    """Allowed error as a multiple of that of PyTorch: a loop adds one by one, cuBLAS in parts."""
    errors_in_stress: float = 64.0
    """The same on harder inputs, where the order of sums matters more."""
    loosest: float = 16.0
    """Largest multiple of the tolerance of the dtype that the error of PyTorch allows."""
    own_error_share: float = 1e-4
    """Share of the elements whose errors are larger than the error of PyTorch that counts."""
    smallest_scale: float = 1e-6
    """Smallest root mean square of an output that scales the absolute tolerance."""
    conditioned_share: float = 0.5
    """Largest share of the tolerance by which the reference may differ from double precision on harder inputs."""
    open_share: float = 0.01
    """Largest share of an output that may depend on the last bit of the inputs; beyond it the output is compared as it
    is."""
    explained_by_ten_bits: float = 0.5
    """Largest share of an error that remains where factors of ten bits (TF32) explain it."""
    # `replay`
    replay_strictness: float = 0.1
    """Share of the tolerance within which a wrong output equals an earlier one."""
    replay_wrong_share: float = 0.05
    """Smallest share of wrong elements in such an output."""
    # `library_operators`
    operator_bytes: int = 256
    """Number of bytes on which operators of torch never count, such as sizes and conditions."""
    heavy_operators_share: float = 1 / 64
    """Share of the bytes of the task's tensors above which matrix products, convolutions, sorts and scans count."""
    most_of_the_work: float = 0.5
    """Share of the bytes that the reference's operators move from which operators of a candidate are no helpers."""
    slow_reference_s: float = 1.0
    """A reference whose call takes longer is not called again to find out what its operators move."""
    # `low_precision`
    error_ratio: Mapping[str, float] = MappingProxyType({"fp32": 2.0**7, "tf32": 2.0**13, "bf16": 2.0**17})
    """By precision, above measured products, sums and pointwise functions: up to 2^1 for fp32 (2^5 for convolutions by
    Winograd's method), 2^10 to 2^13 for tf32, 2^13 to 2^16 for bf16."""
    # A time counts
    clock_change: float = 0.03
    """Largest change of the SM clock, as a share of its median; rounds beyond it are dropped."""
    clocks_disagree: float = 0.05
    """Largest difference between the judge's clock and the device's, as a share of a window."""
    messages_us: float = 150.0
    """Further time of the judge's clock for two messages and the launch of the graph."""
    copies_share: float = 0.25
    """Share by which copies of outputs may take longer than those of the reference; more is time of the candidate."""
    copies_us: float = 20.0
    """Further time of these copies."""
    settled_share: float = 0.005
    """Half-width of the interval of a median, as a share of it, within which the median is known."""
    # `timeout`
    patience: float = 4.0
    """Largest multiple of `evaluation.timeout_s` for a candidate that waits for processors, as for a compiler."""
    # Denied
    builds: int = 16
    """Number of different extensions that a candidate may build."""


LIMITS = Limits()
