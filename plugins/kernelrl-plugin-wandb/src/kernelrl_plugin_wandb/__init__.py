"""Logger for Weights & Biases."""

from __future__ import annotations

from kernelrl_core.api import Component, Requires, hookimpl


@hookimpl
def kernelrl_loggers() -> list[Component]:
    return [
        Component(
            "wandb",
            "kernelrl_plugin_wandb.logger:WandbLogger",
            config="kernelrl_plugin_wandb.config:WandbConfig",
            summary="Metrics on Weights & Biases",
            requires=Requires(modules=("wandb", "google.protobuf"), fix="pip install kernelrl-plugin-wandb"),
        )
    ]
