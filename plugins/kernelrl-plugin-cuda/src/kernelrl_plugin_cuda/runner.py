"""The half of the backend that works in the zygote and in the runner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelrl_judge.candidates import import_candidate

__all__ = ["CudaRunner"]


class CudaRunner:
    """Loads CUDA candidates; see `kernelrl_judge.protocol.BackendRunner`."""

    def mode(self, options: Mapping[str, Any], has_gpu: bool) -> str:
        """`gpu` where there is one and nothing else is asked for, otherwise `compile`."""
        wanted = str(options.get("mode", "auto"))
        if wanted == "auto":
            return "gpu" if has_gpu else "compile"
        return wanted

    def environment(self, mode: str, options: Mapping[str, Any]) -> Mapping[str, str]:
        # Asking torch whether there is a GPU must not start CUDA in the zygote: its forks could not use it.
        return {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}

    def preload(self, mode: str) -> Sequence[str]:
        return ["torch.nn.functional", "torch.utils.cpp_extension"]

    def toolchain(self, options: Mapping[str, Any], mode: str) -> Mapping[str, Any]:
        arch = str(options.get("arch", "auto"))
        return {
            "language": "cuda",
            "arch": [] if arch == "auto" else [arch],
            "flags": list(options.get("flags", ())),
            "device_only": mode == "compile",
        }

    def load(self, path: str, options: Mapping[str, Any]) -> Any:
        """Import the file and return `ModelNew`.

        Raises:
            AttributeError: the module defines no `ModelNew`.
        """
        return import_candidate(path).ModelNew

    def classify(self, error: BaseException) -> str:
        # Kernels may also be compiled while the candidate runs, by NVRTC through torch or cupy.
        name = type(error).__name__
        text = str(error)
        if name in ("CompileException", "NVRTCError") or "NVRTC_ERROR_COMPILATION" in text:
            return "compile"
        if text.startswith("Kernel compilation failed"):
            return "compile"
        return "error"
