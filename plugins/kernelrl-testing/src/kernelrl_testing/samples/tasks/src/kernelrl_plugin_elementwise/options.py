"""Options of the task source `elementwise`."""

import attrs

from kernelrl_core.api.config import PositiveInt
from kernelrl_core.api.tasks import TaskConfig


@attrs.frozen
class ElementwiseConfig(TaskConfig):
    """Options."""

    size: PositiveInt = PositiveInt(1024)
    """Number of elements of the input."""
