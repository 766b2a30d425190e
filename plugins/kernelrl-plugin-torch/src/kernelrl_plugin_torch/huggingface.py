"""Hugging Face causal language models, with their own tokenizer and chat template."""

from __future__ import annotations

import contextlib
import math
import textwrap
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from kernelrl_core.api.errors import MissingPrerequisite, UsageError
from kernelrl_core.api.policies import Message, prompt_opening, require_lossless_tokenizer
from kernelrl_plugin_torch.config import TorchConfig
from kernelrl_plugin_torch.devices import free_memory, usable_device
from kernelrl_plugin_torch.files import save_pretrained
from kernelrl_plugin_torch.language_model import Decoder, Prefix, PromptAndReply, Scores, tempered
from kernelrl_plugin_torch.packaged_models import PACKAGED, converted_model

try:
    import transformers
    from safetensors import SafetensorError, safe_open
    from transformers import DynamicCache

    from kernelrl_plugin_torch.static_decoder import StaticDecoder, cache_argument, supports_static_cache
except ImportError as missing:
    raise MissingPrerequisite(
        f"policy torch with `model` needs transformers ({missing})", fix="pip install 'kernelrl-plugin-torch[hf]'"
    ) from missing

__all__ = ["HuggingFaceModel", "located_model"]

transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call, unused-ignore]

_BUCKET = 64
_REASON = 200
"""Characters of an error of transformers, which may end with a list of formats."""
_PREFILL_PROMPTS = 32
"""Prompts in one forward pass before sampling with a static cache."""


