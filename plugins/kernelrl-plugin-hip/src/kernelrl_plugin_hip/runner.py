"""The backend `hip` in the zygote and in the runner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelrl_core.api.config import gpu_vendors
from kernelrl_judge.backend import CandidateRunner
from kernelrl_plugin_hip.archs import chosen_archs

__all__ = ["HipRunner"]


class HipRunner(CandidateRunner):
    """Loads HIP candidates; see `BackendRunner`."""

    disables_kernels = True

    def mode(self, options: Mapping[str, Any], has_gpu: bool) -> str:
        return super().mode(options, has_gpu and "amd" in gpu_vendors())

    def environment(self, mode: str, options: Mapping[str, Any]) -> Mapping[str, str]:
        # Read by torch at import, and by candidates that build in other ways than `load_inline`.
        return {"PYTORCH_ROCM_ARCH": ";".join(chosen_archs(options.get("arch", "auto")))}

    def preload(self, mode: str) -> Sequence[str]:
        return ["torch.nn.functional", "torch.utils.cpp_extension"]

    def toolchain(self, options: Mapping[str, Any], mode: str) -> Mapping[str, Any]:
        return {
            "language": "hip",
            "arch": list(chosen_archs(options.get("arch", "auto"))),
            "flags": list(options.get("flags", ())),
            "device_only": mode == "compile",
        }

    def disable_kernels(self) -> None:
        """See `BackendRunner`."""
        # Few candidates need it.
        from kernelrl_judge.runner.disabling import disable_runtime_compilers, disable_triton

        disable_triton()
        disable_runtime_compilers()

    def classify(self, error: BaseException) -> str:
        # Kernels may also be compiled at run time, by HIP's runtime compiler.
        return "compile" if "HIPRTC_ERROR_COMPILATION" in str(error) else "error"
