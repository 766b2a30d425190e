'''Reward components: one number per turn.

The score of a turn is the weighted sum of the recipe's reward components. `score` must stay within `bounds()` of the
options, or the run ends. Every component needs a config class, because `bounds()` is required.

To try a component, call it in a test: `Brevity(BrevityConfig()).score(make_turn(Outcome.CORRECT, source="..."))`, with
`make_turn` from `kernelrl_core.testing.values`. `kernelrl check` prints no score. To see one in a run, extend `smoke`
with `policy: {use: scripted, path: replies.yaml}` and `sampling: {max_tokens: 20000}`: a token of this policy is a
byte, and a longer reply is cut off. `reward_part/brief` in `metrics.jsonl` is the weighted mean.

    # src/kernelrl_plugin_brevity/__init__.py
    """Reward component `brevity` for kernelrl."""

    from kernelrl_core.api import Component, hookimpl


    @hookimpl
    def kernelrl_rewards() -> list[Component]:
        return [
            Component(
                "brevity",
                target="kernelrl_plugin_brevity.reward:Brevity",
                config="kernelrl_plugin_brevity.options:BrevityConfig",
                summary="Prefers short kernels",
            )
        ]

    # src/kernelrl_plugin_brevity/options.py
    """Options of the reward component `brevity`."""

    import attrs

    from kernelrl_core.api.config import PositiveInt
    from kernelrl_core.api.rewards import RewardBounds, RewardConfig


    @attrs.frozen
    class BrevityConfig(RewardConfig):
        """Options and bounds."""

        characters: PositiveInt = PositiveInt(4000)
        """Source length, in characters, from which the score is 0."""

        def bounds(self) -> RewardBounds:
            return RewardBounds(low=0.0, high=1.0, gap=-1.0)

    # src/kernelrl_plugin_brevity/reward.py
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

    # tests/test_brevity.py
    """Contract and scores of the reward component `brevity`."""

    from kernelrl_core.api.rewards import Outcome
    from kernelrl_core.testing.contracts import RewardContract
    from kernelrl_core.testing.values import make_turn
    from kernelrl_plugin_brevity.options import BrevityConfig
    from kernelrl_plugin_brevity.reward import Brevity


    class TestContract(RewardContract):
        component = "brevity"
        sources = ("# " + "long " * 5000,)


    def test_half_of_the_characters_gives_half_the_score() -> None:
        turn = make_turn(Outcome.CORRECT, source="x" * 2000)
        assert Brevity(BrevityConfig()).score(turn) == 0.5


    def test_a_reply_without_a_candidate_gets_no_score() -> None:
        assert Brevity(BrevityConfig()).score(make_turn(Outcome.FORMAT_ERROR)) == 0.0

In a recipe, options are keys next to `use`:

    rewards:
      correct: {use: correctness, weight: 1.0}
      brief: {use: brevity, weight: 0.1, characters: 1500}
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
    """Range of a reward component before its weight."""

    low: float
    """Minimum of the component."""
    high: float
    """Maximum of the component."""
    gap: float
    """Minimum over all correct kernels minus maximum over all kernels that are not correct. `low - high` for a
    component that does not depend on correctness. With values from 0 to 1: `correctness` has 1, brevity -1, a bonus for
    correct kernels only has 0. The core refuses a recipe unless the weighted sum of the gaps is
    greater than 0: otherwise a wrong kernel could get the score of a correct one."""


@attrs.frozen
class RewardConfig(ComponentConfig):
    """Options of a reward component. Required for every component, because it defines `bounds`."""

    def bounds(self) -> RewardBounds:
        """Range of the component and its gap between correct and other kernels. Required."""
        raise NotImplementedError(f"{type(self).__name__} does not define bounds()")

    def needs_timing(self) -> bool:
        """True if the component is constant unless run time is measured."""
        return False

    def needs_settings(self) -> Mapping[str, Any]:
        """Keys and values of the recipe block `evaluation` without which the component is constant."""
        return {}


class Reward(ABC):
    """One component of a turn's score. Pure."""

    @abstractmethod
    def score(self, turn: Turn) -> float:
        """A finite number within the bounds. Never called for a turn with outcome `infra_error` or `hacked`."""
