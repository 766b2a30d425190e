"""Composes the messages of a turn and fits them into the context.

The conversation of turn t is the base prompt, then for each earlier attempt that is shown, in the order of the turns,
the attempt as the model's message and its feedback as the user's. A message stays word for word the same in later
turns (only examples may leave after the first), so servers can reuse their caches. With `history.form: prompt` the
attempts and their feedback stand at the end of the base prompt instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kernelrl_core.errors import UsageError
from kernelrl_core.interfaces.backends import BackendFacts
from kernelrl_core.prompts.extraction import canonical_source, extract
from kernelrl_core.prompts.hardware import hardware_block
from kernelrl_core.prompts.history import raw_reply, shown_turns
from kernelrl_core.prompts.templates import Template, fence_for
from kernelrl_core.recipe.schema import HistorySettings, PromptSettings
from kernelrl_core.types import EvaluationSettings, Example, Message, Prompt, Rule, Task, Turn

__all__ = ["MINIMUM_REPLY_TOKENS", "Composer"]

MINIMUM_REPLY_TOKENS = 256
"""`Composer.fit` never shortens the reply's limit below this (or below what was asked, if that is less)."""

THINK_PREFIX = "<think>\n"
"""Beginning of the reply where the recipe says `think_prefix`: the content of a last message of the assistant."""

_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
_TOLERANCES = {"fp32": 1e-4, "fp16": 1e-2, "bf16": 1e-2}


class Composer:
    """Words prompts as the recipe says.

    Args:
        settings: the recipe's `prompt` block.
        history: the recipe's `history` block.
        backend: what the backend wants said.
        rules: the rules that are stated, in this order.
        evaluation: how candidates are judged; precision and tolerance are stated from it.
    Raises:
        UsageError: the template or the GPU is unknown, or the template is faulty.
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
        self._check_reply()

    def messages(
        self, task: Task, *, examples: Sequence[Example] = (), turns: Sequence[Turn] = ()
    ) -> tuple[Message, ...]:
        """The conversation up to the next reply.

        Args:
            task: what is asked.
            examples: retrieved examples, best first; shown before the backend's own.
            turns: the earlier turns of the attempt, in order.
        Raises:
            UsageError: the template fails.
        """
        return self._messages(task, examples, shown_turns(turns, self._history), first=not turns)

    def fit(
        self,
        task: Task,
        *,
        render: Callable[[Sequence[Message]], Prompt],
        context_tokens: int,
        max_tokens: int,
        examples: Sequence[Example] = (),
        turns: Sequence[Turn] = (),
    ) -> tuple[Prompt, int]:
        """The rendered conversation and the reply's limit, such that both fit into the context.

        The oldest attempts are dropped first, then retrieved examples from the last on, while the newest attempt stays.
        Next the reply's limit is lowered, though not below `MINIMUM_REPLY_TOKENS`, and last the newest attempt goes.

        Args:
            render: the policy's chat template and tokeniser.
            context_tokens: longest prompt and reply together.
            max_tokens: limit of the reply that is asked for.
        Raises:
            UsageError: even the bare task does not fit.
        """
        limit = min(self._settings.max_tokens or context_tokens, context_tokens)
        minimum = min(max_tokens, MINIMUM_REPLY_TOKENS)
        prompt: Prompt | None = None
        for candidates in self._stages(task, examples, turns):
            for messages in candidates:
                prompt = render(messages)
                if len(prompt.tokens) <= min(limit, context_tokens - max_tokens):
                    return prompt, max_tokens
            # The last candidate of a stage is its shortest.
            if prompt is not None and len(prompt.tokens) <= min(limit, context_tokens - minimum):
                return prompt, context_tokens - len(prompt.tokens)
        size = 0 if prompt is None else len(prompt.tokens)
        raise UsageError(
            f"task {task.id}: its prompt has {size} tokens, with the limit at {limit} tokens and a context of "
            f"{context_tokens} tokens, of which the reply needs at least {minimum}",
            fix="prompt.template=brief, prompt.shots=zero, a larger prompt.max_tokens, or a policy with more context",
        )

    def reply_text(self, source: str, *, summary: str = "") -> str:
        """A source worded as the reply that the prompt asks for. `extract` of it gives `canonical_source(source)`."""
        source = canonical_source(source)
        return self._template.render("reply", {"source": source, "fence": fence_for(source), "summary": summary})

    def _stages(
        self, task: Task, examples: Sequence[Example], turns: Sequence[Turn]
    ) -> Iterator[Iterator[tuple[Message, ...]]]:
        """Conversations from the fullest to the barest, in stages between which the reply's limit is lowered."""
        shown = shown_turns(turns, self._history)
        first = not turns

        def shrinking() -> Iterator[tuple[Message, ...]]:
            for dropped in range(max(1, len(shown))):
                yield self._messages(task, examples, shown[dropped:], first=first)
            for kept in reversed(range(len(examples))):
                yield self._messages(task, examples[:kept], shown[-1:], first=first)

        yield shrinking()
        if shown:
            yield iter([self._messages(task, (), (), first=False)])

    def _messages(
        self, task: Task, examples: Sequence[Example], shown: Sequence[Turn], *, first: bool
    ) -> tuple[Message, ...]:
        values = self._constant | {
            "task": task,
            "examples": (*examples, *self._own_examples(first)),
            "precision": self._precision(task),
            "tests": self._evaluation.for_task(task),
        }
        asked = self._template.render("user", values)
        if shown and self._history.form == "prompt":
            attempts = [{**_told(turn), "reply": self._attempt(turn)} for turn in shown]
            asked += "\n\n" + self._template.render("history", values | {"attempts": attempts})
        messages = [Message("user", asked)]
        if system := self._template.render("system", values):
            messages.insert(0, Message("system", system))
        for turn in shown if self._history.form == "chat" else ():
            messages.append(Message("assistant", self._attempt(turn)))
            messages.append(Message("user", self._template.render("feedback", values | _told(turn))))
        if self._settings.think_prefix:
            messages.append(Message("assistant", THINK_PREFIX))
        return tuple(messages)

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
        name = task.precision or evaluation.precision
        atol = _TOLERANCES[name] if evaluation.atol is None else evaluation.atol
        rtol = _TOLERANCES[name] if evaluation.rtol is None else evaluation.rtol
        return {"dtype": _DTYPES[name], "atol": f"{atol:g}", "rtol": f"{rtol:g}"}

    def _attempt(self, turn: Turn) -> str:
        kept = self._history.thinking == "kept"
        candidate = turn.candidate
        if candidate is None:
            return raw_reply(turn, with_thinking=kept)
        reply = self.reply_text(candidate.source, summary=turn.extraction.summary if self._ask_summary else "")
        thinking = turn.extraction.thinking.strip()
        return f"<think>\n{thinking}\n</think>\n\n{reply}" if kept and thinking else reply

    def _check_reply(self) -> None:
        source = "class ModelNew:\n    pass\n"
        found = extract(self.reply_text(source), fences=self._backend.fences, backend="").candidate
        if found is None or found.source != source:
            raise UsageError(
                f"prompt.template: the `reply` block of {self._template.name} words an answer that is not read back",
                fix="put {{ source }} into a fenced block: {{ fence }}python, a line break, {{ source }}{{ fence }}",
            )


def _told(turn: Turn) -> dict[str, Any]:
    """What templates are told of a turn."""
    return {"feedback": turn.feedback.strip(), "turn": turn.id.turn + 1, "outcome": turn.outcome.value}
