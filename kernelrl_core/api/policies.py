"""Write a policy: `Policy` samples, `TrainablePolicy` also learns."""

from __future__ import annotations

from kernelrl_core.interfaces.device_lease import DeviceLease
from kernelrl_core.interfaces.policies import Policy, PolicyCapabilities, PolicyConfig, PolicyContext, TrainablePolicy
from kernelrl_core.sources.thinking import (
    continuation_after,
    is_thinking_token,
    open_think_tag,
    prompt_opening,
    split_prefill,
)
from kernelrl_core.sources.tokenizers import require_lossless_tokenizer
from kernelrl_core.types.replies import UNKNOWN_TOKEN, Message, Prompt, Reply, estimated_prompt
from kernelrl_core.types.tasks import WarmStartExample
from kernelrl_core.types.training import Loss, LossSample, OptimizerSettings, SamplingSettings, TrainingSample, Update
from kernelrl_devices.leases import gpu_device_name

__all__ = [
    "UNKNOWN_TOKEN",
    "DeviceLease",
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
    "estimated_prompt",
    "gpu_device_name",
    "is_thinking_token",
    "open_think_tag",
    "prompt_opening",
    "require_lossless_tokenizer",
    "split_prefill",
]
