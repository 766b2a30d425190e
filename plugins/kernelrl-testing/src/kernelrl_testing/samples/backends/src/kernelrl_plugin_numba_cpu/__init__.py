"""Backend `numba_cpu` for kernelrl."""

from kernelrl_core.api import Component, Requires, hookimpl


@hookimpl
def kernelrl_backends() -> list[Component]:
    return [
        Component(
            "numba_cpu",
            target="kernelrl_plugin_numba_cpu.backend:NumbaCpu",
            config="kernelrl_plugin_numba_cpu.options:NumbaCpuConfig",
            summary="Loops that Numba compiles for the CPU",
            requires=Requires(modules=("numba",), fix="pip install numba"),
        )
    ]
