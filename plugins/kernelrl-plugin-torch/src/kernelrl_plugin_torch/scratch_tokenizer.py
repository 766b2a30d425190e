"""Byte-pair tokenizer whose tokens can be whole lines.

Merges may span a whole line with its indentation and line break, so a line that all prompts and kernels share is one
token. Only pieces of several tasks are merged; text of a single task stays in smaller, reusable pieces. The alphabet is
bytes: every text can be encoded, and decoding restores it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from kernelrl_core.api.policies import Message

__all__ = ["ScratchTokenizer"]


class ScratchTokenizer:
    """Tokenizer and chat template of the model from scratch.

    A prompt is `<role> content <end>` for each message, then `<assistant>`. The ids of the special tokens follow those
    of the text, so no text can be encoded as a special token.
    """

    _roles = ("system", "user", "assistant")

    def __init__(self, text: Tokenizer) -> None:
        self._text = text
        self._base = text.get_vocab_size()
        self.end = self._base + len(self._roles)
        self.size = self.end + 1

    @classmethod
    def train(cls, tasks: Iterable[Iterable[str]], *, vocabulary: int, min_tasks: int) -> ScratchTokenizer:
        """Learn merges from the texts of each task; repeated lines of a task count once.

        Args:
            tasks: for each task, its texts. Without any text the tokens are single bytes.
            vocabulary: maximum vocabulary size, at least 256.
            min_tasks: minimum number of tasks in which a merged pair must occur.
        """
        lines: list[str] = []
        for texts in tasks:
            lines.extend(sorted({line for text in texts for line in _clean(text).splitlines(keepends=True)}))
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex("\n"), "merged_with_previous"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocabulary,
            min_frequency=min_tasks,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(lines, trainer)
        return cls(tokenizer)

    @classmethod
    def from_json(cls, text: str) -> ScratchTokenizer:
        return cls(Tokenizer.from_str(text))

    def to_json(self) -> str:
        return self._text.to_str()

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._text.encode(_clean(text)).ids
        return ids

    def decode(self, tokens: Sequence[int]) -> str:
        text: str = self._text.decode([token for token in tokens if token < self._base])
        return text

    def render(self, messages: Sequence[Message]) -> list[int]:
        tokens: list[int] = []
        for message in messages:
            tokens.append(self._role(message.role))
            tokens.extend(self.encode(message.content))
            tokens.append(self.end)
        if messages and messages[-1].role == "assistant":
            tokens.pop()
        else:
            tokens.append(self._role("assistant"))
        return tokens

    def _role(self, role: str) -> int:
        return self._base + self._roles.index(role)


def _clean(text: str) -> str:
    # Lone surrogates, which undecodable bytes of a file become, have no UTF-8 encoding.
    return text.encode("utf-8", "replace").decode("utf-8")