class HuggingFaceModel:
    """A loaded model.

    On a GPU it samples with a static cache. On the CPU, or with an unusual attention, the rows of a decoder start
    together, with prompts that are padded on the left to a common multiple of 64 tokens.
    """

    def __init__(self, options: TorchConfig, *, seed: int) -> None:
        """
        Raises:
            UsageError: no such directory, no chat template, a tokenizer that changes text, or `context_tokens` above
                the model's limit.
            MissingPrerequisite: the model cannot be loaded, or a library or the GPU is missing.
        """
        name = str(options.model)
        self.device = usable_device(options.device, options.dtype)
        located = located_model(name)
        dtype = getattr(torch, options.dtype)
        _require_memory(name, Path(located), self.device, dtype)
        try:
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(located)
            net = transformers.AutoModelForCausalLM.from_pretrained(located, dtype=dtype)
        except (OSError, ValueError, SafetensorError) as error:
            reason = textwrap.shorten(str(error), _REASON, placeholder=" …")
            raise MissingPrerequisite(
                f"policy.model: cannot load {name!r}: {reason}",
                fix="use the directory of a model, or a hub id that this machine can download",
                see="hugging-face",
            ) from error
        if not self._tokenizer.chat_template:
            raise UsageError(
                f"policy.model: {name!r} has no chat template",
                fix="choose an instruction-tuned model",
                see="hugging-face",
            )
        require_lossless_tokenizer(name, self._tokens_of, self._tokenizer.decode)
        limit = getattr(net.config.get_text_config(), "max_position_embeddings", None)
        if limit is None and options.context_tokens is None:
            raise UsageError(
                f"policy.model: the configuration of {name!r} has no context length",
                fix="set policy.context_tokens",
                see="context",
            )
        if limit is not None and (options.context_tokens or 0) > limit:
            raise UsageError(
                f"policy.context_tokens is {options.context_tokens}, but {name!r} allows {limit}",
                fix=f"set policy.context_tokens={limit}",
                see="context",
            )
        self.context_tokens = int(options.context_tokens or limit)
        ends = net.generation_config.eos_token_id if net.generation_config is not None else None
        listed = ends if isinstance(ends, list) else [ends, self._tokenizer.eos_token_id]
        self.stop_tokens = frozenset(int(token) for token in listed if token is not None)
        self._turn_end = (
            self._tokenizer.eos_token_id if self._tokenizer.eos_token_id is not None else min(self.stop_tokens)
        )
        self._adapted = options.lora_rank is not None
        self.module = (_with_lora(net, options, seed) if self._adapted else net).to(self.device)
        self._cache_argument = cache_argument(net)
        self._use_static_cache(self.device.type == "cuda" and supports_static_cache(net))

    def _use_static_cache(self, used: bool) -> None:
        self.joins = used
        self.prefill_prompts = _PREFILL_PROMPTS if used else 1
        self._static: StaticDecoder | None = None

    def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        continued = bool(messages) and messages[-1].role == "assistant"
        text = self._tokenizer.apply_chat_template(
            [{"role": message.role, "content": message.content} for message in messages],
            tokenize=False,
            add_generation_prompt=not continued,
            continue_final_message=continued,
        )
        return self._tokens_of(text)

    def _tokens_of(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    def opening(self, prompt: Sequence[int]) -> str:
        return prompt_opening(prompt, self._tokenizer.decode)

    def encode_reply(self, text: str) -> tuple[int, ...]:
        return (*self._tokens_of(text), self._turn_end)

    def decode(self, tokens: Sequence[int]) -> str:
        # Only ends of turn are removed: think tags may be special tokens, but are part of the text.
        kept = [token for token in tokens if token not in self.stop_tokens]
        text: str = self._tokenizer.decode(kept, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    def prefill(self, prompts: Sequence[Sequence[int]]) -> list[Prefix]:
        if self.joins:
            return self._prefill_static(prompts)
        (prompt,) = prompts
        tokens = torch.tensor([prompt], device=self.device)
        cache = DynamicCache()
        out = self.module(input_ids=tokens, use_cache=True, logits_to_keep=1, **{self._cache_argument: cache})
        layers = [(layer.keys, layer.values) for layer in cache.layers]
        return [Prefix(layers, len(prompt), out.logits[0, -1].float())]

    def _prefill_static(self, prompts: Sequence[Sequence[int]]) -> list[Prefix]:
        padded = _left_padded(prompts, self.device)
        cache = DynamicCache()
        out = self.module(**padded, use_cache=True, logits_to_keep=1, **{self._cache_argument: cache})
        # [layer, 2, prompt, head, position, size]
        layers = torch.stack([torch.stack([layer.keys, layer.values]) for layer in cache.layers])
        logits = out.logits[:, -1].float()
        return [
            Prefix(layers[:, :, row, :, layers.shape[4] - len(prompt) :].clone(), len(prompt), logits[row])
            for row, prompt in enumerate(prompts)
        ]

    def shape(self, prompt_tokens: int) -> Hashable:
        return 0 if self.joins else -(-prompt_tokens // _BUCKET) * _BUCKET

    def decoder(self, rows: int, shape: Hashable) -> Decoder:
        if self.joins:
            # Kept, because recording its graphs takes a while.
            if self._static is None or self._static.rows != rows:
                self._static = None  # frees its memory first
                self._static = StaticDecoder(self.module, rows)
            self._static.clear()
            return self._static
        assert isinstance(shape, int)
        return _Decoder(self.module, rows, shape, self.device)

    def score(self, batch: Sequence[PromptAndReply]) -> Scores:
        rows = [(*pair.prompt, *pair.reply) for pair in batch]
        longest = max(map(len, rows))
        # No token attends to padding on its right, so no mask is needed. With one, the gradient that cuDNN computes can
        # be NaN if the length is 64 more than a multiple of 128 (pytorch/pytorch#196678).
        tokens = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows], device=self.device)
        # The position before a token predicts it.
        first = min(len(pair.prompt) for pair in batch) - 1
        kept = torch.arange(first, longest - 1, device=self.device)
        logits = self.module(input_ids=tokens, use_cache=False, logits_to_keep=kept).logits
        predicted = [
            logits[row, len(pair.prompt) - 1 - first : len(rows[row]) - 1 - first] for row, pair in enumerate(batch)
        ]
        distribution = F.log_softmax(tempered(torch.cat(predicted).float(), batch), dim=-1)
        targets = torch.tensor([token for pair in batch for token in pair.reply], dtype=torch.long, device=self.device)
        with torch.no_grad():
            entropy = -(distribution.exp() * distribution).sum(-1)
        return Scores(distribution.gather(1, targets[:, None])[:, 0], entropy, distribution)

    def state(self) -> dict[str, Tensor]:
        if self._adapted:
            return {name: p.detach() for name, p in self.module.named_parameters() if p.requires_grad}
        return dict(self.module.state_dict())

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        missing, unexpected = self.module.load_state_dict(state, strict=not self._adapted)
        trained = {name for name, p in self.module.named_parameters() if p.requires_grad}
        if unexpected or trained & set(missing):
            raise ValueError("the names of the weights differ")

    def save_extras(self, directory: Path) -> None:
        """Do nothing: the tokenizer and the frozen weights are loaded from the model's directory or the hub."""

    def write(self, directory: Path) -> None:
        """Write the model with its tokenizer, or only its adapters, into an existing directory.

        Raises:
            OSError: the disk is full, broken or read-only.
        """
        save_pretrained(self.module, directory)
        if not self._adapted:
            self._tokenizer.save_pretrained(directory)


def _left_padded(rows: Sequence[Sequence[int]], device: torch.device) -> dict[str, Tensor]:
    """Arguments of a forward pass over sequences of different lengths, which end at the right edge."""
    longest = max(map(len, rows))
    padding = torch.tensor([longest - len(row) for row in rows], device=device)[:, None]
    tokens = torch.tensor([[0] * (longest - len(row)) + list(row) for row in rows], device=device)
    places = torch.arange(longest, device=device)[None]
    return {
        "input_ids": tokens,
        "attention_mask": (places >= padding).long(),
        "position_ids": (places - padding).clamp(min=0),
    }


class _Decoder:
    """A decoder whose rows start together; the cache grows by one position per step."""

    def __init__(self, module: torch.nn.Module, rows: int, bucket: int, device: torch.device) -> None:
        self._module = module
        self._cache_argument = cache_argument(module)
        self._bucket = bucket
        self._prefixes: list[Prefix | None] = [None] * rows
        self._cache: DynamicCache | None = None
        self._ends = torch.zeros(rows, dtype=torch.long, device=device)
        self._mask = torch.zeros(rows, bucket, dtype=torch.long, device=device)

    def admit(self, row: int, prefix: Prefix) -> None:
        self._prefixes[row] = prefix
        self._ends[row] = prefix.length
        self._mask[row, self._bucket - prefix.length :] = 1

    def release(self, row: int) -> None:
        """Do nothing: the row continues, and its tokens are ignored, until all rows have ended."""

    def step(self, tokens: Tensor) -> Tensor:
        if self._cache is None:
            self._cache = self._filled()
        self._mask = F.pad(self._mask, (0, 1), value=1)
        out = self._module(
            input_ids=tokens[:, None],
            attention_mask=self._mask,
            position_ids=self._ends[:, None],
            use_cache=True,
            **{self._cache_argument: self._cache},
        )
        self._ends = self._ends + 1
        return out.logits[:, -1].float()

    def _filled(self) -> DynamicCache:
        """The cache with each prompt at the right edge of its row, padded with zeros."""
        cache = DynamicCache()
        some = next(prefix for prefix in self._prefixes if prefix is not None)
        for index, pair in enumerate(some.cache):
            whole = [part.new_zeros(len(self._prefixes), part.shape[1], self._bucket, part.shape[3]) for part in pair]
            for row, prefix in enumerate(self._prefixes):
                if prefix is not None:
                    for target, source in zip(whole, prefix.cache[index], strict=True):
                        target[row, :, self._bucket - prefix.length :] = source[0]
            cache.update(*whole, index)
        self._prefixes.clear()
        return cache


def located_model(name: str) -> str:
    """The directory or hub id to load; a packaged model is converted first.

    Raises:
        UsageError: `name` is a path without a directory, or the file of a packaged model is damaged.
        MissingPrerequisite: the package of the model is not installed.
    """
    path = Path(name).expanduser()
    if path.is_dir():
        return str(path)
    if name in PACKAGED:
        return str(converted_model(name))
    if path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise UsageError(
            f"policy.model: no such directory: {path}", fix="give an existing directory or a hub id", see="hugging-face"
        )
    return name


def _require_memory(name: str, directory: Path, device: torch.device, dtype: torch.dtype) -> None:
    """Refuse a model whose weights do not fit into the free memory of the device. A hub id is not checked.

    Raises:
        UsageError: the weights need more memory than is free.
    """
    needed = 0
    for file in directory.glob("*.safetensors"):
        with contextlib.suppress(SafetensorError), safe_open(file, "pt") as tensors:
            shapes = [tensors.get_slice(key).get_shape() for key in tensors.keys()]  # noqa: SIM118
            needed += sum(math.prod(shape) for shape in shapes) * dtype.itemsize
    free = free_memory(device)
    if needed > free:
        smaller = "set policy.dtype=bfloat16, or " if dtype is torch.float32 else ""
        raise UsageError(
            f"policy.model: the weights of {name!r} need {needed / 1e9:.1f} GB in {str(dtype).removeprefix('torch.')}, "
            f"but {free / 1e9:.1f} GB of memory are free on {device}",
            fix=f"{smaller}use a smaller model or a machine with more memory",
            see="hugging-face",
        )


def _targets(net: Any, wanted: Sequence[str]) -> str | list[str]:
    """`target_modules` of peft for `policy.lora_targets`."""
    if not wanted or list(wanted) == ["all-linear"]:
        return "all-linear"
    output = net.get_output_embeddings()
    found = {"all-linear": [], "unembed": []}
    for name, module in net.named_modules():
        if module is output or isinstance(module, torch.nn.Linear):
            found["unembed" if module is output else "all-linear"].append(name)
    return [target for name in wanted for target in found.get(name, [name])]


def _with_lora(net: Any, options: TorchConfig, seed: int) -> Any:
    try:
        import peft
    except ImportError as missing:
        raise MissingPrerequisite(
            f"policy.lora_rank needs peft ({missing})", fix="pip install 'kernelrl-plugin-torch[hf]'"
        ) from missing
    settings = peft.LoraConfig(
        r=options.lora_rank,
        lora_alpha=options.lora_alpha or 2 * options.lora_rank,
        target_modules=_targets(net, options.lora_targets),
        lora_dropout=0.0,
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            return peft.get_peft_model(net, settings)
        except ValueError as error:
            raise UsageError(f"policy.lora_targets: {error}") from error
