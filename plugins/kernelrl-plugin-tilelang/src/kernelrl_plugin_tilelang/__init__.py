"""TileLang kernels, on an NVIDIA GPU or compiled without one."""

from __future__ import annotations

from kernelrl_core.api import Component, Requires, hookimpl


@hookimpl
def kernelrl_backends() -> list[Component]:
    return [
        Component(
            "tilelang",
            target="kernelrl_plugin_tilelang.backend:TileLangBackend",
            config="kernelrl_plugin_tilelang.config:TileLangConfig",
            summary="TileLang kernels, on an NVIDIA GPU or compiled without one",
            requires=Requires(modules=("tilelang",), fix="pip install tilelang"),
        )
    ]
