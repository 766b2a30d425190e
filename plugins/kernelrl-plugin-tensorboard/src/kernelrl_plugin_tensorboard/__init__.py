"""Logger and command for TensorBoard."""

from __future__ import annotations

from kernelrl_core.api import Component, Requires, hookimpl

_TENSORBOARD = Requires(modules=("tensorboard",), fix="pip install kernelrl-plugin-tensorboard")


@hookimpl
def kernelrl_loggers() -> list[Component]:
    return [
        Component(
            "tensorboard",
            "kernelrl_plugin_tensorboard.logger:TensorboardLogger",
            config="kernelrl_plugin_tensorboard.config:TensorboardConfig",
            summary="Event files for TensorBoard, in the run directory",
            requires=_TENSORBOARD,
        )
    ]


@hookimpl
def kernelrl_commands() -> list[Component]:
    return [
        Component(
            "tensorboard",
            "kernelrl_plugin_tensorboard.command:command",
            summary="Start TensorBoard on one run or all runs.",
        )
    ]
