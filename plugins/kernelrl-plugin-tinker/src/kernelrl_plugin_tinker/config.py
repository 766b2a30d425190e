"""Options of the policy `tinker`."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import attrs

from kernelrl_core.api import Requires
from kernelrl_core.api.config import NonNegativeInt, PositiveFloat, PositiveInt
from kernelrl_core.api.policies import PolicyCapabilities, PolicyConfig

__all__ = ["CHAT_TEMPLATE", "LOSSES", "LocalModel", "TinkerConfig", "problems_of_address"]

CHAT_TEMPLATE = "chat_template"
"""Value of `renderer`: the tokenizer's own template."""
LOSSES = frozenset({"importance_sampling", "ppo", "cispo"})
_OLDEST_SDK = (0, 25)
"""The oldest version of Tinker's SDK with which the tests run."""


@attrs.frozen
class LocalModel:
    """The server's model with `server: local`. Without `model` it is the from-scratch model of policy `torch` after a
    warm start on the tasks' demonstrations."""

    width: PositiveInt = PositiveInt(128)
    """Width of the residual stream."""
    layers: PositiveInt = PositiveInt(4)
    """Number of transformer blocks."""
    heads: PositiveInt = PositiveInt(4)
    """Query heads per block."""
    context_tokens: PositiveInt = PositiveInt(1024)
    """Maximum tokens of prompt and reply together."""
    vocabulary: PositiveInt = PositiveInt(2048)
    """Maximum vocabulary size of the tokenizer."""
    warm_start_steps: PositiveInt = PositiveInt(200)
    """Optimizer steps of the warm start."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Device of the server's model, with and without `model`. On a GPU it computes only while no kernel is timed."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """With `model`: dtype of the weights."""


@attrs.frozen
class TinkerConfig(PolicyConfig):
    """The model, the server that trains it, and time limits."""

    model: str | None = None
    """Name of the base model in the server's list. With `server: local`: a directory or Hugging Face hub id, or null
    for a model from scratch (`local`)."""
    server: Literal["local"] | None = None
    """`local` starts a Tinker-compatible server on this machine and stops it with the run. Null: use `base_url`."""
    base_url: str | None = None
    """URL of the server. Null: `TINKER_BASE_URL`, else the hosted service."""
    lora_rank: PositiveInt = PositiveInt(32)
    """Rank of the LoRA adapters."""
    renderer: str | None = None
    """Renderer of tinker-cookbook, or `chat_template` for the tokenizer's own template. Null: the renderer that the
    cookbook recommends, or `chat_template` for a directory and for a model that it does not know."""
    start_from: str | None = None
    """`tinker://` path of saved weights to start from; the optimizer state is not loaded."""
    context_tokens: PositiveInt | None = None
    """Maximum tokens of prompt and reply together. Null: the limit that the server reports."""
    sample_timeout_s: PositiveFloat = PositiveFloat(1800.0)
    """Time limit of one reply, in seconds; after it the reply is requested again."""
    train_timeout_s: PositiveFloat = PositiveFloat(3600.0)
    """Time limit of one training request (pass, optimizer step, save, load), in seconds. After it the training client
    is replaced by one from the last checkpoint, and the step is repeated."""
    retries: NonNegativeInt = NonNegativeInt(4)
    """Maximum number of retries of a reply, or of an update with a new training client."""
    give_up_after_s: PositiveFloat = PositiveFloat(600.0)
    """The run stops, and can be resumed, when the server has not responded for this many seconds."""
    checkpoint_days: PositiveFloat | None = PositiveFloat(30.0)
    """Days after which the server may delete the checkpoints of this run. Null: never."""
    local: LocalModel = LocalModel()
    """With `server: local`: its model and device."""

    @property
    def needs_cookbook(self) -> bool:
        """Whether tinker-cookbook renders the prompts, or decides how: it knows models by their names only."""
        if self.renderer is not None:
            return self.renderer != CHAT_TEMPLATE
        return self.model is not None and not Path(self.model).is_dir()

    def requires(self) -> Requires:
        oldest = ".".join(map(str, _OLDEST_SDK))
        if too_old := _outdated_sdk():
            return Requires(
                absent=(f"tinker {oldest} or newer; {too_old} is installed",), fix=f"pip install 'tinker>={oldest}'"
            )
        modules: tuple[str, ...] = ("tinker", "transformers")
        if self.needs_cookbook:
            modules += ("tinker_cookbook",)
        if self.server == "local":
            modules += ("kernelrl_tinker_server",)
            gpu: Literal["", "any"] = "any" if self.local.device == "cuda" else ""
            return Requires(modules=modules, gpu=gpu, fix="" if gpu else "pip install 'kernelrl-plugin-tinker[local]'")
        return Requires(modules=modules, environment=() if self.has_key else ("TINKER_API_KEY",))

    def context_limit(self) -> int | None:
        own = self.local.context_tokens if self.server == "local" and self.model is None else None
        return self.context_tokens or own

    def prices(self) -> Mapping[str, float]:
        """Prices of tokens: 0 for a server on this machine, unknown for others."""
        return {"prompt": 0.0, "reply": 0.0, "train": 0.0} if self.server == "local" or self.on_this_machine else {}

    def capabilities(self) -> PolicyCapabilities:
        is_local = self.server == "local"
        return PolicyCapabilities(
            losses=LOSSES,
            ratios=self._ratios(),
            warm_start=is_local and self.model is None,
            deterministic=is_local and self.local.device == "cpu",
            streams=True,
            logprobs=True,
            reference=True,
        )

    def _ratios(self) -> frozenset[str]:
        # A given URL may be a `kernelrl tinker-server`; `start` queries its ratios.
        return frozenset({"token", "sequence"} if self.server == "local" or self._address() else {"token"})

    def _address(self) -> str:
        return self.base_url or os.environ.get("TINKER_BASE_URL") or ""

    @property
    def has_key(self) -> bool:
        """True if the SDK will find a key, or none is needed because the server is on this machine."""
        if any(os.environ.get(name) for name in ("TINKER_API_KEY", "TINKER_CREDENTIAL_CMD")):
            return True
        return self.on_this_machine or Path("~/.tinker/credentials.json").expanduser().is_file()

    @property
    def on_this_machine(self) -> bool:
        host = ""
        try:
            host = urlsplit(self._address()).hostname or ""
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    def problems(self) -> Iterable[str]:
        if self.server == "local" and self.base_url is not None:
            yield "`server: local` starts its own server and excludes base_url; remove one of them"
        if self.server is None and self.model is None:
            yield "`model` is missing: the base model's name, such as Qwen/Qwen3-8B; or set server: local"
        if self.start_from is not None and not self.start_from.startswith("tinker://"):
            yield f"start_from must be a tinker:// path, not {self.start_from!r}"
        if self.server == "local" and self.start_from is not None:
            yield "start_from needs a server that keeps checkpoints: start kernelrl tinker-server and set base_url"
        if self.base_url is not None:
            yield from problems_of_address("base_url", self.base_url)
        if self.server == "local" and self.model is None and self.local.width % (2 * self.local.heads):
            yield f"local.width ({self.local.width}) must be a multiple of twice local.heads ({self.local.heads})"
        own = self.local.context_tokens if self.server == "local" and self.model is None else None
        if own is not None and (self.context_tokens or 0) > own:
            yield f"context_tokens ({self.context_tokens}) exceeds local.context_tokens ({own}); raise the latter"


def _outdated_sdk() -> str:
    """The installed version of Tinker's SDK if it is too old, else empty."""
    try:
        installed = version("tinker")
    except PackageNotFoundError:
        return ""  # reported as a missing module
    numbers = tuple(int(number) for number in re.findall(r"\d+", installed)[:2])
    return installed if numbers < _OLDEST_SDK else ""


def problems_of_address(name: str, address: str) -> Iterable[str]:
    """Problems of a server URL. The messages contain only its option or variable: the URL may hold a password."""
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        yield f"{name} must be a URL such as http://127.0.0.1:8124"
    if "@" in address or "?" in address:
        # The run directory keeps the recipe and messages with the URL, so neither may contain a secret.
        yield f"{name} must have no user, password or query; set the key in TINKER_API_KEY"
