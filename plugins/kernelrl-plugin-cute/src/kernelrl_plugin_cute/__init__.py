"""Kernels in NVIDIA's CuTe DSL, on an NVIDIA GPU or compiled without one."""

from __future__ import annotations

from kernelrl_core.api import Component, Requires, hookimpl


@hookimpl
def kernelrl_backends() -> list[Component]:
    return [
        Component(
            "cute",
            target="kernelrl_plugin_cute.backend:CuteBackend",
            config="kernelrl_plugin_cute.config:CuteConfig",
            summary="kernels in NVIDIA's CuTe DSL, on an NVIDIA GPU or compiled without one",
            requires=Requires(modules=("cutlass",), fix="pip install nvidia-cutlass-dsl"),
        )
    ]
