"""C++ kernels for the CPU, in inline extensions of torch."""

from __future__ import annotations

from kernelrl_core.api import Component, Requires, hookimpl


@hookimpl
def kernelrl_backends() -> list[Component]:
    return [
        Component(
            "cpp",
            target="kernelrl_plugin_cpp.backend:CppBackend",
            config="kernelrl_plugin_cpp.config:CppConfig",
            summary="C++ kernels for the CPU, with OpenMP and SIMD instructions",
            requires=Requires(modules=("torch",), fix="pip install torch"),
        )
    ]
