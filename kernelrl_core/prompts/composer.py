"""Composes the messages of a turn and fits them into the context.

The messages of turn t are the base prompt and, for each earlier turn that is shown, an assistant message with its reply
and a user message with its feedback, in the order of the turns. Later turns repeat these messages unchanged (only
examples may be absent after the first turn), so servers can reuse their prefix caches. With `history.form: prompt`, the
earlier turns are at the end of the base prompt instead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from kernelrl_core.errors import UsageError
from kernelrl_core.interfaces.backends import BackendFacts
from kernelrl_core.prompts.extraction import canonical_source, extract
from kernelrl_core.prompts.hardware import hardware_block
from kernelrl_core.prompts.history import raw_reply, shown_turns
from kernelrl_core.prompts.templates import Template, fence_for
from kernelrl_core.recipe.schema import HistorySettings, PromptSettings
from kernelrl_core.types import EvaluationSettings, Example, Message, Prompt, Rule, Task, Turn
from kernelrl_sources.dtypes import is_floating, named_dtypes

__all__ = ["MINIMUM_REPLY_TOKENS", "Composer", "FittedPrompt"]

_log = logging.getLogger(__name__)

MINIMUM_REPLY_TOKENS = 256
"""`Composer.fit` never lowers the reply limit below this number, or below the requested limit if that is smaller."""

THINK_PREFIX = "<think>\n"
"""Prefill of the reply with `prompt.think_prefix`: the content of a final assistant message."""

_DTYPES = {"task": "as in the reference", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
_TOLERANCES = {
    "task": "0.0001 (float16 and bfloat16: 0.01)",
    "fp32": "0.0001",
    "fp16": "0.01",
    "bf16": "0.01",
}


@attrs.frozen
class FittedPrompt:
    """A prompt that fits into the context."""

    prompt: Prompt
    """The rendered prompt."""
    max_tokens: int
    """Reply limit in tokens."""
    examples: tuple[Example, ...]
    """Examples in the prompt: retrieved ones, or else the backend's own."""


