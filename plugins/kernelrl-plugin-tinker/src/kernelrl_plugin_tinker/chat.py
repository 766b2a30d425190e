"""Renders messages to tokens and parses replies, by the renderer that tinker-cookbook recommends for a model."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from kernelrl_core.api.errors import MissingPrerequisite, UsageError
from kernelrl_core.api.policies import (
    Message,
    Prompt,
    Reply,
    is_thinking_token,
    open_think_tag,
    prompt_opening,
    split_prefill,
)
from kernelrl_plugin_tinker.config import CHAT_TEMPLATE

__all__ = [
    "Chat",
    "ChatTemplate",
    "CookbookChat",
    "load_tokenizer",
    "make_chat",
    "recommended_renderer",
]

_TOKENIZER_FILES = frozenset(
    {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "config.json"}
)


class Chat(Protocol):
    """The chat format of a model."""

    def render(self, messages: Sequence[Message]) -> Prompt:
        """The prompt's tokens; a final assistant message is the prefill of the reply."""
        ...

    def stops(self, strings: Sequence[str]) -> list[str] | list[int] | None:
        """Stop condition for the SDK: the model's end of turn and the stop strings `strings`."""
        ...

    def read(
        self,
        prompt: Prompt,
        tokens: Sequence[int],
        logprobs: Sequence[float],
        reason: Literal["stop", "length"],
        strings: Sequence[str],
    ) -> Reply:
        """A reply from its tokens.

        Args:
            reason: stop reason that the server reports. A reply that ends neither with the model's end of turn nor
                at one of `strings` gets `length` in any case.
        """
        ...


