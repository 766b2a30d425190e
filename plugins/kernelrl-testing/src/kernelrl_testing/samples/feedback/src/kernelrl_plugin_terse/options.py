"""Options of the feedback formatter `terse`."""

import attrs

from kernelrl_core.api.config import PositiveInt
from kernelrl_core.api.feedback import FeedbackConfig


@attrs.frozen
class TerseConfig(FeedbackConfig):
    """Options."""

    max_characters: PositiveInt = PositiveInt(500)
    """Length at which the text is cut off."""
