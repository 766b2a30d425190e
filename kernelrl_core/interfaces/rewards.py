'''Reward components: one number for a turn.

The score of a turn is the weighted sum of the recipe's reward components.

    # my_plugin/__init__.py
    from kernelrl_core.api import Component, hookimpl

    @hookimpl
    def kernelrl_rewards():
        return [Component("brevity", "my_plugin.brevity:Brevity", config="my_plugin.brevity:BrevityConfig",
                          summary="Prefers short kernels")]

    # my_plugin/brevity.py
    import attrs

    from kernelrl_core.api.config import PositiveInt
    from kernelrl_core.api.rewards import Reward, RewardBounds, RewardConfig

    @attrs.frozen
    class BrevityConfig(RewardConfig):
        characters: PositiveInt = PositiveInt(4000)
        """Length from which on the score is 0."""

        def bounds(self):
            return RewardBounds(low=0.0, high=1.0, gap=-1.0)

    class Brevity(Reward):
        def __init__(self, config):
            self._limit = config.characters

        def score(self, turn):
            if turn.candidate is None:
                return 0.0
            return max(0.0, 1.0 - len(turn.candidate.source) / self._limit)
'''

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import attrs

from kernelrl_core.interfaces.config import ComponentConfig
from kernelrl_core.types.turns import Turn

__all__ = ["Reward", "RewardBounds", "RewardConfig"]


@attrs.frozen
class RewardBounds:
    """Range of a reward component, before its weight."""

    low: float
    high: float
    gap: float
    """Least rise of the component from any kernel that is not correct to any correct one, all else being as
    unfavourable as possible; negative where it may fall. A component that reads only text has `low - high`. The core
    refuses a recipe whose weighted gaps do not add up to more than 0."""


@attrs.frozen
class RewardConfig(ComponentConfig):
    """Options of a reward component. A component without options of its own still has a config class, for `bounds`."""

    def bounds(self) -> RewardBounds:
        """Range of the score, and what correctness is worth in it. Required."""
        raise NotImplementedError(f"{type(self).__name__} does not define bounds()")

    def needs_timing(self) -> bool:
        """Whether the component is constant unless run time is measured."""
        return False

    def needs_settings(self) -> Mapping[str, Any]:
        """Values of the recipe block `evaluation` without which the component is constant."""
        return {}


class Reward(ABC):
    """One component of the score. Pure."""

    @abstractmethod
    def score(self, turn: Turn) -> float:
        """A finite number within the bounds. Never called with an `infra_error`."""
