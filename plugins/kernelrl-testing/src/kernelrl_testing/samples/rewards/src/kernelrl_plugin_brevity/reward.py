"""The reward component `brevity`."""

from kernelrl_core.api.rewards import Reward, Turn
from kernelrl_plugin_brevity.options import BrevityConfig


class Brevity(Reward):
    """1 for an empty source, linear to 0 at `characters`."""

    def __init__(self, config: BrevityConfig) -> None:
        self._characters = config.characters

    def score(self, turn: Turn) -> float:
        if turn.candidate is None:
            return 0.0
        return max(0.0, 1.0 - len(turn.candidate.source) / self._characters)
