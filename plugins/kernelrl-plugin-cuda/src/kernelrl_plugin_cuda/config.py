"""Options of the backend `cuda`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

import attrs

from kernelrl_build.survey import gpu_facts, requires_compilers, survey
from kernelrl_core.api import Requires
from kernelrl_core.api.backends import BackendConfig
from kernelrl_core.api.config import MachineFact

__all__ = ["CudaConfig"]

_ARCH = re.compile(r"1?\d\.\d[af]?")
_WITHOUT_POINT = re.compile(r"(?:sm_?|compute_?)?(1?\d)(\d)(?:\.0)?([af]?)")


@attrs.frozen
class CudaConfig(BackendConfig):
    """Execution and compilation of CUDA kernels."""

    arch: str | float = "auto"
    """Compute capability to compile for, such as `9.0` or `9.0a`; `auto`: that of the installed GPU."""
    mode: Literal["auto", "gpu", "compile"] = "auto"
    """`gpu`; `compile`: build and report, execute nothing; `auto`: `gpu` if there is one, otherwise `compile`."""
    flags: tuple[str, ...] = ()
    """Flags added to every compilation of device code, such as `-O3` or `--use_fast_math`."""

    def problems(self) -> Iterable[str]:
        if self.arch != "auto" and not _ARCH.fullmatch(str(self.arch)):
            meant = _WITHOUT_POINT.fullmatch(str(self.arch))
            hint = f"did you mean {meant[1]}.{meant[2]}{meant[3]}?" if meant else "write auto or, say, 9.0"
            yield f"arch: {self.arch!r} is not a compute capability; {hint}"

    def requires(self) -> Requires:
        compilers = requires_compilers("cuda")
        if self.mode != "gpu":
            return compilers
        fix = "use a machine with an NVIDIA GPU, or set backend.mode=compile to build without executing"
        fixes = [text for text in (compilers.fix, fix) if text]
        return attrs.evolve(compilers, gpu="nvidia", fix="; ".join(fixes))

    def found_here(self) -> Iterable[MachineFact]:
        return [*survey("cuda"), *gpu_facts()]
