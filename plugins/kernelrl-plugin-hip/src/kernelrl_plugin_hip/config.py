"""Options of the backend `hip`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

import attrs

from kernelrl_build.survey import requires_compilers, survey
from kernelrl_core.api import Requires
from kernelrl_core.api.backends import BackendConfig
from kernelrl_core.api.config import MachineFact
from kernelrl_plugin_hip.archs import installed_archs

__all__ = ["HipConfig"]

_ARCH = re.compile(r"gfx[0-9a-f]{3,4}(?::(?:xnack|sramecc)[+-])*|gfx\d+(?:-\d+)*-generic")


@attrs.frozen
class HipConfig(BackendConfig):
    """Execution and compilation of HIP kernels."""

    arch: str | tuple[str, ...] = "auto"
    """Architecture to compile for, such as `gfx90a`, `gfx942` or `gfx950`, or a list of them; `auto`: that of the
    installed GPU, or `gfx90a` if there is none."""
    mode: Literal["auto", "gpu", "compile"] = "auto"
    """`gpu`; `compile`: build device code and report, execute nothing; `auto`: `gpu` if there is an AMD GPU, otherwise
    `compile`."""
    flags: tuple[str, ...] = ()
    """Flags added to every compilation of device code, such as `-O3` or `-ffast-math`."""

    def problems(self) -> Iterable[str]:
        if self.arch == "auto":
            return
        names = (self.arch,) if isinstance(self.arch, str) else self.arch
        if not names:
            yield "arch: the list is empty; write auto or, say, gfx90a"
        for name in names:
            if not _ARCH.fullmatch(name):
                meant = f"did you mean gfx{name}?" if _ARCH.fullmatch(f"gfx{name}") else "write auto or, say, gfx90a"
                yield f"arch: {name!r} is not an architecture of an AMD GPU; {meant}"

    def requires(self) -> Requires:
        compilers = requires_compilers("hip")
        if self.mode != "gpu":
            return compilers
        fix = "use a machine with an AMD GPU and ROCm, or set backend.mode=compile to build without executing"
        fixes = [text for text in (compilers.fix, fix) if text]
        return attrs.evolve(compilers, gpu="amd", fix="; ".join(fixes))

    def found_here(self) -> Iterable[MachineFact]:
        archs = installed_archs()
        return [*survey("hip"), *([MachineFact("GPU", ", ".join(archs))] if archs else [])]
