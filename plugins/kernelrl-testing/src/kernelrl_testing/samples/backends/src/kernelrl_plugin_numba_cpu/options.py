"""Options of the backend `numba_cpu`."""

import attrs

from kernelrl_core.api.backends import BackendConfig
from kernelrl_core.api.config import PositiveInt


@attrs.frozen
class NumbaCpuConfig(BackendConfig):
    """Options. `NumbaCpuRunner` gets them as a mapping."""

    threads: PositiveInt = PositiveInt(1)
    """Number of threads of a parallel loop."""
