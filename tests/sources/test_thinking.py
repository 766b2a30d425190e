"""The prefill: the beginning of a reply that the prompt already contains."""

from __future__ import annotations

import pytest

from kernelrl_core.sources.thinking import prompt_opening, split_prefill
from kernelrl_core.types import Message


def decode(tokens: list[int]) -> str:
    assert len(tokens) <= 16
    return bytes(tokens).decode()


@pytest.mark.parametrize(
    ("rendered", "opening"),
    [
        ("a long question<|assistant|><think>\n", "<think>\n"),
        ("<think>", "<think>"),
        ("<think>\nand sixteen more", ""),
        ("", ""),
    ],
)
def test_the_opening_is_found_in_the_last_tokens_of_a_prompt(rendered: str, opening: str) -> None:
    assert prompt_opening(tuple(rendered.encode()), decode) == opening


QUESTION, BEGINNING = Message("user", "q"), Message("assistant", "Sure: ")


@pytest.mark.parametrize(
    ("messages", "before", "prefill"),
    [
        ((QUESTION,), (QUESTION,), ""),
        ((QUESTION, BEGINNING), (QUESTION,), "Sure: "),
        ((QUESTION, BEGINNING, QUESTION), (QUESTION, BEGINNING, QUESTION), ""),
        ((), (), ""),
    ],
)
def test_a_last_message_of_the_assistant_is_the_prefill(
    messages: tuple[Message, ...], before: tuple[Message, ...], prefill: str
) -> None:
    assert split_prefill(messages) == (before, prefill)
