"""The backend `cuda` in the zygote and in the runner."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from kernelrl_build.toolchain import programs
from kernelrl_judge.backend import CandidateRunner

__all__ = ["CudaRunner"]

_COMPILE_ERRORS = ("CompileException", "JitifyException", "NVRTCError")
"""Exceptions of cupy, by name, because cupy may not be installed."""


class CudaRunner(CandidateRunner):
    """Loads CUDA candidates; see `BackendRunner`."""

    disables_kernels = True

    def environment(self, mode: str, options: Mapping[str, Any]) -> Mapping[str, str]:
        # CUDA must not be initialised in the zygote: its forks could not use it. This check uses NVML instead.
        found = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
        # Torch and cupy tell NVRTC where the toolkit's headers are. A runner's environment has no other path to them.
        nvcc = next((path for program, path, _ in programs("cuda") if program == "nvcc"), None)
        if nvcc is not None:
            found["CUDA_HOME"] = os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))
        return found

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
        import torch

        has_gpu = torch.cuda.is_initialized() or torch.cuda.is_available()
        if not has_gpu and hasattr(torch.cuda, "_compile_kernel"):
            # It queries the GPU's architecture. Nothing is executed here, so a missing GPU is no error of the kernel.
            torch.cuda._compile_kernel = lambda *_, **__: None
        return super().load(path, options)

    def disable_kernels(self) -> None:
        """See `BackendRunner`."""
        # Few candidates need it.
        from kernelrl_judge.runner.disabling import disable_runtime_compilers, disable_triton

        disable_triton()
        disable_runtime_compilers()

    def classify(self, error: BaseException) -> str:
        # Kernels may also be compiled at run time, by NVRTC through torch or cupy.
        name, text = type(error).__name__, str(error)
        if name in _COMPILE_ERRORS or "NVRTC_ERROR_" in text or text.startswith("Kernel compilation failed"):
            return "compile"
        return "error"
