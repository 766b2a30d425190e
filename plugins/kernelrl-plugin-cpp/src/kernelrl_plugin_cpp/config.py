"""Options of the backend `cpp`."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from kernelrl_build.survey import requires_compilers, survey
from kernelrl_core.api import Requires
from kernelrl_core.api.backends import BackendConfig
from kernelrl_core.api.config import MachineFact, PositiveInt
from kernelrl_plugin_cpp.runner import FLAGS

__all__ = ["CppConfig"]


@attrs.frozen
class CppConfig(BackendConfig):
    """Execution and compilation of C++ kernels."""

    threads: PositiveInt = 1
    """Number of threads, for candidate and reference alike."""
    flags: tuple[str, ...] = FLAGS
    """Compiler flags of every compilation."""

    def requires(self) -> Requires:
        return requires_compilers("cpp")

    def found_here(self) -> Iterable[MachineFact]:
        return survey("cpp")
