"""Words of a source, for lexical search: the names of its operators."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["VERSION", "Words"]

VERSION = 2
"""Changes with the words that `Words` yields: an index has the words of its build."""

# One pass with few alternatives; `_word` looks closer, once per different token. Numbers are matched outside of the
# group, because there are too many different ones to remember.
_TOKEN = re.compile(r"((?:def |class )?[A-Za-z_][\w.]*\(?|\)\.\w+| [-+*/@] )|[\w.]+")
_NAMES = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_NO_BIAS = re.compile(r"(?<![\w.])\w*bias\s*=\s*False")
_SYMBOLS = {" + ": "add", " - ": "sub", " * ": "mul", " / ": "div", " @ ": "matmul"}


class Words:
    """Finds the operators of sources, and remembers the words of each identifier.

    A word is the last name of a dotted identifier, or a called name, in lower case and without underscores:
    `nn.LeakyReLU(0.1)`, `F.leaky_relu(x)` and `x.leaky_relu()` give `leakyrelu`. Arithmetic symbols give the name of
    their function. Attributes of `self`, names of variables, numbers and texts give nothing: a similar task has other
    names and sizes.
    """

    def __init__(self) -> None:
        self._known = {**_SYMBOLS, "": ""}

    def all(self, source: str) -> Iterable[str]:
        """Words of a source, each once, in the order of their first occurrence; `nobias` is the last."""
        known = self._known
        found: dict[str, None] = {}
        for token in dict.fromkeys(_TOKEN.findall(source)):
            word = known.get(token)
            if word is None:
                word = known[token] = _word(token)
            if word:
                found[word] = None
        if "bias" in source and _NO_BIAS.search(source):
            found["nobias"] = None
        return found


def _word(token: str) -> str:
    """The word of a token; empty if it is not an operator."""
    after_call = token.startswith(").")
    chain = _NAMES.match(token, 2 if after_call else 0)
    if chain is None or token.startswith(("def ", "class ")):
        return ""
    names = chain[0].split(".")
    called = token[chain.end() :] == "("
    if not after_call and (names[0] == "self" or (len(names) == 1 and not called)):
        return ""
    word = names[-1].replace("_", "").lower()
    return word if len(word) > 1 else ""
