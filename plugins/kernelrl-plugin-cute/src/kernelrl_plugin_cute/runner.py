"""The backend `cute` in the zygote and in the runner."""

from __future__ import annotations

import gc
import os
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from kernelrl_judge.backend import CandidateRunner

__all__ = ["CuteRunner"]

_COMPILE_ARCH = "sm_90a"


class CuteRunner(CandidateRunner):
    """Loads candidates in the CuTe DSL; see `BackendRunner`."""

    checks_compilation = True

    def environment(self, mode: str, options: Mapping[str, Any]) -> Mapping[str, str]:
        found = {
            # CUDA must not be initialised in the zygote: its forks could not use it. This check uses NVML instead.
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
            # A candidate must not execute what another one left in a cache.
            "CUTE_DSL_DISABLE_FILE_CACHING": "1",
        }
        if mode == "compile":
            found["CUTE_DSL_ARCH"] = _COMPILE_ARCH
        return found

    def preload(self, mode: str) -> Sequence[str]:
        return ["torch.nn.functional", "cutlass", "cutlass.cute", "cutlass.cute.runtime"]

    def compile_check(self, module: Any, options: Mapping[str, Any]) -> str:
        """Return a report on the kernels that the import of the candidate compiled, without a GPU.

        `cute.compile` generates machine code without a device and without nvcc, but only for given dtypes and ranks.
        Kernels that are compiled when `forward` is called are reported as not compiled.
        """
        from cutlass.base_dsl.jit_executor import JitCompiledFunction

        functions = [thing for thing in gc.get_objects() if isinstance(thing, JitCompiledFunction)]
        symbols = [symbol for function in functions for symbol in function.kernel_info or ()]
        kernels = [name for name, value in vars(module).items() if getattr(value, "_decorator_kind", "") == "kernel"]
        compiled = [name for name in kernels if any(f"_{name}_" in symbol for symbol in symbols)]
        missing = [name for name in kernels if name not in compiled]
        names = ", ".join(compiled) or "nothing"
        report = f"The module was imported; compiled to machine code for {_COMPILE_ARCH}: {names}"
        if missing:
            report += f"; not compiled, because importing the module does not: {', '.join(missing)}"
        return report

    def classify(self, error: BaseException) -> str:
        # Tracing raises errors of any class, including the candidate's own. The place of the raise distinguishes them.
        import cutlass
        from cutlass.base_dsl.common import DSLCudaRuntimeError

        if isinstance(error, DSLCudaRuntimeError):
            return "error"
        package = os.path.dirname(cutlass.__file__)
        raised_in = {os.path.relpath(frame.filename, package) for frame in traceback.extract_tb(error.__traceback__)}
        if any(name.endswith("jit_executor.py") for name in raised_in):
            return "error"
        return "compile" if any(name.startswith(("base_dsl", "cutlass_dsl", "cute")) for name in raised_in) else "error"
