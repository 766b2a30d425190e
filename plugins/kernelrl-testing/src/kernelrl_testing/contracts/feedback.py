"""The contract of feedback formatters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import attrs

from kernelrl_core.types import Isolation, Turn
from kernelrl_testing.contracts.base import ComponentContract, require_unchanged
from kernelrl_testing.contracts.breaches import calling, require
from kernelrl_testing.values import generated_turns, turns_of_every_outcome

__all__ = ["FeedbackContract"]

_FIX_TEXT = "return a str for turns of every outcome, also without candidate or evaluation"
_SECRET = "5eed0ff1ce"


class FeedbackContract(ComponentContract):
    """A feedback formatter is a pure function from turns to text of limited length."""

    kind = "feedback"
    max_characters: ClassVar[int] = 20_000
    """Limit of a text. Messages of an evaluator may be longer."""

    def turns(self) -> Sequence[Turn]:
        """The turns that are described."""
        return (*turns_of_every_outcome(), *generated_turns())

    def test_text_for_every_outcome(self) -> None:
        for turn, text in self._formatted(self.make()):
            require(isinstance(text, str), f"format of a turn {turn.outcome.value} returns {text!r}", _FIX_TEXT)

    def test_text_is_repeatable(self) -> None:
        formatter = self.make()
        first = [text for _, text in self._formatted(formatter)]
        again = [text for _, text in self._formatted(formatter)]
        other = [text for _, text in self._formatted(self.make())]
        fix = "compute the text from the turn alone: no counter, random number, clock or file"
        require(first == again == other, "the text of a turn differs between two calls", fix)

    def test_turns_are_not_changed(self) -> None:
        require_unchanged(self.turns(), self.make().format, "format")

    def test_text_is_bounded(self) -> None:
        formatter = self.make()
        for turn in map(_with_long_texts, turns_of_every_outcome()):
            with calling(f"format of a turn {turn.outcome.value}", _FIX_TEXT):
                text = formatter.format(turn)
            message = f"format of a turn {turn.outcome.value} with long texts returns {len(str(text))} characters"
            fix = "shorten long messages: keep their beginning and their end"
            require(len(str(text)) <= self.max_characters, message, fix)

    def test_text_has_no_secret_of_the_judge(self) -> None:
        formatter = self.make()
        for turn in map(_with_secrets, self.turns()):
            with calling(f"format of a turn {turn.outcome.value}", _FIX_TEXT):
                text = formatter.format(turn)
            message = f"format of a turn {turn.outcome.value} repeats the detail or the provenance of the evaluation"
            fix = "use `message`: `detail`, `provenance` and `isolation` are for users and may contain seeds and paths"
            require(_SECRET not in str(text), message, fix)

    def _formatted(self, formatter: Any) -> list[tuple[Turn, Any]]:
        found = []
        for turn in self.turns():
            with calling(f"format of a turn {turn.outcome.value}", _FIX_TEXT):
                found.append((turn, formatter.format(turn)))
        return found


def _with_long_texts(turn: Turn) -> Turn:
    """The turn with a message of 200,000 characters, as a compiler or an evaluator may write it."""
    message = "error: an identifier is not defined\n" * 5500
    evaluation = turn.evaluation and attrs.evolve(turn.evaluation, message=message, detail=message)
    return attrs.evolve(turn, message=message, evaluation=evaluation)


def _with_secrets(turn: Turn) -> Turn:
    """The turn with a secret in the fields of its evaluation that the model must not see."""
    if turn.evaluation is None:
        return turn
    secret = attrs.evolve(
        turn.evaluation,
        detail=f"seed {_SECRET}\n{turn.evaluation.detail}",
        provenance={"seed": _SECRET, "inputs": [_SECRET]},
        isolation=Isolation(0, (_SECRET,)),
    )
    return attrs.evolve(turn, evaluation=secret)