class Composer:
    """Composes prompts with the settings of a recipe.

    Args:
        settings: the recipe's `prompt` block.
        history: the recipe's `history` block.
        backend: instructions and examples of the backend.
        rules: stated rules, in the order of the prompt.
        evaluation: evaluation settings; the prompt states precision and tolerances from them.

    Raises:
        UsageError: the template or the GPU is unknown, or the template has an error.
        MissingPrerequisite: `prompt.hardware.gpu` is `auto` and this machine has no NVIDIA GPU.
    """

    def __init__(
        self,
        settings: PromptSettings,
        history: HistorySettings,
        backend: BackendFacts,
        rules: Sequence[Rule],
        evaluation: EvaluationSettings,
    ) -> None:
        self._settings = settings
        self._history = history
        self._backend = backend
        self._evaluation = evaluation
        self._template = Template(settings.template)
        self._ask_summary = settings.summary or history.thinking == "summarised"
        self._constant: dict[str, Any] = {
            "backend": backend,
            "rules": tuple(dict.fromkeys(rule.statement for rule in rules)),
            "hardware": hardware_block(settings.hardware.gpu) if settings.hardware is not None else None,
            "ask_summary": self._ask_summary,
            "ask_thinking": settings.think_prefix,
        }
        self._reported = False
        self._check_reply()

    def messages(
        self, task: Task, *, examples: Sequence[Example] = (), turns: Sequence[Turn] = ()
    ) -> tuple[Message, ...]:
        """The messages before the next reply, without fitting into a context.

        Args:
            examples: retrieved examples, best first. They replace the backend's own.
            turns: earlier turns of the episode, in order.

        Raises:
            UsageError: the template has an error.
        """
        first = not turns
        return self._messages(task, self._shown(examples, first), shown_turns(turns, self._history))

    def fit(
        self,
        task: Task,
        *,
        render: Callable[[Sequence[Message]], Prompt],
        context_tokens: int,
        max_tokens: int,
        examples: Sequence[Example] = (),
        turns: Sequence[Turn] = (),
    ) -> FittedPrompt:
        """The rendered prompt and the reply limit, which together fit into the context.

        A prompt that is too long is shortened in this order: remove the oldest turns except the newest one; remove
        retrieved examples, last first, and show the backend's own when none is left; lower the reply limit, but not
        below `MINIMUM_REPLY_TOKENS`; remove the newest turn.

        Args:
            render: chat template and tokenizer of the policy.
            context_tokens: maximum number of tokens of prompt plus reply.
            max_tokens: requested reply limit.
            examples: retrieved examples, best first. They replace the backend's own.
            turns: earlier turns of the episode, in order.

        Raises:
            UsageError: the prompt does not fit even without examples and turns, or the template has an error.
        """
        limit = min(self._settings.max_tokens or context_tokens, context_tokens)
        minimum = min(max_tokens, MINIMUM_REPLY_TOKENS)
        prompt: Prompt | None = None
        shown: tuple[Example, ...] = ()
        for level in self._levels(examples, turns):
            for shown, earlier in level:
                prompt = render(self._messages(task, shown, earlier))
                if len(prompt.tokens) <= min(limit, context_tokens - max_tokens):
                    return FittedPrompt(prompt, max_tokens, shown)
            # The last prompt of a level is its shortest.
            if prompt is not None and len(prompt.tokens) <= min(limit, context_tokens - minimum):
                self._report_short_reply(task, context_tokens - len(prompt.tokens), max_tokens, context_tokens)
                return FittedPrompt(prompt, context_tokens - len(prompt.tokens), shown)
        size = 0 if prompt is None else len(prompt.tokens)
        shorter = "shorten the prompt with prompt.template or prompt.shots"
        if size > limit and limit < context_tokens:
            message = f"task {task.id}: its prompt has {size} tokens, more than prompt.max_tokens={limit}"
            raise UsageError(message, fix=f"set prompt.max_tokens={size} or more, or {shorter}", see="context")
        raise UsageError(
            f"task {task.id}: its prompt has {size} tokens, and at least {minimum} must remain for the reply, but the "
            f"context of the policy has {context_tokens}",
            fix=f"raise policy.context_tokens to {size + minimum} or more, choose a policy with a longer context, or "
            f"{shorter}",
            see="context",
        )

    def _report_short_reply(self, task: Task, tokens: int, wanted: int, context_tokens: int) -> None:
        """Log the first lowered reply limit."""
        if not self._reported:
            self._reported = True
            _log.warning(
                "a reply for task %s is limited to %d tokens instead of sampling.max_tokens=%d, because the context of "
                "the policy has %d tokens; further cases are not reported",
                task.id, tokens, wanted, context_tokens,
            )  # fmt: skip

    def reply_text(self, source: str, *, summary: str = "") -> str:
        """A reply with `source` in the requested format. Its extraction is `canonical_source(source)`."""
        source = canonical_source(source)
        return self._template.render("reply", {"source": source, "fence": fence_for(source), "summary": summary})

    def _levels(
        self, examples: Sequence[Example], turns: Sequence[Turn]
    ) -> Iterator[Iterator[tuple[tuple[Example, ...], Sequence[Turn]]]]:
        """Examples and turns of prompts, longest first, in levels. The reply limit is lowered before the next level is
        tried."""
        earlier = shown_turns(turns, self._history)
        first = not turns

        def shrinking() -> Iterator[tuple[tuple[Example, ...], Sequence[Turn]]]:
            for dropped in range(max(1, len(earlier))):
                yield self._shown(examples, first), earlier[dropped:]
            for kept in reversed(range(len(examples))):
                yield self._shown(examples[:kept], first), earlier[-1:]

        yield shrinking()
        if earlier:
            yield iter([(self._own_examples(first), ())])

    def _messages(self, task: Task, examples: tuple[Example, ...], shown: Sequence[Turn]) -> tuple[Message, ...]:
        values = self._constant | {
            "task": task,
            "examples": examples,
            "precision": self._precision(task),
            "tests": self._evaluation.for_task(task),
        }
        user_text = self._template.render("user", values)
        if shown and self._history.form == "prompt":
            attempts = [{**_turn_values(turn), "reply": self._reply_message(turn)} for turn in shown]
            user_text += "\n\n" + self._template.render("history", values | {"attempts": attempts})
        messages = [Message("user", user_text)]
        if system := self._template.render("system", values):
            messages.insert(0, Message("system", system))
        for turn in shown if self._history.form == "chat" else ():
            messages.append(Message("assistant", self._reply_message(turn)))
            messages.append(Message("user", self._template.render("feedback", values | _turn_values(turn))))
        if self._settings.think_prefix:
            messages.append(Message("assistant", THINK_PREFIX))
        return tuple(messages)

    def _shown(self, retrieved: Sequence[Example], first: bool) -> tuple[Example, ...]:
        return tuple(retrieved) or self._own_examples(first)

    def _own_examples(self, first: bool) -> tuple[Example, ...]:
        if self._settings.shots == "zero" or not (first or self._settings.example_turns == "all"):
            return ()
        if self._settings.shots == "few" and self._backend.few_shot:
            return self._backend.few_shot
        return (self._backend.example,)

    def _precision(self, task: Task) -> dict[str, str] | None:
        if not self._settings.state_precision:
            return None
        evaluation = self._evaluation.for_task(task)
        name = evaluation.cast or "task"
        dtype = _DTYPES[name]
        if evaluation.cast is None:
            named = [each for each in named_dtypes(task.reference) if is_floating(each)]
            dtype += f", which names {', '.join(named)}" if named else ""
        return {
            "dtype": dtype,
            "atol": _tolerance(name, evaluation.atol),
            "rtol": _tolerance(name, evaluation.rtol),
        }

    def _reply_message(self, turn: Turn) -> str:
        with_thinking = self._history.thinking == "kept"
        candidate = turn.candidate
        if candidate is None:
            return raw_reply(turn, with_thinking=with_thinking)
        reply = self.reply_text(candidate.source, summary=turn.extraction.summary if self._ask_summary else "")
        thinking = turn.extraction.thinking.strip()
        return f"<think>\n{thinking}\n</think>\n\n{reply}" if with_thinking and thinking else reply

    def _check_reply(self) -> None:
        source = "class ModelNew:\n    pass\n"
        found = extract(self.reply_text(source), fences=self._backend.fences, backend="").candidate
        if found is None or found.source != source:
            raise UsageError(
                f"prompt.template: the `reply` block of {self._template.name} renders a reply from which no kernel "
                "can be extracted",
                fix="put {{ source }} into a fenced block: {{ fence }}python, a line break, {{ source }}{{ fence }}",
                see="prompt-template",
            )


def _tolerance(precision: str, declared: float | None) -> str:
    """A tolerance as text: the declared one, or the defaults of the dtypes that outputs may have."""
    if declared is not None:
        return f"{declared:g}"
    return _TOLERANCES[precision]


def _turn_values(turn: Turn) -> dict[str, Any]:
    """Template variables of an earlier turn."""
    return {"feedback": turn.feedback.strip(), "turn": turn.id.turn + 1, "outcome": turn.outcome.value}
