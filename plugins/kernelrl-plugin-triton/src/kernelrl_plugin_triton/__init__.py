"""Triton kernels, on a GPU or in Triton's interpreter."""

from __future__ import annotations

from kernelrl_core.api import Component, Requires, hookimpl


@hookimpl
def kernelrl_backends() -> list[Component]:
    return [
        Component(
            "triton",
            target="kernelrl_plugin_triton.backend:TritonBackend",
            config="kernelrl_plugin_triton.config:TritonConfig",
            summary="Triton kernels, on a GPU or in Triton's interpreter",
            requires=Requires(modules=("triton",), fix="pip install triton"),
            default=True,
        )
    ]
