from __future__ import annotations

import random
from typing import Any

from broken_components import Broken
from kernelrl_core.api.feedback import Feedback, Turn


class Good(Feedback):
    def format(self, turn: Turn) -> str:
        return f"{turn.outcome.value}: {turn.message[:200]}"


class Silent(Feedback):
    def format(self, turn: Turn) -> Any:
        return turn.message[:200] if turn.evaluation is None else None


class Random(Feedback):
    def format(self, turn: Turn) -> str:
        return str(random.random())


class Changes(Feedback):
    def format(self, turn: Turn) -> str:
        turn.seconds.update(feedback=1.0)  # type: ignore[attr-defined]
        return ""


class Whole(Feedback):
    def format(self, turn: Turn) -> str:
        return turn.message


class Detailed(Feedback):
    def format(self, turn: Turn) -> str:
        return turn.evaluation.detail[:200] if turn.evaluation is not None else ""


class WithSettings(Feedback):
    def format(self, turn: Turn) -> str:
        return str(dict(turn.evaluation.provenance)) if turn.evaluation is not None else ""


BROKEN = [
    Broken("feedback", "feedback.Good", ()),
    Broken("feedback", "feedback.Silent", ["text_for_every_outcome"]),
    Broken("feedback", "feedback.Random", ["text_is_repeatable"]),
    Broken("feedback", "feedback.Changes", ["turns_are_not_changed"]),
    Broken("feedback", "feedback.Whole", ["text_is_bounded"]),
    Broken("feedback", "feedback.Detailed", ["text_has_no_secret_of_the_judge"]),
    Broken("feedback", "feedback.WithSettings", ["text_has_no_secret_of_the_judge"]),
]
