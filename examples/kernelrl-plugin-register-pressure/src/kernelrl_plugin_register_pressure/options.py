"""Options of the reward component `register_pressure` and of the checker `register_limit`."""

from collections.abc import Iterable

import attrs

from kernelrl_core.api.checkers import CheckerConfig
from kernelrl_core.api.config import NonNegativeInt, PositiveInt
from kernelrl_core.api.rewards import RewardBounds, RewardConfig


@attrs.frozen
class RegisterPressureConfig(RewardConfig):
    """Limits between the scores 1 and 0."""

    free: NonNegativeInt = NonNegativeInt(64)
    """Registers per thread up to which the score is 1. With 64, an SM of an H100 holds 1024 threads."""
    most: PositiveInt = PositiveInt(255)
    """Registers per thread from which the score is 0."""
    spilled_bytes: PositiveInt = PositiveInt(64)
    """Spilled bytes per thread from which the score is 0."""

    def problems(self) -> Iterable[str]:
        if self.free >= self.most:
            yield f"free is {self.free}, and must be below most, which is {self.most}"

    def bounds(self) -> RewardBounds:
        # Only correct kernels get more than 0.
        return RewardBounds(low=0.0, high=1.0, gap=0.0)


@attrs.frozen
class RegisterLimitConfig(CheckerConfig):
    """Threshold of the finding."""

    spilled_bytes: NonNegativeInt = NonNegativeInt(16)
    """Spilled bytes per thread that are accepted."""
