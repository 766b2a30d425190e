"""The texts and facts of one episode, each text stored once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["episode"]

Reference = int | tuple[int, int, int] | None
"""Index of a text, or that with start and end of a part of it, in UTF-16 code units; None: an empty text."""


def episode(rows: Sequence[Mapping[str, Any]], shared: Callable[[str], int] | None = None) -> dict[str, Any]:
    """An episode as the page shows it.

    Args:
        rows: rows of its turns, in order.
        shared: stores a text that other episodes may have, too, and returns its number. None: the episode has it.

    Returns:
        `turns`, whose texts are a `Reference`; `texts`, each a text or the number of a shared one.
    """
    texts = _Texts()
    if shared is not None and rows:
        for message in rows[0]["prompt"]["messages"]:
            texts.share(message["content"], shared)
    return {"turns": [_turn(row, texts) for row in rows], "texts": texts.stored}


class _Texts:
    def __init__(self) -> None:
        self.stored: list[str | int] = []
        self._numbers: dict[str, int] = {}

    def share(self, text: str, shared: Callable[[str], int]) -> None:
        if text and text not in self._numbers:
            self._numbers[text] = len(self.stored)
            self.stored.append(shared(text))

    def add(self, text: str | None) -> Reference:
        if not text:
            return None
        number = self._numbers.setdefault(text, len(self.stored))
        if number == len(self.stored):
            self.stored.append(text)
        return number

    def part(self, text: str | None, whole: str) -> Reference:
        """A text that is usually a part of another one."""
        # JavaScript counts UTF-16 code units; beyond the basic plane these differ from characters.
        if text and len(whole.encode("utf-16-le", "surrogatepass")) == 2 * len(whole):
            start = whole.find(text.rstrip("\n"))
            number = self._numbers.get(whole)
            if start >= 0 and number is not None:
                return number, start, start + len(text.rstrip("\n"))
        return self.add(text)


def _turn(row: Mapping[str, Any], texts: _Texts) -> dict[str, Any]:
    prompt, reply, extraction = row["prompt"], row["reply"], row["extraction"]
    candidate = extraction["candidate"]
    evaluation = {
        name: value
        for name, value in (row["evaluation"] or {}).items()
        if name not in ("detail", "findings", "hidden", "message") and value not in (None, "", {}, [])
    }
    return {
        "turn": row["turn"],
        "prompt": [[message["role"], texts.add(message["content"])] for message in prompt["messages"]],
        "opening": prompt.get("opening", ""),
        "reply": texts.add(reply["text"]),
        "thinking": texts.part(extraction["thinking"] or reply["thinking"], reply["text"]),
        "source": texts.part(candidate["source"], reply["text"]) if candidate else None,
        "summary": texts.part(extraction["summary"], reply["text"]),
        "problem": extraction["problem"],
        "stop": reply["stop_reason"],
        "tokens": [len(prompt["tokens"]), len(reply["tokens"])],
        "message": texts.add(row["message"]),
        "detail": texts.add((row["evaluation"] or {}).get("detail")),
        "feedback": texts.add(row["feedback"]),
        "findings": row["findings"],
        "parts": row["score"]["parts"],
        "evaluation": evaluation,
        "seconds": row["seconds"],
        "staleness": row["behind"],
        "lost_at": row.get("lost_at", ""),
        "examples": row.get("examples", []),
        "excluded_examples": row.get("excluded_examples", []),
    }
