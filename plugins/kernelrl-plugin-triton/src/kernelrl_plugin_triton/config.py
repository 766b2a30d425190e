"""Options of the backend `triton`."""

from __future__ import annotations

from typing import Literal

import attrs

from kernelrl_core.api import Requires
from kernelrl_core.api.backends import BackendConfig, EvaluationSettings

__all__ = ["TritonConfig"]


@attrs.frozen
class TritonConfig(BackendConfig):
    """Device on which Triton kernels are executed."""

    mode: Literal["auto", "interpreter", "gpu"] = "auto"
    """`gpu`; `interpreter`: on the CPU, where times are not meaningful; `auto`: `gpu` if there is one."""

    def requires_for(self, settings: EvaluationSettings) -> Requires:
        """A GPU if the evaluation measures time: times in the interpreter are not meaningful."""
        fix = "run on a machine with a GPU, or set evaluation.timing=false and remove rewards that need run times"
        return Requires(gpu="any", fix=fix) if settings.timing else Requires()

    def requires(self) -> Requires:
        if self.mode != "gpu":
            return Requires()
        return Requires(gpu="any", fix="use a machine with a GPU, or write backend.mode=interpreter")
