"""Rounds of windows, wrong outputs in them, medians of run times and their intervals."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence

import attrs
import torch

from kernelrl_core.api.evaluators import Finding, Mismatch, RuntimeStatistics, TimingFacts

__all__ = [
    "BYTES_OF_TENSOR",
    "MAX_TENSORS",
    "NotTimed",
    "Timing",
    "WrongWindow",
    "interval_of_ratio",
    "make_rounds",
    "settled",
    "summarise",
]

MAX_TENSORS = 3000
"""Number of tensors that one message can describe."""
BYTES_OF_TENSOR = 128
"""Bytes of a message for which one tensor counts: other values may be longer."""
_MIN_ROUNDS = 8
_MAX_S = 15.0
"""Time of all rounds, also where medians are not known."""
_RESAMPLES = 1000
_SEED = 20_250_101


class WrongWindow(Exception):
    """An output of a timed call is wrong.

    Args:
        finding: evidence of a hack; None for a mistake.
        changed: names of the state that calls of the reference change.
    """

    def __init__(self, mismatch: Mismatch, finding: Finding | None = None, changed: Sequence[str] = ()) -> None:
        super().__init__(mismatch.kind)
        self.mismatch = mismatch
        self.finding = finding
        self.changed = changed


class NotTimed(Exception):
    """The times of a candidate cannot be trusted; the text is the reason."""


@attrs.frozen
class Timing:
    """Run times and speedup over the eager reference."""

    runtime: RuntimeStatistics
    baseline: RuntimeStatistics
    speedup: float
    speedup_ci: tuple[float, float]
    facts: TimingFacts

    @classmethod
    def of(cls, candidate_us: Sequence[float], baseline_us: Sequence[float], facts: TimingFacts) -> Timing:
        """Medians and speedup.

        Args:
            candidate_us: time of one call in each round, in microseconds.
            baseline_us: the same of the reference.
        """
        runtime, baseline = summarise(candidate_us), summarise(baseline_us)
        interval = interval_of_ratio(baseline_us, candidate_us)
        return cls(runtime, baseline, baseline.median_us / runtime.median_us, interval, facts)


def make_rounds(
    make: Callable[[], None],
    times: Callable[[], Iterable[Sequence[float]]],
    *,
    most: int,
    budget_s: float,
    share: float,
) -> None:
    """Make rounds until the medians are known, or the time is spent.

    Args:
        times: the times of each side until now.
        most: largest number of rounds.
        budget_s: time after which medians need not be known, in seconds.
        share: share of a median within which it counts as known.
    """
    started = time.perf_counter()
    for count in range(1, most + 1):
        make()
        spent_s = time.perf_counter() - started
        enough = count >= _MIN_ROUNDS and (spent_s > budget_s or all(settled(side, share) for side in times()))
        if enough or spent_s > _MAX_S:
            break


def summarise(samples_us: Sequence[float]) -> RuntimeStatistics:
    """Median, percentiles and the bootstrap 95 % interval of the median.

    Args:
        samples_us: [n] time of one call, in microseconds, n >= 1.
    """
    values = torch.tensor(samples_us, dtype=torch.float64)
    interval = _interval(values[_resamples(len(values))].median(dim=1).values)
    p10, median, p90 = torch.quantile(values, torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)).tolist()
    return RuntimeStatistics(median, p10, p90, interval, len(samples_us))


def interval_of_ratio(baseline_us: Sequence[float], candidate_us: Sequence[float]) -> tuple[float, float]:
    """Bootstrap 95 % interval of median(baseline) / median(candidate).

    The samples at one index were taken in the same round and are resampled together, so a drift of the clock that
    moves both does not widen the interval.
    """
    pairs = torch.tensor([list(baseline_us), list(candidate_us)], dtype=torch.float64)
    chosen = _resamples(pairs.shape[1])
    medians = pairs[:, chosen].median(dim=2).values
    return _interval(medians[0] / medians[1].clamp_min(1e-9))


def settled(samples_us: Sequence[float], share: float) -> bool:
    """Whether the half-width of the interval of the median is below a share of the median.

    By the normal approximation of the sign test: the interval is between the order statistics n/2 ± 0.98 sqrt(n).
    """
    count = len(samples_us)
    values = sorted(samples_us)
    spread = 0.98 * math.sqrt(count)
    low, high = math.floor(count / 2 - spread) - 1, math.ceil(count / 2 + spread)
    if low < 0 or high >= count:
        return False
    return (values[high] - values[low]) / 2 < share * values[count // 2]


def _resamples(count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(_SEED)
    return torch.randint(count, (_RESAMPLES, count), generator=generator)


def _interval(values: torch.Tensor) -> tuple[float, float]:
    low, high = torch.quantile(values, torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return low, high
