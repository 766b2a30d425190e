"""Sampling sessions, and parsing of sampling requests."""

from __future__ import annotations

import math
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import attrs

from kernelrl_core.api.errors import LookupFailed, UsageError
from kernelrl_core.api.policies import SamplingSettings
from kernelrl_tinker_server.engine import Engine, Weights
from kernelrl_tinker_server.models import ServedModel
from kernelrl_tinker_server.scoring import PromptQuery
from kernelrl_tinker_server.store import CheckpointPath, Store
from kernelrl_tinker_server.wire import refuse_stability_info
from kernelrl_tinker_server.worker import Sampling

__all__ = ["SamplerBook", "make_sampling", "read_sampling"]

_LOADED = 4
"""Number of sampler weights that are kept in memory."""
_UNNAMED = 16
"""Number of the newest unnamed weights of a run that are kept on disk."""


class SamplerBook:
    """Sampling sessions by id. They are stored in files, so a restarted server still has them."""

    def __init__(self, store: Store, engine: Engine, served: ServedModel) -> None:
        self._store, self._engine, self._served = store, engine, served
        self._weights: OrderedDict[CheckpointPath, Weights] = OrderedDict()
        self._unnamed: dict[str, list[CheckpointPath]] = {}
        self._lock = threading.Lock()

    def open(self, name: str, model: str, path: CheckpointPath | None, *, unnamed: bool = False) -> None:
        """Open a session that samples from a checkpoint, or from the initial weights (`path` None).

        Args:
            unnamed: the checkpoint is temporary; only the newest ones of a run are kept.

        Raises:
            UsageError: the checkpoint does not exist or is of another model.
        """
        self.load(path)
        self._store.put("samplers", name, {"model": model, "path": None if path is None else str(path)})
        if unnamed and path is not None:
            kept = self._unnamed.setdefault(path.run, [])
            kept.append(path)
            while len(kept) > _UNNAMED:
                self._store.delete(kept.pop(0))

    def about(self, name: str) -> Mapping[str, Any]:
        found = self._store.get("samplers", name)
        if found is None:
            raise LookupFailed(f"there is no sampling session {name!r}")
        return found

    def weights(self, name: str) -> Weights:
        """The weights of a session."""
        path = self.about(name)["path"]
        return self.load(None if path is None else CheckpointPath.parse(path))

    def load(self, path: CheckpointPath | None) -> Weights:
        """The weights of a checkpoint, or the initial ones.

        Raises:
            UsageError: the checkpoint does not exist or is of another model.
        """
        if path is None:
            return self._engine.base
        with self._lock:
            found = self._weights.pop(path, None)
            if found is None:
                self._served.check(self._store.about(path)["model"])
                found = self._engine.checked(self._store.load(path, optimizer=False)[0])
            self._weights[path] = found
            if len(self._weights) > _LOADED:
                self._weights.popitem(last=False)
            return found


def read_sampling(body: Mapping[str, Any], weights: Weights, engine: Engine, served: ServedModel) -> Sampling:
    """Parse a sampling request of the SDK.

    Raises:
        UsageError: the prompt is too long, or the request has an unsupported option.
    """
    if body.get("record_stability_info"):
        raise refuse_stability_info()
    for name, instead in (
        ("topk_sample_logprobs", "request topk_prompt_logprobs for the prompt with its reply"),
        ("prompt_alt_tokens_k", "request topk_prompt_logprobs"),
    ):
        if body.get(name):
            raise UsageError(f"this server does not support {name}", fix=instead)
    chunks = body["prompt"]["chunks"]
    if any("tokens" not in chunk for chunk in chunks):
        raise UsageError("this server supports only text; the prompt has an image or audio")
    prompt = tuple(int(token) for chunk in chunks for token in chunk["tokens"])
    given = body["sampling_params"]
    sampling = make_sampling(prompt, given, int(body.get("num_samples", 1)), weights, engine, served)
    return attrs.evolve(sampling, query=PromptQuery.from_request(body, prompt))


def make_sampling(
    prompt: tuple[int, ...],
    given: Mapping[str, Any],
    n: int,
    weights: Weights,
    engine: Engine,
    served: ServedModel,
) -> Sampling:
    """A request for replies to a prompt.

    Args:
        given: `max_tokens`, `temperature`, `top_p`, `top_k`, `stop` and `seed`, as in Tinker's `SamplingParams`.
        n: number of replies; reply k uses seed + k.

    Raises:
        UsageError: the prompt is too long, or a setting is invalid.
    """
    engine.check_tokens(prompt)
    available = engine.model.context_tokens - len(prompt)
    if not prompt:
        raise UsageError("the prompt is empty", fix="send at least one token")
    if available < 1:
        raise UsageError(
            f"the prompt has {len(prompt)} tokens; the model's context has {engine.model.context_tokens}",
            fix=f"send at most {engine.model.context_tokens - 1}, which leaves one for the reply, or start the server "
            "with a greater --context-tokens if the model allows it",
            see="context",
        )
    temperature, top_p = float(given.get("temperature", 1.0)), float(given.get("top_p", 1.0))
    for name, value, valid in (
        ("the number of replies", n, n >= 1),
        ("temperature", temperature, 0 <= temperature < math.inf),
        ("top_p", top_p, 0 < top_p <= 1),
    ):
        if not valid:
            raise UsageError(f"{name} cannot be {value}")
    stop_tokens, strings = _stops(given.get("stop"), served)
    seed = given.get("seed")
    first = int.from_bytes(os.urandom(7)) if seed is None else int(seed)
    settings = [
        SamplingSettings(
            max_tokens=min(int(given.get("max_tokens") or available), available),
            temperature=temperature,
            top_p=top_p,
            top_k=int(given.get("top_k", -1)),
            stop=strings,
            seed=(first + index) % 2**63,
        )
        for index in range(n)
    ]
    return Sampling(weights, prompt, settings, stop_tokens, None)


def _stops(stop: Any, served: ServedModel) -> tuple[frozenset[int] | None, tuple[str, ...]]:
    """Stop tokens (None: the model's own) and stop strings; the text of a special token becomes a stop token."""
    if stop is None:
        return None, ()
    items = [stop] if isinstance(stop, str | int) else list(stop)
    tokens = {item for item in items if isinstance(item, int)}
    tokens |= {served.special_tokens[item] for item in items if item in served.special_tokens}
    strings = tuple(item for item in items if isinstance(item, str) and item not in served.special_tokens)
    return frozenset(tokens), strings
