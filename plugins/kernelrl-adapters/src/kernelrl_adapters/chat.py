"""Renders messages to tokens and parses replies, by a renderer of tinker-cookbook or a tokenizer's chat template."""

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
"""Renderer name for the tokenizer's own chat template, for models that the cookbook does not know."""


@dataclass(frozen=True)
class ChatRenderer:
    """Prompt format of a model. Holds only names, so that it can be pickled."""

    tokenizer: str
    """Model whose tokenizer is used."""
    renderer: str
    """Name of a renderer of the cookbook, or `CHAT_TEMPLATE`."""
    context_tokens: int
    """Maximum tokens of prompt and reply together."""

    def render(self, messages: Sequence[Message]) -> Prompt:
        """The prompt's tokens; a final assistant message is the prefill of the reply."""
        renderer, tokenizer = _renderer(self), self.load_tokenizer()
        shown, prefill = split_prefill(messages)
        rendered = [renderers.Message(role=message.role, content=message.content) for message in shown]
        if renderer is None:
            text = tokenizer.apply_chat_template(rendered, tokenize=False, add_generation_prompt=True)
            text += prefill if not open_think_tag(text) else ""
            return Prompt(
                tuple(messages), tuple(tokenizer.encode(text, add_special_tokens=False)), open_think_tag(text)
            )
        tokens = renderer.build_generation_prompt(rendered).to_ints()
        # Renderers of thinking models already add `<think>`.
        if prefill and not prompt_opening(tokens, tokenizer.decode):
            tokens = renderer.build_generation_prompt(rendered, prefill=prefill).to_ints()
        return Prompt(tuple(messages), tuple(tokens), prompt_opening(tokens, tokenizer.decode))

    def stops(self) -> Any:
        """Stop condition of a reply: token ids or strings."""
        renderer = _renderer(self)
        return [self.load_tokenizer().eos_token_id] if renderer is None else renderer.get_stop_sequences()

    def reply(self, prompt: Prompt, tokens: Sequence[int], *, cut: bool) -> Reply:
        """The sampled tokens as a `Reply`, without log-probabilities, which only the cookbook needs.

        Args:
            cut: the reply reached its token limit.
        """
        renderer, tokenizer = _renderer(self), self.load_tokenizer()
        if renderer is None:
            whole = tokens[-1:] == [tokenizer.eos_token_id]
            text, thinking = tokenizer.decode(tokens[:-1] if whole else tokens), None
        else:
            _, prefill = split_prefill(prompt.messages)
            prefilled = tokenizer.encode(prompt.prefill, add_special_tokens=False) if prefill else []
            message, termination = renderer.parse_response([*prefilled, *tokens])
            whole = termination.is_clean
            if not whole:
                # Renderers do not parse a reply without a stop token: thinking would remain part of the text.
                message, _ = renderer.parse_response([*prefilled, *tokens, *self._end()])
            text, thinking = _text(message["content"])
            if isinstance(message["content"], str):
                text = text.removeprefix(prompt.prefill)
            elif prompt.prefill:
                # The parsed parts do not show whether thinking that the prompt started was empty or never ended.
                ends = {stop for stop in self.stops() if not isinstance(stop, str)}
                text = tokenizer.decode([token for token in tokens if token not in ends])
        return Reply(text, tuple(tokens), (), "stop" if whole and not cut else "length", thinking)

    def _end(self) -> list[int]:
        """Tokens that end a turn."""
        stop = self.stops()[0]
        return [stop] if not isinstance(stop, str) else self.load_tokenizer().encode(stop, add_special_tokens=False)

    def load_tokenizer(self) -> Any:
        """The tokenizer, loaded once per process."""
        return _tokenizer(self.tokenizer)


def recommended_renderer(model: str) -> str:
    """Name of the renderer that the cookbook recommends for a model.

    Raises:
        UsageError: the cookbook does not know the model.
    """
    try:
        return str(model_info.get_recommended_renderer_name(model))
    except Exception as error:  # unknown names raise KeyError, ValueError or the cookbook's own error
        raise UsageError(
            f"tinker-cookbook recommends no renderer for model {model!r}",
            fix=f"set renderer_name: a renderer such as qwen3, or {CHAT_TEMPLATE} for the tokenizer's own template",
            see="tinker-model",
        ) from error


@cache
def _tokenizer(model: str) -> Any:
    return tokenizer_utils.get_tokenizer(model)


@cache
def _renderer(chat: ChatRenderer) -> renderers.Renderer | None:
    if chat.renderer == CHAT_TEMPLATE:
        return None
    return renderers.get_renderer(chat.renderer, _tokenizer(chat.tokenizer), model_name=chat.tokenizer)


def _text(content: Any) -> tuple[str, str | None]:
    """Raw text of a parsed message, and its thinking or None."""
    if isinstance(content, str):
        return content, None
    text = "".join(str(part["text"]) for part in content if part.get("type") == "text")
    thinking = "\n\n".join(str(part["thinking"]) for part in content if part.get("type") == "thinking")
    return (f"<think>\n{thinking}\n</think>\n\n{text}", thinking) if thinking.strip() else (text, None)
