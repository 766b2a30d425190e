"""Options of the policy `tinker`."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import attrs

from kernelrl_core.api import Requires
from kernelrl_core.api.config import NonNegativeInt, PositiveFloat, PositiveInt
from kernelrl_core.api.policies import PolicyCapabilities, PolicyConfig

__all__ = ["LOSSES", "LocalModel", "TinkerConfig", "problems_of_address"]

LOSSES = frozenset({"importance_sampling", "ppo", "cispo"})


@attrs.frozen
class LocalModel:
    """The server's model with `server: local`. Without `model` it is that of policy `torch` from scratch, warm-started
    on the answers bundled with the tasks."""

    width: PositiveInt = PositiveInt(128)
    """Size of the residual stream."""
    layers: PositiveInt = PositiveInt(4)
    """Number of blocks."""
    heads: PositiveInt = PositiveInt(4)
    """Query heads of a block."""
    context_tokens: PositiveInt = PositiveInt(1024)
    """Longest prompt and reply together."""
    vocabulary: PositiveInt = PositiveInt(2048)
    """Most tokens of the tokenizer."""
    warm_start_steps: PositiveInt = PositiveInt(200)
    """Optimizer steps of the warm start."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where the server's model runs, with `model` or without. On a GPU it works only while no kernel is timed there."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """With `model`: type of the weights."""


@attrs.frozen
class TinkerConfig(PolicyConfig):
    """Which model is trained, and where."""

    model: str | None = None
    """Name of the base model as the server lists it. With `server: local` a directory or hub id of Hugging Face, or
    null for a model from scratch (`local`)."""
    server: Literal["local"] | None = None
    """`local` starts a Tinker-compatible server on this machine and ends it with the run; null uses `base_url`."""
    base_url: str | None = None
    """Address of the server; null: `TINKER_BASE_URL`, else the hosted service."""
    lora_rank: PositiveInt = PositiveInt(32)
    """Rank of the adapters."""
    renderer: str | None = None
    """Renderer of tinker-cookbook; `chat_template`: the tokenizer's own; null: the one the cookbook recommends for the
    model, and for a model it does not know `chat_template`."""
    start_from: str | None = None
    """`tinker://` path of saved state to begin with, without its optimizer."""
    context_tokens: PositiveInt | None = None
    """Longest prompt and reply together; null: what the server says."""
    sample_timeout_s: PositiveFloat = PositiveFloat(1800.0)
    """A reply that takes longer is given up and asked for again."""
    train_timeout_s: PositiveFloat = PositiveFloat(3600.0)
    """A request of training (a pass, an optimizer step, saving, loading) that takes longer is given up with its client,
    and repeated with one made from the last checkpoint."""
    retries: NonNegativeInt = NonNegativeInt(4)
    """Further attempts at a reply, or at an update after its training client was rebuilt."""
    give_up_after_s: PositiveFloat = PositiveFloat(600.0)
    """The run stops, ready to be resumed, when the server has not answered for so long."""
    checkpoint_days: PositiveFloat | None = PositiveFloat(30.0)
    """Days after which the server may delete what this run saved there; null: never."""
    local: LocalModel = LocalModel()
    """With `server: local`: its model and device."""

    def requires(self) -> Requires:
        modules: tuple[str, ...] = ("tinker", "tinker_cookbook", "transformers")
        if self.server == "local":
            modules += ("kernelrl_tinker_server",)
            gpu: Literal["", "any"] = "any" if self.local.device == "cuda" else ""
            return Requires(modules=modules, gpu=gpu, fix="" if gpu else "pip install 'kernelrl-plugin-tinker[local]'")
        return Requires(modules=modules, environment=() if self.has_key else ("TINKER_API_KEY",))

    def prices(self) -> Mapping[str, float]:
        """Of tokens; what a server elsewhere asks is not known here."""
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
        # At an address that was given there may be a `kernelrl tinker-server`, which is asked at the start.
        return frozenset({"token", "sequence"} if self.server == "local" or self._address() else {"token"})

    def _address(self) -> str:
        return self.base_url or os.environ.get("TINKER_BASE_URL") or ""

    @property
    def has_key(self) -> bool:
        """Whether the SDK will find a key, or none is needed since the server is on this machine."""
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
            yield "`server: local` starts its own server; leave out base_url, or server"
        if self.server is None and self.model is None:
            yield "`model` is missing: the base model's name, such as Qwen/Qwen3-8B; or set server: local"
        if self.start_from is not None and not self.start_from.startswith("tinker://"):
            yield f"start_from must be a tinker:// path, not {self.start_from!r}"
        if self.server == "local" and self.start_from is not None:
            yield "start_from needs a server that keeps what it saved: kernelrl tinker-server, and its base_url"
        if self.base_url is not None:
            yield from problems_of_address("base_url", self.base_url)
        if self.server == "local" and self.model is None and self.local.width % (2 * self.local.heads):
            yield f"local.width ({self.local.width}) must be a multiple of twice local.heads ({self.local.heads})"


def problems_of_address(name: str, address: str) -> Iterable[str]:
    """What is wrong with an address, told by the name of its option or variable alone: it may hold a password."""
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        yield f"{name} must be an address such as http://127.0.0.1:8124"
    if "@" in address or "?" in address:
        # A recipe is saved with the run, and messages with an address are logged there: neither may hold a secret.
        yield f"{name} must hold no user, password or query; a key belongs into TINKER_API_KEY"
