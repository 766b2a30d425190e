"""Recipe keys of prices and the budget."""

from __future__ import annotations

from pathlib import Path

import attrs

from kernelrl_core.types.numbers import NonNegativeFloat, PositiveFloat

__all__ = ["CostSettings", "PriceSettings"]


@attrs.frozen
class PriceSettings:
    """Prices in US dollars. Null: the price from `cost.table`, else from the policy or evaluator, else free."""

    prompt: NonNegativeFloat | None = None
    """US dollars per million prompt tokens."""
    reply: NonNegativeFloat | None = None
    """US dollars per million reply tokens."""
    train: NonNegativeFloat | None = None
    """US dollars per million trained tokens, prompts included."""
    gpu_hour: NonNegativeFloat | None = None
    """US dollars per hour of a GPU that evaluates kernels."""


@attrs.frozen
class CostSettings:
    """Prices, and the budget of the run."""

    budget_usd: PositiveFloat | None = None
    """Stop the run when this many US dollars are spent; it can be resumed with a larger budget. Null: no limit."""
    prices: PriceSettings = PriceSettings()
    table: Path | None = None
    """YAML file of prices by model name, such as `Qwen/Qwen3-8B: {prompt: 0.1, reply: 0.4, train: 0.4}`. Used for
    prices that `cost.prices` does not set. Null: none."""
    gpu_seconds_per_evaluation: NonNegativeFloat = NonNegativeFloat(3.0)
    """GPU seconds per evaluation that `--dry-run` assumes. No effect on the run, or where kernels need no GPU."""
