"""HIP kernels for AMD GPUs in inline extensions of torch."""

from __future__ import annotations

from kernelrl_core.api import Component, Requires, hookimpl


@hookimpl
def kernelrl_backends() -> list[Component]:
    return [
        Component(
            "hip",
            target="kernelrl_plugin_hip.backend:HipBackend",
            config="kernelrl_plugin_hip.config:HipConfig",
            summary="HIP kernels for AMD GPUs in inline extensions",
            requires=Requires(modules=("torch",), fix="pip install torch"),
        )
    ]
