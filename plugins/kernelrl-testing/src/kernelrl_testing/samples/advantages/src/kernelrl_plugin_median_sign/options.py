"""Options of the advantage `median_sign`."""

import attrs

from kernelrl_core.api.advantages import AdvantageConfig
from kernelrl_core.api.config import PositiveFloat


@attrs.frozen
class MedianSignConfig(AdvantageConfig):
    """Options."""

    scale: PositiveFloat = PositiveFloat(1.0)
    """Advantage of a return above the median."""
