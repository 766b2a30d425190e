"""CUDA kernels in inline extensions of torch."""

from __future__ import annotations

from kernelrl_core.api import Component, Requires, hookimpl


@hookimpl
def kernelrl_backends() -> list[Component]:
    return [
        Component(
            "cuda",
            target="kernelrl_plugin_cuda.backend:CudaBackend",
            config="kernelrl_plugin_cuda.config:CudaConfig",
            summary="CUDA kernels in inline extensions",
            requires=Requires(modules=("torch",), fix="pip install torch"),
        )
    ]
