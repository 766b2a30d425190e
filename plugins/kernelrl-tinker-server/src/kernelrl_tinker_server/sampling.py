"""Sampling sessions, and parsing of sampling requests."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from kernelrl_core.api.errors import LookupFailed, UsageError
from kernelrl_core.api.policies import SamplingSettings
from kernelrl_plugin_torch.language_model import LanguageModel
from kernelrl_tinker_server.engine import Engine, Weights
from kernelrl_tinker_server.models import ServedModel
from kernelrl_tinker_server.store import CheckpointPath, Store
from kernelrl_tinker_server.worker import Sampling

__all__ = ["SamplerBook", "read_sampling"]

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
        self._load(path)
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
        return self._load(None if path is None else CheckpointPath.parse(path))

    def _load(self, path: CheckpointPath | None) -> Weights:
        if path is None:
            return self._engine.base
        with self._lock:
            found = self._weights.pop(path, None)
            if found is None:
                self._served.check(self._store.about(path)["model"], None)
                found = self._engine.checked(self._store.load(path, optimizer=False)[0])
            self._weights[path] = found
            if len(self._weights) > _LOADED:
                self._weights.popitem(last=False)
            return found


def read_sampling(body: Mapping[str, Any], weights: Weights, model: LanguageModel, served: ServedModel) -> Sampling:
    """Parse a sampling request of the SDK.

    Raises:
        UsageError: the prompt is too long, or the request has an unsupported option.
    """
    for name in ("topk_prompt_logprobs", "topk_sample_logprobs", "target_prompt_logprobs", "prompt_alt_tokens_k"):
        if body.get(name):
            raise UsageError(f"this server does not support {name}")
    chunks = body["prompt"]["chunks"]
    if any("tokens" not in chunk for chunk in chunks):
        raise UsageError("this server supports only text; the prompt has an image or audio")
    prompt = tuple(int(token) for chunk in chunks for token in chunk["tokens"])
    available = model.context_tokens - len(prompt)
    if not prompt or available < 1:
        raise UsageError(
            f"the prompt has {len(prompt)} tokens; it must have at least 1 and fewer than the context's "
            f"{model.context_tokens}"
        )
    given = body["sampling_params"]
    stop_tokens, strings = _stops(given.get("stop"), served)
    seed = given.get("seed")
    first = int.from_bytes(os.urandom(7)) if seed is None else int(seed)
    settings = [
        SamplingSettings(
            max_tokens=min(int(given.get("max_tokens") or available), available),
            temperature=float(given.get("temperature", 1.0)),
            top_p=float(given.get("top_p", 1.0)),
            top_k=int(given.get("top_k", -1)),
            stop=strings,
            seed=(first + index) % 2**63,
        )
        for index in range(int(body.get("num_samples", 1)))
    ]
    scored = None
    if body.get("prompt_logprobs"):
        scored = min(int(body.get("prompt_logprobs_last_n") or len(prompt)), len(prompt) - 1)
    return Sampling(weights, prompt, settings, stop_tokens, scored)


def _stops(stop: Any, served: ServedModel) -> tuple[frozenset[int] | None, tuple[str, ...]]:
    """Stop tokens (None: the model's own) and stop strings; the text of a special token becomes a stop token."""
    if stop is None:
        return None, ()
    items = [stop] if isinstance(stop, str | int) else list(stop)
    tokens = {item for item in items if isinstance(item, int)}
    tokens |= {served.special_tokens[item] for item in items if item in served.special_tokens}
    strings = tuple(item for item in items if isinstance(item, str) and item not in served.special_tokens)
    return frozenset(tokens), strings
