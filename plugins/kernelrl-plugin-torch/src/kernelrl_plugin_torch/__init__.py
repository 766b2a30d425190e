"""Policy trained in this process with PyTorch."""

from __future__ import annotations

from kernelrl_core.api import Component, hookimpl


@hookimpl
def kernelrl_policies() -> list[Component]:
    return [
        Component(
            "torch",
            "kernelrl_plugin_torch.policy:TorchPolicy",
            config="kernelrl_plugin_torch.config:TorchConfig",
            summary="A small transformer from scratch or a Hugging Face language model, trained in this process",
        )
    ]
