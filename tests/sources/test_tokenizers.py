"""The check that a tokenizer keeps the text of kernels."""

from __future__ import annotations

import pytest

from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.policies import require_lossless_tokenizer


def encode(text: str) -> list[int]:
    return list(text.encode())


def decode(tokens: object) -> str:
    return bytes(tokens).decode()  # type: ignore[call-overload, no-any-return]


def test_a_tokenizer_of_bytes_keeps_text() -> None:
    require_lossless_tokenizer("m", encode, decode)


def test_a_tokenizer_that_adds_a_space_in_front_keeps_text() -> None:
    require_lossless_tokenizer("m", encode, lambda tokens: " " + decode(tokens))


def test_a_tokenizer_that_loses_white_space_is_refused_with_both_texts() -> None:
    with pytest.raises(UsageError, match=r"tokenizer of 'm' changes text: 'def scale.*becomes 'defscale"):
        require_lossless_tokenizer("m", encode, lambda tokens: "".join(decode(tokens).split()))
