"""The backend `cpp` in the zygote and in the runner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelrl_judge.backend import CandidateRunner

__all__ = ["FLAGS", "CppRunner"]

FLAGS = ("-O3", "-march=native", "-fopenmp")


class CppRunner(CandidateRunner):
    """Loads C++ candidates; see `BackendRunner`."""

    disables_kernels = True

    def mode(self, options: Mapping[str, Any], has_gpu: bool) -> str:
        return "cpu"

    def environment(self, mode: str, options: Mapping[str, Any]) -> Mapping[str, str]:
        threads = str(options.get("threads", 1))
        return {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}

    def preload(self, mode: str) -> Sequence[str]:
        return ["torch.nn.functional", "torch.utils.cpp_extension"]

    def toolchain(self, options: Mapping[str, Any], mode: str) -> Mapping[str, Any]:
        return {"language": "cpp", "arch": [], "flags": list(options.get("flags", FLAGS)), "device_only": False}

    def disable_kernels(self) -> None:
        """See `BackendRunner`."""
        # Nothing to disable here: the kernels of this backend are functions of extensions.
