'''Feedback formatters: text about a turn for the prompt of the next turn.

The core inserts the text into the next prompt as it is.

    # src/kernelrl_plugin_terse/__init__.py
    """Feedback formatter `terse` for kernelrl."""

    from kernelrl_core.api import Component, hookimpl


    @hookimpl
    def kernelrl_feedback() -> list[Component]:
        return [
            Component(
                "terse",
                target="kernelrl_plugin_terse.feedback:Terse",
                config="kernelrl_plugin_terse.options:TerseConfig",
                summary="Outcome and message in one line",
            )
        ]

    # src/kernelrl_plugin_terse/options.py
    """Options of the feedback formatter `terse`."""

    import attrs

    from kernelrl_core.api.config import PositiveInt
    from kernelrl_core.api.feedback import FeedbackConfig


    @attrs.frozen
    class TerseConfig(FeedbackConfig):
        """Options."""

        max_characters: PositiveInt = PositiveInt(500)
        """Length at which the text is cut off."""

    # src/kernelrl_plugin_terse/feedback.py
    """The feedback formatter `terse`."""

    from kernelrl_core.api.feedback import Feedback, Turn
    from kernelrl_plugin_terse.options import TerseConfig


    class Terse(Feedback):
        """One line: the outcome and its message."""

        def __init__(self, config: TerseConfig) -> None:
            self._max_characters = config.max_characters

        def format(self, turn: Turn) -> str:
            text = "Correct." if turn.correct else f"{turn.outcome.value}: {turn.message}"
            return text[: self._max_characters]

    # tests/test_terse.py
    """Contract and texts of the feedback formatter `terse`."""

    from kernelrl_core.api.feedback import Outcome
    from kernelrl_core.testing.contracts import FeedbackContract
    from kernelrl_core.testing.values import make_turn
    from kernelrl_plugin_terse.feedback import Terse
    from kernelrl_plugin_terse.options import TerseConfig


    class TestContract(FeedbackContract):
        component = "terse"


    def test_a_failure_has_its_message() -> None:
        turn = make_turn(Outcome.COMPILE_ERROR, message="no such name")
        assert Terse(TerseConfig()).format(turn) == "compile_error: no such name"


    def test_a_long_text_is_cut_off() -> None:
        turn = make_turn(Outcome.INCORRECT, message="wrong " * 1000)
        assert len(Terse(TerseConfig()).format(turn)) == 500

In a recipe:

    feedback: {use: terse, max_characters: 300}
    episode: {turns: 3}
'''

from __future__ import annotations

from abc import ABC, abstractmethod

import attrs

from kernelrl_core.interfaces.config import ComponentConfig
from kernelrl_core.types.turns import Turn

__all__ = ["Feedback", "FeedbackConfig"]


@attrs.frozen
class FeedbackConfig(ComponentConfig):
    """Options of a feedback formatter."""


class Feedback(ABC):
    """Describes a turn to the model. Pure."""

    @abstractmethod
    def format(self, turn: Turn) -> str:
        """Text for the prompt of the next turn. Never called for a turn with outcome `infra_error`."""
