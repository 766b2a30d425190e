"""The half of the backend that works in the zygote and in the runner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelrl_core.api.backends import BackendRunner
from kernelrl_judge.candidates import import_candidate

__all__ = ["CppRunner"]

_FLAGS = ("-O3", "-march=native", "-fopenmp")


class CppRunner(BackendRunner):
    """Loads C++ candidates; see `BackendRunner`."""

    disables_kernels = True

    def mode(self, options: Mapping[str, Any], has_gpu: bool) -> str:
        """Always the processor."""
        return "cpu"

    def environment(self, mode: str, options: Mapping[str, Any]) -> Mapping[str, str]:
        threads = str(options.get("threads", 1))
        return {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}

    def preload(self, mode: str) -> Sequence[str]:
        return ["torch.nn.functional", "torch.utils.cpp_extension"]

    def toolchain(self, options: Mapping[str, Any], mode: str) -> Mapping[str, Any]:
        return {"language": "cpp", "arch": [], "flags": list(options.get("flags", _FLAGS)), "device_only": False}

    def load(self, path: str, options: Mapping[str, Any]) -> Any:
        """Import the file and return `ModelNew`.

        Raises:
            AttributeError: the module defines no `ModelNew`.
        """
        return import_candidate(path).ModelNew

    def disable_kernels(self) -> None:
        """See `BackendRunner`."""
        # Its kernels are functions of extensions.

    def classify(self, error: BaseException) -> str:
        return "error"
