"""Reward components: one number per turn.

The score of a turn is the weighted sum of the recipe's reward components. `score` must stay within `bounds()` of the
options, or the run ends. Every component needs a config class, because `bounds()` is required.

To try a component, call it in a test: `Brevity(BrevityConfig()).score(make_turn(Outcome.CORRECT, source="..."))`, with
`make_turn` from `kernelrl_testing.values`. `make_turn(Outcome.CORRECT, speedup=2.0)` is a turn with run times.
`kernelrl check --json --recipe RECIPE` prints the score of a kernel. To see one in a run, extend `smoke` with
`policy: {use: scripted, path: replies.yaml}` and `sampling: {max_tokens: 20000}`: a token of this policy is a byte, and
a longer reply is cut off. `reward_part/brief` in `metrics.jsonl` is the weighted mean.

`kernelrl plugins new rewards NAME` writes a sample plugin.
"""

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

    def needs_reply_tokens(self) -> int:
        """Shortest reply, in tokens, for which the component is not constant. The core refuses a recipe with a lower
        `sampling.max_tokens`."""
        return 0

    def needs_settings(self) -> Mapping[str, Any]:
        """Keys and values of the recipe block `evaluation` without which the component is constant."""
        return {}


class Reward(ABC):
    """One component of a turn's score. Pure."""

    @abstractmethod
    def score(self, turn: Turn) -> float:
        """A finite number within the bounds. Never called for a turn with outcome `infra_error` or `hacked`."""
