"""Options of the backend `cute`."""

from __future__ import annotations

from typing import Literal

import attrs

from kernelrl_core.api import Requires
from kernelrl_core.api.backends import BackendConfig

__all__ = ["CuteConfig"]


@attrs.frozen
class CuteConfig(BackendConfig):
    """Where CuTe DSL kernels run."""

    mode: Literal["auto", "gpu", "compile"] = "auto"
    """`gpu`; `compile`: compile and say what was compiled, run nothing; `auto`: a GPU where there is one."""

    def requires(self) -> Requires:
        if self.mode != "gpu":
            return Requires()
        return Requires(gpu="nvidia", fix="use a machine with an NVIDIA GPU, or write backend.mode=compile")
