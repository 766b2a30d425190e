"""Task source `elementwise` for kernelrl."""

from kernelrl_core.api import Component, hookimpl


@hookimpl
def kernelrl_tasks() -> list[Component]:
    return [
        Component(
            "elementwise",
            target="kernelrl_plugin_elementwise.tasks:Elementwise",
            config="kernelrl_plugin_elementwise.options:ElementwiseConfig",
            summary="Three functions of PyTorch, element by element",
        )
    ]
