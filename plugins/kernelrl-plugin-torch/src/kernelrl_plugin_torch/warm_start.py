"""Supervised training on demonstrations, cached between runs."""

from __future__ import annotations

import hashlib
import json
import math
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import torch

from kernelrl_core.api.config import replace_directory
from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.policies import Message, Prompt, WarmStartExample, continuation_after
from kernelrl_plugin_torch.config import TorchConfig, WarmStart
from kernelrl_plugin_torch.files import read_tensors, write_tensors
from kernelrl_plugin_torch.language_model import LanguageModel, PromptAndReply, rendered, undefined_model
from kernelrl_plugin_torch.learner import clipped_step

__all__ = ["WarmStartCache", "train_on_demonstrations", "warm_start_key"]

_FORMAT = 1
_LINE_EVERY_S = 20.0
"""A line tells the progress at least this often, where a step takes no longer."""


def train_on_demonstrations(
    model: LanguageModel,
    examples: Sequence[WarmStartExample],
    settings: WarmStart,
    *,
    seed: int,
    say: Callable[[str], None],
    stopped: Callable[[], bool] = lambda: False,
    reply_tokens: int = 1,
) -> None:
    """Train a model on the replies of the examples, sampled by their weights.

    The loss is the mean negative log-probability of the reply tokens; prompt tokens have no loss.

    Args:
        reply_tokens: tokens that every prompt must leave for a reply.

    Raises:
        UsageError: no examples, an example longer than the context, or a loss that is NaN.
        InterruptedError: `stopped` returned True.
    """
    corpus = _Corpus(model, examples, reply_tokens)
    parameters = [p for p in model.module.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, betas=(0.9, 0.95), weight_decay=settings.weight_decay)
    generator = np.random.Generator(np.random.Philox(seed))
    model.module.eval()  # no dropout, as in training
    told = time.monotonic()
    for step in range(settings.steps):
        if stopped():
            raise InterruptedError("the warm start was stopped")
        loss = -model.score(corpus.draw(generator, settings)).logprobs.mean()
        if loss.isnan():
            raise undefined_model()
        loss.backward()
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * _schedule(step, settings.steps)
        clipped_step(optimizer, parameters, settings.max_grad_norm)
        regular = step % max(1, settings.steps // 10) == 0 or step == settings.steps - 1
        if regular or time.monotonic() - told >= _LINE_EVERY_S:
            told = time.monotonic()
            say(f"warm start: step {step + 1} of {settings.steps}, loss {loss.item():.3f}")


def _schedule(step: int, steps: int) -> float:
    """Factor of the peak learning rate: linear warm-up over the first tenth, and cosine decay to 0.05."""
    rise = min(1.0, (step + 1) / max(1, steps // 10))
    return rise * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / steps)))


class _Corpus:
    """Examples as tokens, grouped by prompt."""

    def __init__(self, model: LanguageModel, examples: Sequence[WarmStartExample], reply_tokens: int = 1) -> None:
        if not examples:
            raise UsageError(
                "no demonstrations for the supervised warm start: these tasks have none for this backend",
                fix="set policy.warm_start=null, or use tasks with demonstrations, such as `starter`",
                see="warm-start",
            )
        self._prompts: list[tuple[int, ...]] = []
        self._replies: list[list[tuple[int, ...]]] = []
        weights: list[list[float]] = []
        places: dict[tuple[Message, ...], int] = {}
        prompts: list[Prompt] = []
        longest = (0, "")  # the fix must hold for all examples
        for example in examples:
            if example.messages not in places:
                places[example.messages] = len(places)
                prompts.append(rendered(model, example.messages))
                self._prompts.append(prompts[-1].tokens)
                self._replies.append([])
                weights.append([])
            place = places[example.messages]
            reply = model.encode_reply(continuation_after(prompts[place].prefill, example.reply))
            longest = max(longest, (len(self._prompts[place]) + max(len(reply), reply_tokens), example.task_id))
            self._replies[place].append(reply)
            weights[place].append(example.weight)
        length, task_id = longest
        if length > model.context_tokens:
            raise UsageError(
                f"the prompt of {task_id} and a reply need {length} tokens ({reply_tokens} or more for the reply), "
                f"but the model's context has {model.context_tokens}",
                fix=f"set policy.context_tokens={2 ** math.ceil(math.log2(length))}",
                see="context",
            )
        totals = np.array([sum(row) for row in weights])
        if not totals.sum() > 0 or min(min(row) for row in weights) < 0:
            raise UsageError("the weights of the demonstrations must not be negative, nor all 0")
        self._prompt_shares = totals / totals.sum()
        self._reply_shares = [np.array(row) / (sum(row) or 1.0) for row in weights]

    def draw(self, generator: np.random.Generator, settings: WarmStart) -> list[PromptAndReply]:
        """A random batch: distinct prompts by weight, and for each prompt replies by weight."""
        n = min(settings.prompts_per_step, int((self._prompt_shares > 0).sum()))
        batch: list[PromptAndReply] = []
        for place in generator.choice(len(self._prompts), size=n, replace=False, p=self._prompt_shares):
            replies = self._replies[place]
            chosen = generator.choice(len(replies), size=settings.replies_per_prompt, p=self._reply_shares[place])
            batch += [PromptAndReply(self._prompts[place], replies[index]) for index in chosen]
        return batch


def warm_start_key(config: TorchConfig, demonstrations_key: str, seed: int) -> str:
    """Name of a cached warm start: a hash of everything that its weights depend on."""
    import tokenizers

    described = {
        "format": _FORMAT,
        "demonstrations": demonstrations_key,
        "options": attrs.asdict(config),
        "warm_start": attrs.asdict(config.warm_start_settings) if config.warm_start_settings else None,
        "seed": seed,
        "torch": torch.__version__,
        "tokenizers": tokenizers.__version__,
        "machine": platform.machine(),
    }
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:32]


class WarmStartCache:
    """Cache of finished warm starts, one directory each.

    An entry is written under a temporary name and renamed when it is complete. It contains the hash of its content, so
    a damaged entry is detected and computed again.
    """

    _CONTENT = "warm_start.pt"
    _HASH = "sha256"

    def __init__(self, directory: Path, say: Callable[[str], None]) -> None:
        self._directory = directory / "torch-warm-start"
        self._say = say

    def get(self, key: str) -> dict[str, Any] | None:
        """The content of a key: `weights`, and `tokenizer` from scratch; None if it is missing or damaged."""
        entry = self._directory / key
        if not entry.exists():
            return None
        try:
            content = entry / self._CONTENT
            if _file_hash(content) != (entry / self._HASH).read_text(encoding="ascii"):
                raise ValueError("the content does not match its hash")
            loaded: dict[str, Any] = read_tensors(content)
        except Exception as error:
            self._say(f"warm start: the cached weights are damaged and are computed again ({entry}: {error})")
            return None
        return loaded

    def put(self, key: str, content: dict[str, Any]) -> None:
        """Store a finished warm start. An unwritable cache is reported to the user and is not an error."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            made = Path(tempfile.mkdtemp(prefix=f".{key}.", dir=self._directory))
        except OSError as error:
            self._say(f"warm start: not cached ({error})")
            return
        try:
            write_tensors(made / self._CONTENT, content)
            (made / self._HASH).write_text(_file_hash(made / self._CONTENT), encoding="ascii")
            replace_directory(made, self._directory / key)
        except OSError as error:
            self._say(f"warm start: not cached ({error})")
        finally:
            shutil.rmtree(made, ignore_errors=True)


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