class ChatTemplate:
    """The chat template of a tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        special = {
            int(number): token.content for number, token in tokenizer.added_tokens_decoder.items() if token.special
        }
        # Markers of thinking may be special tokens, but they are part of the text.
        self._hidden = {number for number, text in special.items() if not is_thinking_token(text)}
        self._hidden.add(tokenizer.eos_token_id)

    def render(self, messages: Sequence[Message]) -> Prompt:
        continued = bool(messages) and messages[-1].role == "assistant"
        text = self._tokenizer.apply_chat_template(
            [{"role": message.role, "content": message.content} for message in messages],
            tokenize=False,
            add_generation_prompt=not continued,
            continue_final_message=continued,
        )
        tokens = self._tokenizer.encode(text, add_special_tokens=False)
        return Prompt(tuple(messages), tuple(tokens), open_think_tag(text))

    def stops(self, strings: Sequence[str]) -> list[str] | list[int] | None:
        return [self._tokenizer.eos_token, *strings] if strings else None

    def read(
        self,
        prompt: Prompt,
        tokens: Sequence[int],
        logprobs: Sequence[float],
        reason: Literal["stop", "length"],
        strings: Sequence[str],
    ) -> Reply:
        text = self._tokenizer.decode(
            [token for token in tokens if token not in self._hidden],
            skip_special_tokens=False,
            clean_up_tokenization_spaces=False,
        )
        reason = _reason(reason, bool(tokens) and tokens[-1] in self._hidden, text, strings)
        return Reply(_cut(text, strings), tuple(tokens), tuple(logprobs), reason)


class CookbookChat:
    """A renderer of tinker-cookbook."""

    def __init__(self, renderer: Any, tokenizer: Any) -> None:
        self._renderer, self._tokenizer = renderer, tokenizer

    def render(self, messages: Sequence[Message]) -> Prompt:
        shown, prefill = split_prefill(messages)
        plain = [{"role": message.role, "content": message.content} for message in shown]
        tokens: list[int] = self._renderer.build_generation_prompt(plain).to_ints()
        # Renderers of thinking models may already add `<think>`.
        if prefill and not prompt_opening(tokens, self._tokenizer.decode):
            tokens = self._renderer.build_generation_prompt(plain, prefill=prefill).to_ints()
        return Prompt(tuple(messages), tuple(tokens), prompt_opening(tokens, self._tokenizer.decode))

    def stops(self, strings: Sequence[str]) -> list[str] | list[int] | None:
        own = list(self._renderer.get_stop_sequences())
        if not strings:
            return own
        return [stop if isinstance(stop, str) else self._tokenizer.decode([stop]) for stop in own] + list(strings)

    def read(
        self,
        prompt: Prompt,
        tokens: Sequence[int],
        logprobs: Sequence[float],
        reason: Literal["stop", "length"],
        strings: Sequence[str],
    ) -> Reply:
        _, prefill = split_prefill(prompt.messages)
        prefilled = self._tokenizer.encode(prompt.prefill, add_special_tokens=False) if prefill else []
        message, termination = self._renderer.parse_response([*prefilled, *tokens])
        if not termination.is_clean:
            # Renderers do not parse a reply without an end of turn: thinking would remain part of the text.
            message, _ = self._renderer.parse_response([*prefilled, *tokens, *self._end()])
        text, thinking = _join(message["content"])
        if isinstance(message["content"], str):
            text = text.removeprefix(prompt.prefill)
        elif prompt.prefill:
            # The parsed parts do not show whether thinking that the prompt started was empty or never ended.
            ends = {stop for stop in self._renderer.get_stop_sequences() if not isinstance(stop, str)}
            text = self._tokenizer.decode([token for token in tokens if token not in ends])
        reason = _reason(reason, termination.is_clean, text, strings)
        return Reply(_cut(text, strings), tuple(tokens), tuple(logprobs), reason, thinking)

    def _end(self) -> list[int]:
        """Tokens that end a turn."""
        stop = self._renderer.get_stop_sequences()[0]
        return [stop] if not isinstance(stop, str) else self._tokenizer.encode(stop, add_special_tokens=False)


def recommended_renderer(model: str) -> str:
    """Name of the renderer that tinker-cookbook recommends; `chat_template` for a model that it does not know."""
    from tinker_cookbook import model_info

    try:
        return model_info.get_recommended_renderer_name(model)
    except (KeyError, ValueError):  # bases of the cookbook's own errors
        return CHAT_TEMPLATE


def make_chat(model: str, name: str, tokenizer: Any) -> Chat:
    """The chat format of a model, by the name of a renderer.

    Raises:
        UsageError: the renderer is unknown or does not suit the tokenizer.
    """
    if name == CHAT_TEMPLATE:
        if not getattr(tokenizer, "chat_template", None):
            raise UsageError(
                f"policy.renderer: the tokenizer of {model!r} has no chat template",
                fix="set policy.renderer to a renderer of tinker-cookbook, such as role_colon",
                see="tinker-model",
            )
        return ChatTemplate(tokenizer)
    from tinker_cookbook import renderers

    try:
        return CookbookChat(renderers.get_renderer(name, tokenizer, model_name=model), tokenizer)
    except Exception as error:
        raise UsageError(
            f"policy.renderer: {name!r} cannot be loaded for {model!r}: {error}",
            fix="use a name that tinker_cookbook.renderers.get_renderer accepts",
            see="tinker-model",
        ) from error


def load_tokenizer(model: str, renderer: str, files: Mapping[str, str] | None = None) -> Any:
    """The tokenizer of a model.

    Args:
        model: a hub id or a directory.
        renderer: a renderer of tinker-cookbook comes with the cookbook's own choice of the tokenizer.
        files: the tokenizer's files by name, if the server provides them.

    Raises:
        MissingPrerequisite: the tokenizer cannot be loaded.
    """
    from huggingface_hub.utils import logging

    logging.set_verbosity_error()  # the hub logs a line per retry; the final error is more useful
    try:
        if files is not None:
            return _tokenizer_of(files)
        return _chat_tokenizer(model) if renderer == CHAT_TEMPLATE else _cookbook_tokenizer(model)
    except Exception as error:
        raise MissingPrerequisite(
            f"policy.model: the tokenizer of {model!r} cannot be loaded: {_first_line(error)}",
            fix="check the name, the network, and HF_TOKEN for gated models; only kernelrl tinker-server provides "
            "tokenizers, for models in a directory",
            see="tinker-model",
        ) from error


def _chat_tokenizer(model: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model, trust_remote_code=False)


def _cookbook_tokenizer(model: str) -> Any:
    from tinker_cookbook import tokenizer_utils

    return tokenizer_utils.get_tokenizer(model)


def _tokenizer_of(files: Mapping[str, str]) -> Any:
    from transformers import AutoTokenizer

    with tempfile.TemporaryDirectory() as directory:
        for name in _TOKENIZER_FILES & files.keys():
            (Path(directory) / name).write_text(files[name], encoding="utf-8")
        return AutoTokenizer.from_pretrained(directory, local_files_only=True, trust_remote_code=False)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _join(content: str | Sequence[Mapping[str, Any]]) -> tuple[str, str | None]:
    """Text with the thinking in tags, and the thinking or None; a string is returned unchanged."""
    if isinstance(content, str):
        return content, None
    text, thoughts = "", []
    for part in content:
        if part["type"] == "thinking":
            thoughts.append(part["thinking"])
            text += f"<think>{part['thinking']}</think>"
        elif part["type"] == "text":
            text += part["text"]
    return text, "\n\n".join(thoughts) if thoughts else None


def _reason(
    reported: Literal["stop", "length"], whole: bool, text: str, strings: Sequence[str]
) -> Literal["stop", "length"]:
    """The stop reason of a reply; `whole`: it ends with the model's end of turn."""
    return reported if whole or any(stop in text for stop in strings) else "length"


def _cut(text: str, strings: Sequence[str]) -> str:
    """The text up to and including the first of these strings."""
    ends = [text.find(stop) + len(stop) for stop in strings if stop in text]
    return text[: min(ends)] if ends else text
