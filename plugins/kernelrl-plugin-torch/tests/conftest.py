from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from kernelrl_core.api.policies import (
    Loss,
    Message,
    OptimizerSettings,
    PolicyContext,
    SamplingSettings,
    TrainingSample,
    Update,
    WarmStartExample,
)
from kernelrl_core.api.tasks import Outcome
from kernelrl_testing.core import shape_samples, split_evenly

CHAT_TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)

OPERATIONS = {
    "relu": ("torch.relu(x)", "tl.maximum(x, 0.0)"),
    "square": ("x * x", "x * x"),
    "negate": ("-x", "-x"),
    "sigmoid": ("torch.sigmoid(x)", "tl.sigmoid(x)"),
    "exp": ("torch.exp(x)", "tl.exp(x)"),
    "absolute": ("torch.abs(x)", "tl.abs(x)"),
    "double": ("x * 2.0", "x * 2.0"),
    "shift": ("x + 1.0", "x + 1.0"),
    "silu": ("x * torch.sigmoid(x)", "x * tl.sigmoid(x)"),
    "leaky": ("torch.where(x > 0, x, 0.1 * x)", "tl.where(x > 0, x, 0.1 * x)"),
    "clamp": ("torch.clamp(x, -1.0, 1.0)", "tl.minimum(tl.maximum(x, -1.0), 1.0)"),
    "cube": ("x * x * x", "x * x * x"),
}

PROMPT = """Write a Triton kernel that computes the same as this PyTorch module, as a class ModelNew.
Rules: the work must be done by a kernel of yours; do not call PyTorch's own operator for it.

```python
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return {reference}


def get_inputs():
    return [torch.randn(1000)]


def get_init_inputs():
    return []
```

Answer with one Python block and nothing else.
"""

ANSWER = """```python
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside)
    y = {expression}
    tl.store(y_ptr + offsets, y, mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        kernel[({grid},)](x, y, n, BLOCK={block})
        return y
```"""


def examples(names: tuple[str, ...] = tuple(OPERATIONS)) -> list[WarmStartExample]:
    """Demonstrations of elementwise tasks; correct replies have 40 % of the weight."""
    made: list[WarmStartExample] = []
    for name in names:
        reference, expression = OPERATIONS[name]
        messages = (Message("user", PROMPT.format(reference=reference)),)

        def add(weight: float, right: bool, messages: Any = messages, name: str = name, **parts: Any) -> None:
            outcome = Outcome.CORRECT if right else Outcome.INCORRECT
            made.append(WarmStartExample(messages, ANSWER.format(**parts), weight, name, outcome))

        for block in (64, 128, 256, 512):
            grid = f"triton.cdiv(n, {block})"
            add(0.1, True, expression=expression, grid=grid, block=block)
            add(0.04, False, expression=expression, grid="1", block=block)
            add(0.04, False, expression=expression, grid=f"n // {block}", block=block)
            add(0.03, False, expression=expression + " + 0.5", grid=grid, block=block)
            for other in list(OPERATIONS)[:4]:
                if other != name:
                    add(0.01, False, expression=OPERATIONS[other][1], grid=grid, block=block)
    return made


@pytest.fixture(scope="session")
def bundled() -> list[WarmStartExample]:
    return examples()


@pytest.fixture
def make_context(tmp_path: Path, bundled: list[WarmStartExample]):
    """Makes contexts that share a cache; the lines that policies show are in `make_context.said`."""

    def make(key: str = "elementwise", *, seed: int = 0, given: list[WarmStartExample] | None = None) -> PolicyContext:
        async def demonstrations() -> list[WarmStartExample]:
            make.asked += 1
            return bundled if given is None else given

        return PolicyContext(seed, tmp_path / "cache", None, demonstrations, key, make.said.append)

    make.asked = 0
    make.said = []
    return make


@pytest.fixture
def sampling():
    def make(seed: int = 0, **changes: Any) -> SamplingSettings:
        values: dict[str, Any] = {
            "max_tokens": 40, "temperature": 1.0, "top_p": 1.0, "top_k": -1, "stop": (), "seed": seed,
        }  # fmt: skip
        return SamplingSettings(**(values | changes))

    return make


@pytest.fixture
def loss():
    def make(name: str = "importance_sampling", low: float = 0.2, high: float = 0.28) -> Loss:
        return Loss(name, low, high)

    return make


@pytest.fixture
def optimizer():
    def make(learning_rate: float = 1e-3, max_grad_norm: float | None = None) -> OptimizerSettings:
        return OptimizerSettings(learning_rate, 0.9, 0.95, 1e-8, 0.0, max_grad_norm)

    return make


@pytest.fixture
def make_update(loss, optimizer):
    """Makes an update from training samples, shaped and split as in the core."""

    def make(
        samples: Sequence[TrainingSample],
        step: int = 0,
        *,
        denominator: float = 1.0,
        substeps: int = 1,
        accumulated: Sequence[int] = (),
        **settings: Any,
    ) -> Update:
        shaped = shape_samples(samples, denominator).samples
        parts = tuple(map(tuple, split_evenly(shaped, substeps)))
        return Update(step, parts, tuple(accumulated), **({"loss": loss(), "optimizer": optimizer()} | settings))

    return make


@pytest.fixture(scope="session", params=["llama", "gpt2"])
def model_dir(request, tmp_path_factory) -> Path:
    """A tiny model with random weights, a vocabulary of bytes and a chat template."""
    transformers = pytest.importorskip("transformers")
    directory = tmp_path_factory.mktemp(request.param)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    text = Tokenizer(models.BPE({symbol: index for index, symbol in enumerate(alphabet)}, []))
    text.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    text.decoder = decoders.ByteLevel()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=text,
        eos_token="<|end|>",
        additional_special_tokens=["<|system|>", "<|user|>", "<|assistant|>"],
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(directory)
    torch.manual_seed(0)
    common = {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    if request.param == "llama":
        config = transformers.LlamaConfig(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=256,
            initializer_range=0.3,
            **common,
        )
        net = transformers.LlamaForCausalLM(config)
    else:
        config = transformers.GPT2Config(
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=256,
            initializer_range=0.3,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            **common,
        )
        net = transformers.GPT2LMHeadModel(config)
    net.save_pretrained(directory)
    return directory
