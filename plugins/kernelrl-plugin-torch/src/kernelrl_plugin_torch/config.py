"""Options of the policy `torch`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import attrs

from kernelrl_core.api import Requires
from kernelrl_core.api.config import NonNegativeFloat, PositiveFloat, PositiveInt
from kernelrl_core.api.policies import PolicyCapabilities, PolicyConfig

__all__ = ["LOSSES", "RATIOS", "TorchConfig", "WarmStart"]

LOSSES = frozenset({"importance_sampling", "ppo", "cispo"})
"""Policy-gradient losses."""
RATIOS = frozenset({"token", "sequence"})
"""What losses weight and clip by."""


@attrs.frozen
class WarmStart:
    """Supervised learning on the bundled answers, before reinforcement learning begins."""

    steps: PositiveInt = PositiveInt(200)
    """Optimizer steps."""
    prompts_per_step: PositiveInt = PositiveInt(6)
    """Prompts in a batch, drawn with their weight."""
    replies_per_prompt: PositiveInt = PositiveInt(4)
    """Replies drawn with their weight for each of these prompts; they share its computation."""
    learning_rate: PositiveFloat = PositiveFloat(2e-3)
    """Highest learning rate; it rises over the first tenth of the steps and falls to a twentieth along a cosine."""
    weight_decay: NonNegativeFloat = NonNegativeFloat(0.01)
    """Weight decay of AdamW."""
    max_grad_norm: PositiveFloat = PositiveFloat(1.0)
    """Clip the gradient's global norm."""


@attrs.frozen
class TorchConfig(PolicyConfig):
    """Which model, and how it is run. Without `model` a small transformer is built from scratch."""

    model: str | None = None
    """Directory or hub id of a Hugging Face causal language model; null builds a model from scratch."""
    width: PositiveInt = PositiveInt(128)
    """From scratch: size of the residual stream."""
    layers: PositiveInt = PositiveInt(4)
    """From scratch: number of blocks."""
    heads: PositiveInt = PositiveInt(4)
    """From scratch: query heads of a block; all of them share one key and value head."""
    context_tokens: PositiveInt | None = None
    """Longest prompt and reply together. Null: 1024 from scratch, the model's own limit otherwise."""
    vocabulary: PositiveInt = PositiveInt(2048)
    """From scratch: most tokens of the tokenizer, which is trained on the bundled answers and their prompts."""
    token_min_tasks: PositiveInt = PositiveInt(3)
    """From scratch: a piece of text becomes a token only when it occurs in the lines of at least so many tasks."""
    warm_start: Literal["auto"] | WarmStart | None = "auto"
    """Supervised warm start. `auto`: with its defaults from scratch, none for a given `model`; null: none."""
    lora_rank: PositiveInt | None = None
    """With `model`: train adapters of this rank; null trains all weights."""
    lora_alpha: PositiveFloat | None = None
    """Scale of the adapters; null takes twice the rank."""
    lora_targets: tuple[str, ...] = ()
    """Names of the adapted modules; empty adapts every linear layer."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """With `model`: type of the weights."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where the model runs. On a GPU it works only while no kernel is being timed there."""
    threads: PositiveInt = PositiveInt(1)
    """Threads of PyTorch. More than one is many times slower on a machine that is busy otherwise."""
    sample_rows: PositiveInt | None = None
    """Rows of a sampling batch, filled up with idle ones. Null: 64 from scratch, 16 with `model`."""
    train_tokens: PositiveInt = PositiveInt(8192)
    """Most tokens of prompts and replies in one forward and backward pass."""

    @property
    def warm_start_settings(self) -> WarmStart | None:
        """The warm start after resolving `auto`."""
        if self.warm_start == "auto":
            return WarmStart() if self.model is None else None
        return self.warm_start

    def requires(self) -> Requires:
        gpu: Literal["", "any"] = "any" if self.device == "cuda" else ""
        if self.model is None:
            fix = "use a machine with a GPU, or set policy.device=cpu" if gpu else ""
            return Requires(modules=("torch", "tokenizers"), gpu=gpu, fix=fix)
        modules = ("torch", "transformers", "peft") if self.lora_rank else ("torch", "transformers")
        return Requires(modules=modules, gpu=gpu, fix="pip install 'kernelrl-plugin-torch[hf]'" if not gpu else "")

    def capabilities(self) -> PolicyCapabilities:
        return PolicyCapabilities(
            losses=LOSSES,
            ratios=RATIOS,
            warm_start=self.warm_start_settings is not None,
            # On a GPU gradients are summed in an order that changes from run to run.
            deterministic=self.device == "cpu",
            streams=True,
            logprobs=True,
            reference=True,
            exports=self.model is None or self.lora_rank is not None,
        )

    def problems(self) -> Iterable[str]:
        if self.model is None:
            if self.width % (2 * self.heads):
                yield f"width ({self.width}) must be a multiple of twice heads ({self.heads})"
            if self.vocabulary < 256:
                yield f"vocabulary ({self.vocabulary}) must be at least 256, one token for each byte"
            for name, value in (("lora_rank", self.lora_rank), ("lora_alpha", self.lora_alpha)):
                if value is not None:
                    yield f"{name} needs `model`: a model from scratch trains all its weights"
            if self.dtype != "float32":
                yield "a model from scratch runs in float32; `dtype` needs `model`"
        elif self.lora_rank is None and (self.lora_alpha is not None or self.lora_targets):
            yield "lora_alpha and lora_targets need lora_rank"
