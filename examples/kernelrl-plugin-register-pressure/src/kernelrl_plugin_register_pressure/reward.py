"""The reward component `register_pressure`."""

from kernelrl_core.api.rewards import CompiledKernel, Reward, Turn
from kernelrl_plugin_register_pressure.options import RegisterPressureConfig


class RegisterPressure(Reward):
    """Of a correct candidate: the score of its worst kernel, so that no further kernel can raise it."""

    def __init__(self, config: RegisterPressureConfig) -> None:
        self._config = config

    def score(self, turn: Turn) -> float:
        if not turn.correct or turn.evaluation is None:
            return 0.0
        return min(map(self._of_kernel, turn.evaluation.kernels), default=0.0)

    def _of_kernel(self, kernel: CompiledKernel) -> float:
        free, most = self._config.free, self._config.most
        spilled = max(kernel.spill_stores_bytes, kernel.spill_loads_bytes)
        registers = (most - kernel.registers) / (most - free)
        return min(1.0, max(0.0, registers)) * max(0.0, 1.0 - spilled / self._config.spilled_bytes)
