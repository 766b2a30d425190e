"""The served model: the bundled tiny one, a warm-started one from scratch, or one of Hugging Face."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import attrs

from kernelrl_core.api.errors import LookupFailed, nearest
from kernelrl_core.api.policies import PolicyContext
from kernelrl_plugin_torch.config import TorchConfig, WarmStart
from kernelrl_plugin_torch.language_model import LanguageModel
from kernelrl_plugin_torch.model_directory import is_scratch_directory, read_model, write_model
from kernelrl_plugin_torch.policy import TorchPolicy
from kernelrl_plugin_torch.scratch_model import ScratchModel
from kernelrl_plugin_torch.scratch_tokenizer import ScratchTokenizer
from kernelrl_plugin_torch.warm_start import warm_start_key

__all__ = ["TINY", "ServedModel", "load_served_model", "warm_started_model"]

TINY = "tiny"
"""Name of the bundled model: 90,000 random weights, one token per byte."""
_TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"),
    "config.json",  # may be the only file with the tokenizer's class
)


@attrs.frozen
class ServedModel:
    """Description of the model for clients."""

    names: tuple[str, ...]
    """Accepted names of the model, the preferred one first."""
    kind: str
    """`kernelrl-scratch` or `huggingface`."""
    tokenizer: str
    """Directory or hub id that `AutoTokenizer` loads."""
    special_tokens: Mapping[str, int]
    """Text of a special token -> its id."""

    def check(self, name: str) -> None:
        """Refuse a request for another model.

        Raises:
            LookupFailed: another model.
        """
        if name not in self.names:
            close = nearest(name, self.names)
            meant = f"; did you mean {close!r}?" if close else ""
            listed = ", ".join(map(repr, self.names))
            raise LookupFailed(f"model {name!r} is not served; this server has {listed}{meant}")

    def tokenizer_files(self) -> dict[str, str]:
        """Files of the tokenizer by name, for clients that cannot read this machine's directory.

        Raises:
            LookupFailed: the tokenizer is on the hub, where clients find it under the model's name.
        """
        directory = Path(self.tokenizer)
        if not (directory / "tokenizer.json").is_file():
            raise LookupFailed(f"the tokenizer of {self.names[0]!r} is on the hub")
        found = (directory / name for name in _TOKENIZER_FILES)
        return {path.name: path.read_text(encoding="utf-8") for path in found if path.is_file()}


def load_served_model(name: str, options: TorchConfig, state: Path) -> tuple[LanguageModel, ServedModel]:
    """Load a model by name.

    Args:
        name: `tiny`, a directory of `warm_started_model`, or a value of `policy.model` of policy `torch`: a packaged
            model, a Hugging Face directory or a hub id.
        options: device, threads and, for a Hugging Face model, adapters and dtype of the weights.
        state: directory of the server; the bundled model is written there, so that clients find its tokenizer.

    Raises:
        UsageError, MissingPrerequisite: the model cannot be loaded.
    """
    directory = state.absolute() / "models" / TINY if name == TINY else Path(name)
    if name == TINY and not is_scratch_directory(directory):
        _make_tiny(directory)
    if is_scratch_directory(directory):
        model = read_model(directory, device=options.device)
        where = str(directory.absolute())
        served = ServedModel(
            names=(where, name) if name != where else (where,),
            kind="kernelrl-scratch",
            tokenizer=where,
            special_tokens={"<|end|>": model.tokenizer.end},
        )
        return model, served
    from huggingface_hub.utils import logging as hub_logging

    from kernelrl_plugin_torch.huggingface import HuggingFaceModel, located_model

    hub_logging.set_verbosity_error()  # the hub logs a line per retry; the final error is more useful
    targets = ("all-linear", "unembed") if options.lora_rank else ()  # a run freezes the parts it does not train
    loaded = HuggingFaceModel(attrs.evolve(options, model=name, lora_targets=targets), seed=0)
    where = located_model(name)
    return loaded, ServedModel((name,), "huggingface", where, _special_tokens(where))


def _make_tiny(directory: Path) -> None:
    tokenizer = ScratchTokenizer.train((), vocabulary=256, min_tasks=1)
    model = ScratchModel(tokenizer, width=64, layers=2, heads=2, context_tokens=2048, seed=0)
    with _Growing(directory) as growing:
        write_model(model, growing)


def _special_tokens(name: str) -> dict[str, int]:
    from transformers import AutoTokenizer

    added = AutoTokenizer.from_pretrained(name).added_tokens_decoder
    return {token.content: int(index) for index, token in added.items()}


async def warm_started_model(
    context: PolicyContext,
    *,
    width: int,
    layers: int,
    heads: int,
    context_tokens: int,
    vocabulary: int,
    warm_start_steps: int,
) -> Path:
    """Directory of a model from scratch after a warm start on the demonstrations of a run's tasks.

    Its weights equal those of policy `torch` with the same options and seed. The directory is cached.
    """
    config = TorchConfig(
        width=width,
        layers=layers,
        heads=heads,
        context_tokens=context_tokens,
        vocabulary=vocabulary,
        warm_start=WarmStart(steps=warm_start_steps),
    )
    key = warm_start_key(config, context.demonstrations_key, context.seed)
    directory = context.cache_dir / "tinker-models" / key
    if is_scratch_directory(directory):
        return directory
    policy = TorchPolicy(config)
    try:
        await policy.start(context)
        with _Growing(directory) as growing:
            await policy.export(growing)
    finally:
        await policy.aclose()
    return directory


class _Growing:
    """A temporary directory, renamed to `final` when it is complete, unless another process has created `final`."""

    def __init__(self, final: Path) -> None:
        self._final = final

    def __enter__(self) -> Path:
        self._final.parent.mkdir(parents=True, exist_ok=True)
        self._path = Path(tempfile.mkdtemp(prefix=f".{self._final.name}.", dir=self._final.parent))
        return self._path

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            try:
                os.rename(self._path, self._final)
            except OSError:
                if not self._final.is_dir():
                    raise
        shutil.rmtree(self._path, ignore_errors=True)
