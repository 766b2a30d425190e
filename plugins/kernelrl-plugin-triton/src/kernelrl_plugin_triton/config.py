"""Options of the backend `triton`."""

from __future__ import annotations

from typing import Literal

import attrs

from kernelrl_core.component import Requires

__all__ = ["TritonConfig"]


@attrs.frozen
class TritonConfig:
    """Where Triton kernels run."""

    mode: Literal["auto", "interpreter", "gpu"] = "auto"
    """`gpu`; `interpreter`, on the CPU, where run time means nothing; `auto`: a GPU where there is one."""

    def requires(self) -> Requires:
        if self.mode != "gpu":
            return Requires()
        return Requires(gpu="any", fix="use a machine with a GPU, or write backend.mode=interpreter")
