"""Directory format of a model from scratch: weights, and a tokenizer with chat template for Hugging Face's
`AutoTokenizer`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from kernelrl_core.api.config import write_atomically
from kernelrl_core.api.errors import UsageError
from kernelrl_plugin_torch.files import read_tensors, write_tensors
from kernelrl_plugin_torch.scratch_model import ScratchModel
from kernelrl_plugin_torch.scratch_tokenizer import ScratchTokenizer

__all__ = ["is_scratch_directory", "read_model", "write_model"]

_DESCRIPTION = "kernelrl_model.json"
_WEIGHTS = "weights.pt"
_TEXT_TOKENIZER = "text_tokenizer.json"
_SPECIAL = ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
"""Special tokens in the order of their ids, which follow those of the text (`ScratchTokenizer`)."""
_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def write_model(model: ScratchModel, directory: Path) -> None:
    """Write a model to an existing directory."""
    text = model.tokenizer.to_json()
    whole = Tokenizer.from_str(text)
    whole.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in _SPECIAL])
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": _SPECIAL[-1],
        "chat_template": _TEMPLATE,
        "model_max_length": model.context_tokens,
        "clean_up_tokenization_spaces": False,
    }
    described = {**model.sizes, "context_tokens": model.context_tokens}
    write_tensors(directory / _WEIGHTS, {"weights": model.state()})
    write_atomically(directory / _TEXT_TOKENIZER, text)
    write_atomically(directory / "tokenizer.json", whole.to_str())
    write_atomically(directory / "tokenizer_config.json", json.dumps(settings, indent=1))
    write_atomically(directory / _DESCRIPTION, json.dumps(described, indent=1))


def is_scratch_directory(directory: Path) -> bool:
    return (directory / _DESCRIPTION).is_file()


def read_model(directory: Path, *, device: str = "cpu") -> ScratchModel:
    """The model of a directory of `write_model`.

    Raises:
        UsageError: a file is missing or damaged.
    """
    try:
        sizes: dict[str, Any] = json.loads((directory / _DESCRIPTION).read_text(encoding="utf-8"))
        tokenizer = ScratchTokenizer.from_json((directory / _TEXT_TOKENIZER).read_text(encoding="utf-8"))
        model = ScratchModel(tokenizer, **sizes, seed=0, device=device)
        model.load_state(read_tensors(directory / _WEIGHTS)["weights"])
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise UsageError(f"{directory} does not contain a valid model: {error}") from error
    return model
