"""The backend `triton` in the zygote and in the runner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelrl_judge.backend import CandidateRunner

__all__ = ["TritonRunner"]

_PASSES_FAILED = "PassManager::run failed"


class TritonRunner(CandidateRunner):
    """Loads Triton candidates; see `BackendRunner`."""

    disables_kernels = True
    mode_without_gpu = "interpreter"

    def environment(self, mode: str, options: Mapping[str, Any]) -> Mapping[str, str]:
        if mode == "interpreter":
            return {"TRITON_INTERPRET": "1"}
        # CUDA must not be initialised in the zygote: its forks could not use it. This check uses NVML instead.
        return {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}

    def preload(self, mode: str) -> Sequence[str]:
        own = ["interpreted", "warm"] if mode == "interpreter" else ["warm_driver"]
        interpreter = ["triton.runtime.interpreter"] if mode == "interpreter" else []
        modules = ["triton", "triton.language", "torch.nn.functional", *interpreter]
        return [*modules, *(f"kernelrl_plugin_triton.{name}" for name in own)]

    def load(self, path: str, options: Mapping[str, Any]) -> Any:
        # The judge imports this module, too, and must not import the runner's code.
        from kernelrl_judge.runner.denied_tools import deny_tools

        deny_tools("write the kernels in Triton")
        return super().load(path, options)

    def disable_kernels(self) -> None:
        """See `BackendRunner`."""
        # Few candidates need it.
        from kernelrl_judge.runner.disabling import disable_runtime_compilers, disable_triton

        disable_triton()
        disable_runtime_compilers()

    def classify(self, error: BaseException) -> str:
        import triton
        from triton.runtime.errors import PTXASError

        # Failing compiler passes raise an ordinary exception.
        if isinstance(error, triton.compiler.errors.CompilationError | PTXASError) or _PASSES_FAILED in str(error):
            return "compile"
        return "error"
