"""The backend `tilelang` in the zygote and in the runner."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kernelrl_judge.backend import CandidateRunner

__all__ = ["TileLangRunner"]

_COMPILE_ARCH = "sm_90a"
_COMPILER_PARTS = ("language", "engine", "transform", "contrib", "backend", "cuda", "tileop", "layout")


class TileLangRunner(CandidateRunner):
    """Loads TileLang candidates; see `BackendRunner`."""

    checks_compilation = True

    def environment(self, mode: str, options: Mapping[str, Any]) -> Mapping[str, str]:
        found = {
            # CUDA must not be initialised in the zygote: its forks could not use it. This check uses NVML instead.
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
            # A candidate must not execute what another one left in a cache.
            "TILELANG_DISABLE_CACHE": "1",
            "TILELANG_AUTO_TUNING_DISABLE_CACHE": "1",
            "TILELANG_PRINT_ON_COMPILATION": "0",
        }
        toolkit = _toolkit()
        if toolkit:
            # nvcc is not on a runner's PATH.
            found["CUDA_HOME"] = toolkit
        if mode == "compile":
            found["TILELANG_DEFAULT_TARGET"] = json.dumps({"kind": "cuda", "arch": _COMPILE_ARCH})
        return found

    def preload(self, mode: str) -> Sequence[str]:
        return ["torch.nn.functional", "tilelang", "tilelang.language"]

    def compile_check(self, module: Any, options: Mapping[str, Any]) -> str:
        """Compile the kernels of an imported candidate without a GPU; return a report.

        Kernels at module level are compiled, and builders decorated with `tilelang.jit` whose parameters all have
        defaults: to machine code with nvcc, otherwise to CUDA source.

        Raises:
            Exception: any error of TileLang for a kernel that does not compile.
        """
        machine_code = bool(_toolkit())
        compiled: list[str] = []
        missing: list[str] = []
        for name, kernel in _kernels(module):
            if kernel is None:
                missing.append(name)
            else:
                _lower(kernel, machine_code)
                compiled.append(name)
        how = (
            f"compiled to machine code for {_COMPILE_ARCH}" if machine_code else "lowered to CUDA source, without nvcc"
        )
        report = f"The module was imported; {how}: {', '.join(compiled) or 'nothing'}"
        if missing:
            report += f"; not compiled, because sizes or tensors are needed: {', '.join(missing)}"
        return report

    def classify(self, error: BaseException) -> str:
        # Errors of TileLang's compiler have no class of their own; the place of the raise distinguishes them.
        import tilelang

        parts = tuple(os.path.join(os.path.dirname(tilelang.__file__), part, "") for part in _COMPILER_PARTS)
        raised_in = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        return "compile" if any(name.startswith(parts) for name in raised_in) else "error"


def _toolkit() -> str:
    """Directory of the CUDA toolkit; empty if there is no nvcc."""
    for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")):
        if home and os.path.exists(os.path.join(home, "bin", "nvcc")):
            return home
    nvcc = shutil.which("nvcc")
    return os.path.dirname(os.path.dirname(nvcc)) if nvcc else ""


def _kernels(module: Any) -> Iterator[tuple[str, Any]]:
    """Kernels at module level by name; None for a kernel that depends on the arguments of a call."""
    from tilelang.jit import JITImpl, JITKernel
    from tvm.tirx import PrimFunc

    for name, value in vars(module).items():
        if isinstance(value, PrimFunc):
            yield name, value
        elif isinstance(value, JITKernel):
            yield name, value.prim_func
        elif isinstance(value, JITImpl):
            given = all(parameter.default is not inspect.Parameter.empty for parameter in _parameters(value))
            yield name, value.get_tir() if given else None


def _parameters(builder: Any) -> Sequence[inspect.Parameter]:
    return list(builder.signature.parameters.values())


def _lower(kernel: Any, machine_code: bool) -> None:
    from tilelang.engine.lower import lower
    from tvm.target import Target

    target = Target({"kind": "cuda", "arch": _COMPILE_ARCH})
    with target:
        lower(kernel, target=target, enable_device_compile=machine_code)
