"""Options of the evaluator `cluster`."""

import sys

import attrs

from kernelrl_core.api.config import PositiveInt
from kernelrl_core.api.evaluators import EvaluationSettings, EvaluatorConfig


@attrs.frozen
class ClusterConfig(EvaluatorConfig):
    """Options."""

    command: tuple[str, ...] = (sys.executable, "-m", "kernelrl_plugin_cluster.worker")
    """Program that reads an order as JSON and writes the result as JSON. To use another machine, begin with
    `ssh` and its name."""
    capacity: PositiveInt = PositiveInt(2)
    """Maximum number of concurrent requests."""
    timing: bool = False
    """True if the program can time kernels."""

    def settings_here(self, settings: EvaluationSettings) -> None:
        """The machine of the program needs the backend, and this one need not have it."""
