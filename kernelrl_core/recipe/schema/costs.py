"""What a run may cost."""

from __future__ import annotations

from pathlib import Path

import attrs

from kernelrl_core.types.numbers import NonNegativeFloat, PositiveFloat

__all__ = ["CostSettings", "PriceSettings"]


@attrs.frozen
class PriceSettings:
    """Prices in US dollars; null takes what policy and evaluator know, or nothing."""

    prompt: NonNegativeFloat | None = None
    """A million tokens of prompts."""
    reply: NonNegativeFloat | None = None
    """A million tokens of replies."""
    train: NonNegativeFloat | None = None
    """A million tokens, prompts included, that are trained on."""
    gpu_hour: NonNegativeFloat | None = None
    """An hour of a GPU that judges."""


@attrs.frozen
class CostSettings:
    """What the run may cost."""

    budget_usd: PositiveFloat | None = None
    """Stop when so much is spent; the run can be resumed with more. Null: no limit."""
    prices: PriceSettings = PriceSettings()
    table: Path | None = None
    """YAML file of prices by the model's name, such as `Qwen/Qwen3-8B: {prompt: 0.1, reply: 0.4, train: 0.4}`, for what
    `prices` leaves open. Null: none."""
    gpu_seconds_per_evaluation: NonNegativeFloat = NonNegativeFloat(3.0)
    """Assumed by `--dry-run`, where kernels run on a GPU."""
