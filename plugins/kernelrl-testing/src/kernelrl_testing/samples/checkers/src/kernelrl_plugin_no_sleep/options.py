"""Options of the checker `no_sleep`."""

import attrs

from kernelrl_core.api.checkers import CheckerConfig
from kernelrl_core.api.config import NonNegativeInt


@attrs.frozen
class NoSleepConfig(CheckerConfig):
    """Options."""

    max_calls: NonNegativeInt = NonNegativeInt(0)
    """Number of calls that are accepted."""
