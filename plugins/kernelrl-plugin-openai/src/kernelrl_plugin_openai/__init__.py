"""Policy that samples from an OpenAI-compatible endpoint."""

from __future__ import annotations

from kernelrl_core.api import Component, hookimpl


@hookimpl
def kernelrl_policies() -> list[Component]:
    return [
        Component(
            "openai",
            "kernelrl_plugin_openai.policy:make_policy",
            config="kernelrl_plugin_openai.config:OpenAIConfig",
            summary="A model behind an OpenAI-compatible endpoint: for evaluation, with vLLM also for training",
        )
    ]
