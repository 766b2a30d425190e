"""Options of logger `tensorboard`."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from kernelrl_core.api.loggers import LoggerConfig

__all__ = ["TensorboardConfig"]


@attrs.frozen
class TensorboardConfig(LoggerConfig):
    """Options of logger `tensorboard`."""

    histograms_every: int = 5
    """Steps between two histograms of rewards, speedups and advantages; 0: no histograms."""

    def problems(self) -> Iterable[str]:
        if self.histograms_every < 0:
            yield "histograms_every must be 0 or more"
