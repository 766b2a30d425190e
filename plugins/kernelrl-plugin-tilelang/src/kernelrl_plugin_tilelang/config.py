"""Options of the backend `tilelang`."""

from __future__ import annotations

from typing import Literal

import attrs

from kernelrl_core.api import Requires
from kernelrl_core.api.backends import BackendConfig

__all__ = ["TileLangConfig"]


@attrs.frozen
class TileLangConfig(BackendConfig):
    """Execution of TileLang kernels."""

    mode: Literal["auto", "gpu", "compile"] = "auto"
    """`gpu`; `compile`: compile and report, execute nothing; `auto`: `gpu` if there is one, otherwise `compile`."""

    def requires(self) -> Requires:
        if self.mode != "gpu":
            return Requires()
        return Requires(gpu="nvidia", fix="use a machine with an NVIDIA GPU, or set backend.mode=compile")
