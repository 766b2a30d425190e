"""The advantage `median_sign`."""

from statistics import median

from kernelrl_core.api.advantages import AdvantageFunction, Returns
from kernelrl_plugin_median_sign.options import MedianSignConfig


def make(config: MedianSignConfig) -> AdvantageFunction:
    """The function that the core calls for each group."""

    def advantages(returns: Returns) -> list[list[float]]:
        middle = median(value for episode in returns for value in episode)
        return [[config.scale * ((value > middle) - (value < middle)) for value in episode] for episode in returns]

    return advantages
