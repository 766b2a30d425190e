"""Messages into tokens and replies into text, by the renderer that tinker-cookbook recommends for a model."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from kernelrl_core.api.errors import MissingPrerequisite, UsageError
from kernelrl_core.api.policies import Message, Prompt, Reply, open_think_tag, prompt_opening, split_prefill

__all__ = [
    "CHAT_TEMPLATE",
    "Chat",
    "ChatTemplate",
    "CookbookChat",
    "load_tokenizer",
    "make_chat",
    "recommended_renderer",
]

CHAT_TEMPLATE = "chat_template"
_TOKENIZER_FILES = frozenset(
    {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "config.json"}
)


class Chat(Protocol):
    """How a model is spoken to."""

    def render(self, messages: Sequence[Message]) -> Prompt:
        """Tokens up to where the reply begins; a last message of the assistant is continued."""
        ...

    def stops(self, strings: Sequence[str]) -> list[str] | list[int] | None:
        """What ends a reply, in the SDK's terms; `strings` are ended at beside the model's end of turn."""
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
            reason: why it ended, as the server says. A reply that ends neither with the model's own end of turn nor at
                one of `strings` was cut, whatever is said.
        """
        ...


class ChatTemplate:
    """The chat template that comes with a tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        special = tokenizer.added_tokens_decoder.items()
        # Markers around thinking may be special tokens of the vocabulary; they belong to the text.
        self._unspoken = {int(i) for i, token in special if token.special and "think" not in token.content}

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
            [token for token in tokens if token not in self._unspoken],
            skip_special_tokens=False,
            clean_up_tokenization_spaces=False,
        )
        ends = {*self._unspoken, self._tokenizer.eos_token_id}
        reason = _reason(reason, bool(tokens) and tokens[-1] in ends, text, strings)
        return Reply(_cut(text, strings), tuple(tokens), tuple(logprobs), reason)


class CookbookChat:
    """A renderer of tinker-cookbook."""

    def __init__(self, renderer: Any, tokenizer: Any) -> None:
        self._renderer, self._tokenizer = renderer, tokenizer

    def render(self, messages: Sequence[Message]) -> Prompt:
        shown, prefill = split_prefill(messages)
        plain = [{"role": message.role, "content": message.content} for message in shown]
        tokens: list[int] = self._renderer.build_generation_prompt(plain).to_ints()
        # Renderers of thinking models may begin the thinking by themselves.
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
        begun = self._tokenizer.encode(prompt.prefill, add_special_tokens=False) if prefill else []
        message, termination = self._renderer.parse_response([*begun, *tokens])
        if not termination.is_clean:
            # What has no end is not parsed at all, so that thinking in marks other than tags would not be told apart.
            message, _ = self._renderer.parse_response([*begun, *tokens, *self._end()])
        text, thinking = _join(message["content"])
        if isinstance(message["content"], str):
            text = text.removeprefix(prompt.prefill)
        elif prompt.prefill:
            # Parts do not say whether thinking that the prompt has opened was empty or never ended.
            ends = {stop for stop in self._renderer.get_stop_sequences() if not isinstance(stop, str)}
            text = self._tokenizer.decode([token for token in tokens if token not in ends])
        reason = _reason(reason, termination.is_clean, text, strings)
        return Reply(_cut(text, strings), tuple(tokens), tuple(logprobs), reason, thinking)

    def _end(self) -> list[int]:
        """Tokens that end a turn."""
        stop = self._renderer.get_stop_sequences()[0]
        return [stop] if not isinstance(stop, str) else self._tokenizer.encode(stop, add_special_tokens=False)


def recommended_renderer(model: str) -> str:
    """The renderer that tinker-cookbook recommends; for a model that is not in its table, `chat_template`."""
    from tinker_cookbook import model_info

    try:
        return model_info.get_recommended_renderer_name(model)
    except (KeyError, ValueError):  # of these kinds are the cookbook's own errors, too
        return CHAT_TEMPLATE


def make_chat(model: str, name: str, tokenizer: Any) -> Chat:
    """How to speak to a model, by the name of a renderer.

    Raises:
        UsageError: there is none of that name, or it does not suit the tokenizer.
    """
    from tinker_cookbook import renderers

    if name == CHAT_TEMPLATE:
        if not getattr(tokenizer, "chat_template", None):
            raise UsageError(
                f"policy.renderer: the tokenizer of {model!r} has no chat template",
                fix="set policy.renderer to a renderer of tinker-cookbook, such as role_colon",
            )
        return ChatTemplate(tokenizer)
    try:
        return CookbookChat(renderers.get_renderer(name, tokenizer, model_name=model), tokenizer)
    except Exception as error:
        raise UsageError(
            f"policy.renderer: {name!r} cannot be had for {model!r}: {error}",
            fix="see tinker_cookbook.renderers.get_renderer for the names",
        ) from error


def load_tokenizer(model: str, files: Mapping[str, str] | None = None) -> Any:
    """The tokenizer of a model.

    Args:
        model: a hub id or a directory.
        files: its files by name, where the server gave them.

    Raises:
        MissingPrerequisite: it cannot be had.
    """
    from huggingface_hub.utils import logging
    from tinker_cookbook import tokenizer_utils

    logging.set_verbosity_error()  # its retries, a line for each, say less than the error in the end
    try:
        return tokenizer_utils.get_tokenizer(model) if files is None else _tokenizer_of(files)
    except Exception as error:
        raise MissingPrerequisite(
            f"policy.model: the tokenizer of {model!r} cannot be loaded: {_first_line(error)}",
            fix="check the name, the network, and HF_TOKEN for gated models; only kernelrl tinker-server gives "
            "tokenizers itself, those of models in a directory",
        ) from error


def _tokenizer_of(files: Mapping[str, str]) -> Any:
    from transformers import AutoTokenizer

    with tempfile.TemporaryDirectory() as directory:
        for name in _TOKENIZER_FILES & files.keys():
            (Path(directory) / name).write_text(files[name], encoding="utf-8")
        return AutoTokenizer.from_pretrained(directory, local_files_only=True, trust_remote_code=False)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _join(content: str | Sequence[Mapping[str, Any]]) -> tuple[str, str | None]:
    """Text with its thinking in tags, and the thinking; a string is as the model wrote it."""
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
    said: Literal["stop", "length"], whole: bool, text: str, strings: Sequence[str]
) -> Literal["stop", "length"]:
    """Why a reply ended; `whole`: with the model's own end of turn."""
    return said if whole or any(stop in text for stop in strings) else "length"


def _cut(text: str, strings: Sequence[str]) -> str:
    """The text up to the first of these strings, with it."""
    ends = [text.find(stop) + len(stop) for stop in strings if stop in text]
    return text[: min(ends)] if ends else text
