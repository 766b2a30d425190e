"""Rules about prompts and replies: templates, the limits of the context, and sampling."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import attrs

from kernelrl_core.errors import KernelRLError, UsageError
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.plugins.use import Use
from kernelrl_core.prompts.composer import MINIMUM_REPLY_TOKENS, Composer
from kernelrl_core.prompts.hardware import hardware_block
from kernelrl_core.prompts.templates import BUILTIN, Template
from kernelrl_core.recipe.rules.contradiction import Contradiction
from kernelrl_core.recipe.schema import EvalSettings, HistorySettings, PromptSettings, SamplingOptions, TrainSettings
from kernelrl_core.tasks.selection import training_tasks
from kernelrl_core.types import EvaluationSettings, Task

__all__ = ["context", "sampling_settings", "template"]

_MOST_CHARACTERS_PER_TOKEN, _FEWEST_CHARACTERS_PER_TOKEN = 40, 3
"""Range over all tokenizers. One that is trained on the prompts themselves has up to 30 characters per token."""


def context(
    policy: Use,
    sampling: SamplingOptions,
    prompt: PromptSettings,
    history: HistorySettings,
    tasks: Use,
    train: TrainSettings,
    eval: EvalSettings,  # noqa: A002
    backend: Use,
    evaluation: EvaluationSettings,
    registry: Registry,
) -> Iterator[Contradiction]:
    """Limits that are certainly too small for the longest prompt, which is measured in characters."""
    options = policy.options
    limit, most = options.context_limit(), prompt.max_tokens
    if limit is None and most is None:
        return
    longest = _longest_task(tasks, train, eval, registry)
    characters = _prompt_characters(longest, prompt, history, backend, evaluation, registry) if longest else 0
    fewest = max(1, characters // _MOST_CHARACTERS_PER_TOKEN)
    enough = max(1, characters // _FEWEST_CHARACTERS_PER_TOKEN)
    if most is not None and most < fewest:
        message = f"the longest first prompt has {fewest} tokens or more"
        yield Contradiction(("prompt", "max_tokens"), message, f"set it to {enough} or more")
    reply = min(MINIMUM_REPLY_TOKENS, sampling.max_tokens)
    if limit is not None and limit < fewest + reply:
        key = _context_key(options, limit)
        message = (
            f"a context of {limit} tokens cannot hold a prompt (the longest has {fewest} tokens or more) and a reply "
            f"of {reply} tokens"
        )
        fitting = 2 ** math.ceil(math.log2(enough + sampling.max_tokens))
        yield Contradiction(("policy", *key), message, f"set it to {fitting}" if key else "")


def _longest_task(tasks: Use, train: TrainSettings, eval: EvalSettings, registry: Registry) -> Task | None:  # noqa: A002
    """The training task with the longest reference; None if the tasks cannot be read here."""
    if tasks.options.remote():
        return None
    try:
        selected, _ = training_tasks(registry.make("tasks", tasks), train, eval.split)
        return max(selected, key=lambda task: len(task.reference))
    except Exception:  # plugin code, or a missing prerequisite; reported by other rules
        return None


def _prompt_characters(
    task: Task,
    prompt: PromptSettings,
    history: HistorySettings,
    backend: Use,
    evaluation: EvaluationSettings,
    registry: Registry,
) -> int:
    """Characters of the first prompt of a task; 0 if it cannot be composed here."""
    try:
        facts = registry.make("backends", backend).facts
        composer = Composer(prompt, history, facts, (), evaluation)
        return sum(len(message.content) for message in composer.messages(task))
    except Exception:  # plugin code, or a missing prerequisite; reported by other rules
        return 0


def _context_key(options: Any, limit: int) -> tuple[str, ...]:
    """Path of the option that sets the context of a policy: the one with the value `limit`, else that of the policy
    itself."""
    fields = attrs.asdict(options, recurse=False)
    nested = {name: value for name, value in fields.items() if attrs.has(type(value))}
    inside = [name for name, value in nested.items() if getattr(value, "context_tokens", 0) == limit]
    if "context_tokens" in fields and (fields["context_tokens"] == limit or not inside):
        return ("context_tokens",)
    return (inside[0], "context_tokens") if inside else ()


def sampling_settings(sampling: SamplingOptions) -> Iterator[Contradiction]:
    """Settings that no token or no reply satisfies."""
    if sampling.extend is not None and sampling.extend.max_tokens <= sampling.max_tokens:
        message = f"{sampling.extend.max_tokens} is not above sampling.max_tokens ({sampling.max_tokens})"
        yield Contradiction(("sampling", "extend", "max_tokens"), message)
    if "" in sampling.stop:
        yield Contradiction(("sampling", "stop"), "an empty string ends every reply before its first token")
    if not sampling.top_p:
        hint = "set it to 1 for all tokens, or sampling.temperature to 0 for the most probable one"
        yield Contradiction(("sampling", "top_p"), "0 excludes every token", hint)
    if sampling.top_k == 0 or sampling.top_k < -1:
        yield Contradiction(("sampling", "top_k"), f"cannot sample from {sampling.top_k} tokens", "-1 means all")


def template(prompt: PromptSettings) -> Iterator[Contradiction]:
    """A template that cannot be used, or an unknown GPU."""
    if prompt.hardware is not None and prompt.hardware.gpu != "auto":  # auto: the GPU of another machine
        try:
            hardware_block(prompt.hardware.gpu)
        except UsageError as error:
            message = error.message.removeprefix("prompt.hardware.gpu: ")
            yield Contradiction(("prompt", "hardware", "gpu"), message, error.fix)
    if prompt.template in BUILTIN:
        return
    try:
        Template(prompt.template)
    except KernelRLError as error:
        yield Contradiction(("prompt", "template"), error.message.removeprefix("prompt.template: "), error.fix)
