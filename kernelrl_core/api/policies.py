"""Write a policy: `Policy` samples, `TrainablePolicy` also learns."""

from __future__ import annotations

from kernelrl_core.interfaces.policies import Policy, PolicyCapabilities, PolicyConfig, PolicyContext, TrainablePolicy
from kernelrl_core.sources.thinking import continuation_after, open_think_tag, prompt_opening, split_prefill
from kernelrl_core.types.replies import Message, Prompt, Reply
from kernelrl_core.types.tasks import WarmStartExample
from kernelrl_core.types.training import Loss, LossSample, OptimizerSettings, SamplingSettings, TrainingSample, Update

__all__ = [
    "Loss",
    "LossSample",
    "Message",
    "OptimizerSettings",
    "Policy",
    "PolicyCapabilities",
    "PolicyConfig",
    "PolicyContext",
    "Prompt",
    "Reply",
    "SamplingSettings",
    "TrainablePolicy",
    "TrainingSample",
    "Update",
    "WarmStartExample",
    "continuation_after",
    "open_think_tag",
    "prompt_opening",
    "split_prefill",
]
