"""Messages into tokens and replies into text, by a renderer of tinker-cookbook or a tokenizer's own chat template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tinker_cookbook import model_info, renderers, tokenizer_utils

from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.policies import Message, Prompt, Reply, open_think_tag, prompt_opening, split_prefill

__all__ = ["CHAT_TEMPLATE", "ChatRenderer", "recommended_renderer"]

CHAT_TEMPLATE = "chat_template"
"""Name that stands for the template of the tokenizer, for models that the cookbook does not know."""


@dataclass(frozen=True)
class ChatRenderer:
    """How a model is spoken to. Plain text, so that it can be sent to other processes."""

    tokenizer: str
    """Model whose tokenizer is used."""
    renderer: str
    """Name of a renderer of the cookbook, or `CHAT_TEMPLATE`."""
    context_tokens: int
    """Longest prompt and reply together."""

    def render(self, messages: Sequence[Message]) -> Prompt:
        """Tokens up to where the reply begins; a last message of the assistant is its beginning."""
        renderer, tokenizer = _renderer(self), self.load_tokenizer()
        shown, prefill = split_prefill(messages)
        asked = [renderers.Message(role=message.role, content=message.content) for message in shown]
        if renderer is None:
            text = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
            text += prefill if not open_think_tag(text) else ""
            return Prompt(
                tuple(messages), tuple(tokenizer.encode(text, add_special_tokens=False)), open_think_tag(text)
            )
        tokens = renderer.build_generation_prompt(asked).to_ints()
        # Renderers of thinking models open the thinking by themselves.
        if prefill and not prompt_opening(tokens, tokenizer.decode):
            tokens = renderer.build_generation_prompt(asked, prefill=prefill).to_ints()
        return Prompt(tuple(messages), tuple(tokens), prompt_opening(tokens, tokenizer.decode))

    def stops(self) -> Any:
        """What ends a reply."""
        renderer = _renderer(self)
        return [self.load_tokenizer().eos_token_id] if renderer is None else renderer.get_stop_sequences()

    def reply(self, prompt: Prompt, tokens: Sequence[int], *, cut: bool) -> Reply:
        """What was sampled, as the core reads it. Log-probabilities stay with the cookbook.

        Args:
            cut: it ended at the limit of tokens.
        """
        renderer, tokenizer = _renderer(self), self.load_tokenizer()
        if renderer is None:
            whole = tokens[-1:] == [tokenizer.eos_token_id]
            text, thinking = tokenizer.decode(tokens[:-1] if whole else tokens), None
        else:
            _, prefill = split_prefill(prompt.messages)
            begun = tokenizer.encode(prompt.prefill, add_special_tokens=False) if prefill else []
            message, termination = renderer.parse_response([*begun, *tokens])
            whole = termination.is_clean
            if not whole:
                # What has no end is not parsed at all, so that thinking in marks other than tags would not be told
                # apart.
                message, _ = renderer.parse_response([*begun, *tokens, *self._end()])
            text, thinking = _text(message["content"])
            if isinstance(message["content"], str):
                text = text.removeprefix(prompt.prefill)
            elif prompt.prefill:
                # Parts do not say whether thinking that the prompt has opened was empty or never ended.
                ends = {stop for stop in self.stops() if not isinstance(stop, str)}
                text = tokenizer.decode([token for token in tokens if token not in ends])
        return Reply(text, tuple(tokens), (), "stop" if whole and not cut else "length", thinking)

    def _end(self) -> list[int]:
        """Tokens that end a turn."""
        stop = self.stops()[0]
        return [stop] if not isinstance(stop, str) else self.load_tokenizer().encode(stop, add_special_tokens=False)

    def load_tokenizer(self) -> Any:
        """The tokenizer, loaded once in each process."""
        return _tokenizer(self.tokenizer)


def recommended_renderer(model: str) -> str:
    """What the cookbook recommends for a model.

    Raises:
        UsageError: it does not know the model.
    """
    try:
        return str(model_info.get_recommended_renderer_name(model))
    except Exception as error:  # unknown names raise KeyError, ValueError or the cookbook's own error
        raise UsageError(
            f"tinker-cookbook recommends no renderer for model {model!r}",
            fix=f"name one: renderer_name, such as qwen3, or {CHAT_TEMPLATE} for the tokenizer's own template",
        ) from error


@cache
def _tokenizer(model: str) -> Any:
    return tokenizer_utils.get_tokenizer(model)


@cache
def _renderer(speech: ChatRenderer) -> renderers.Renderer | None:
    if speech.renderer == CHAT_TEMPLATE:
        return None
    return renderers.get_renderer(speech.renderer, _tokenizer(speech.tokenizer), model_name=speech.tokenizer)


def _text(content: Any) -> tuple[str, str | None]:
    """Raw text of a parsed message, and its thinking."""
    if isinstance(content, str):
        return content, None
    text = "".join(str(part["text"]) for part in content if part.get("type") == "text")
    thinking = "\n\n".join(str(part["thinking"]) for part in content if part.get("type") == "thinking")
    return (f"<think>\n{thinking}\n</think>\n\n{text}", thinking) if thinking.strip() else (text, None)
