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
