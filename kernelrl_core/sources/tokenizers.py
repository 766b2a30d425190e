"""A check that a tokenizer keeps the text of kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelrl_core.errors import UsageError

__all__ = ["require_lossless_tokenizer"]

_SAMPLE = "def scale(x):\n    for i in range(2):\n        x = x * 0.5\n    return x"


def require_lossless_tokenizer(
    model: str, encode: Callable[[str], Sequence[int]], decode: Callable[[Sequence[int]], str]
) -> None:
    """Check that a text of kernel code is the same after `encode` and `decode`, apart from white space around it.

    A tokenizer that was converted wrongly may lose white space; a policy would then train on text that is no code.

    Args:
        model: name of the model, for the message.
        encode: text -> token ids, without special tokens.
        decode: token ids -> text.

    Raises:
        UsageError: the text differs.
    """
    decoded = decode(encode(_SAMPLE))
    if decoded.strip() == _SAMPLE:
        return
    raise UsageError(
        f"policy.model: the tokenizer of {model!r} changes text: {_SAMPLE[:40]!r}… becomes {decoded[:40]!r}…",
        fix="use the tokenizer that the model's authors published; a newer transformers may convert it correctly",
        see="tokenizer",
    )
