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
