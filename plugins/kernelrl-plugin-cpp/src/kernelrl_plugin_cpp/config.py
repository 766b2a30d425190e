"""Options of the backend `cpp`."""

from __future__ import annotations

import attrs

from kernelrl_core.recipe.schema import PositiveInt

__all__ = ["CppConfig"]


@attrs.frozen
class CppConfig:
    """How C++ kernels are compiled and run."""

    threads: PositiveInt = 1
    """Threads of candidate and reference alike."""
    flags: tuple[str, ...] = ("-O3", "-march=native", "-fopenmp")
    """Flags added to every compilation."""
