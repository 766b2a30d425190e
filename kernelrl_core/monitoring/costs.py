"""Cost of a run: prices, spent amounts, and the budget.

A price comes from the recipe (`cost.prices`), else from its price table (`cost.table`), else from the options of policy
or evaluator: a config class may define `prices(self) -> Mapping[str, float]` with any of the names of `PriceSettings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from kernelrl_core.errors import KernelRLError, UsageError, suggestion
from kernelrl_core.recipe.schema import CostSettings, PriceSettings, Recipe, TrainSettings, Use
from kernelrl_core.sources.yaml import load_yaml
from kernelrl_core.types import Turn

__all__ = [
    "BudgetReached",
    "CostMeter",
    "Spent",
    "known_prices",
    "prices_of",
    "spent_on_row",
    "spent_on_step",
    "spent_on_training",
    "spent_on_turn",
]


class BudgetReached(KernelRLError):
    """The run has spent its budget. It stops, and can be resumed with a larger budget."""

    see = "budget"


@attrs.frozen
class Spent:
    """Spent amounts."""

    prompt_tokens: int = 0
    """Prompt tokens of sampled replies."""
    reply_tokens: int = 0
    """Sampled tokens."""
    train_tokens: int = 0
    """Tokens of prompts and replies in forward and backward passes."""
    gpu_seconds: float = 0.0
    """GPU seconds of evaluations."""
    scored_tokens: int = 0
    """Tokens of prompts and replies in forward passes without backward; priced as prompt tokens."""

    def __add__(self, other: Spent) -> Spent:
        return Spent(*(a + b for a, b in zip(attrs.astuple(self), attrs.astuple(other), strict=True)))

    def __sub__(self, other: Spent) -> Spent:
        return Spent(*(a - b for a, b in zip(attrs.astuple(self), attrs.astuple(other), strict=True)))

    def usd(self, prices: PriceSettings) -> float | None:
        """Cost in US dollars; amounts without a price are free. None if no price is set."""
        if all(price is None for price in attrs.astuple(prices)):
            return None
        tokens = (
            (self.prompt_tokens + self.scored_tokens) * (prices.prompt or 0.0)
            + self.reply_tokens * (prices.reply or 0.0)
            + self.train_tokens * (prices.train or 0.0)
        )
        return tokens / 1e6 + self.gpu_seconds / 3600 * (prices.gpu_hour or 0.0)

    def metrics(self) -> dict[str, float]:
        """Amounts under `cost/`."""
        return {f"cost/{name}": float(value) for name, value in attrs.asdict(self).items()}


def prices_of(recipe: Recipe) -> PriceSettings:
    """The prices of a recipe; see `known_prices`."""
    return known_prices(recipe.cost, recipe.policy, recipe.evaluator)


def known_prices(cost: CostSettings, policy: Use, evaluator: Use) -> PriceSettings:
    """The prices of `cost`, completed from its price table, then from the options of policy and evaluator.

    Raises:
        UsageError: the price table cannot be read, or has no entry for the model.
    """
    known: dict[str, float] = {}
    for use in (evaluator, policy):
        known |= use.options.prices()
    if cost.table is not None:
        known |= _table_entry(cost.table, getattr(policy.options, "model", None) or policy.use)
    given = attrs.asdict(cost.prices, filter=lambda _, value: value is not None)
    return PriceSettings(**{**known, **given})


def _table_entry(path: Path, model: str) -> dict[str, float]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"price table {path} cannot be read: {error}") from error
    table = load_yaml(text, path)
    if not isinstance(table, dict) or model not in table:
        names = [str(name) for name in table] if isinstance(table, dict) else []
        raise UsageError(f"{path} has no prices for {model!r}; {suggestion(model, names)}")
    entry, keys = table[model], attrs.fields_dict(PriceSettings)
    if not isinstance(entry, dict) or not all(key in keys and _is_price(value) for key, value in entry.items()):
        raise UsageError(f"{path}: {model}: must map {', '.join(keys)} to numbers of at least 0")
    return {key: float(value) for key, value in entry.items()}


def _is_price(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")


def spent_on_turn(turn: Turn) -> Spent:
    """The amounts of a turn sampled by this process."""
    found = turn.evaluation
    gpu = _gpu_seconds(found.seconds, found.provenance) if found is not None else 0.0
    prompt, reply = turn.reply.counted or (len(turn.prompt.tokens), len(turn.reply.tokens))
    return Spent(prompt, reply, 0, gpu)


def spent_on_row(row: Mapping[str, Any]) -> Spent:
    """The amounts of a row of `samples.jsonl` or `eval_samples.jsonl`."""
    found = row["evaluation"]
    gpu = _gpu_seconds(found["seconds"], found["provenance"]) if found is not None else 0.0
    prompt, reply = row["reply"].get("counted") or (len(row["prompt"]["tokens"]), len(row["reply"]["tokens"]))
    return Spent(prompt, reply, 0, gpu)


def spent_on_step(row: Mapping[str, Any]) -> Spent:
    """The amounts of a step, from its row of `metrics.jsonl`."""
    return Spent(
        int(row.get("cost/prompt_tokens", 0)),
        int(row.get("cost/reply_tokens", 0)),
        int(row.get("cost/train_tokens", 0)),
        float(row.get("cost/gpu_seconds", 0.0)),
        int(row.get("cost/scored_tokens", 0)),
    )


def spent_on_training(tokens: int, train: TrainSettings, *, scored: int) -> Spent:
    """The amounts of training on samples.

    Args:
        tokens: prompt and reply tokens of the samples.
        scored: those among them in whole steps, which are scored once more for each of `train.mismatch` (under the
            current weights) and `train.kl` (under the reference policy).
    """
    passes = train.needs_current_logprobs + (train.kl > 0)
    return Spent(train_tokens=tokens, scored_tokens=scored * passes)


def _gpu_seconds(seconds: Mapping[str, float], provenance: Mapping[str, Any]) -> float:
    """GPU seconds of an evaluation: `gpu` if the evaluator reports it, else trials, windows and probes on a GPU."""
    if provenance.get("cached") or provenance.get("joined"):
        return 0.0
    if "gpu" in seconds:
        return float(seconds["gpu"])
    return sum(float(seconds.get(key, 0.0)) for key in ("run", "timing", "no_op")) if provenance.get("gpu") else 0.0


class CostMeter:
    """Adds up the amounts that a run spends.

    Args:
        prices: prices of tokens and GPU hours.
        budget_usd: maximum cost in US dollars; None: no limit.
        before: amounts spent by earlier processes of the run.
        booked: the part of `before` that is in the metrics of finished steps.
    """

    def __init__(
        self,
        prices: PriceSettings,
        budget_usd: float | None = None,
        *,
        before: Spent = Spent(),
        booked: Spent = Spent(),
    ) -> None:
        self._prices = prices
        self._budget_usd = budget_usd
        self._total = before
        self._booked = booked

    def add(self, spent: Spent) -> None:
        self._total += spent

    def check(self) -> None:
        """Raise an error if the budget is spent.

        Raises:
            BudgetReached: the cost has reached the budget.
        """
        usd = self._total.usd(self._prices)
        if self._budget_usd is not None and usd is not None and usd >= self._budget_usd:
            digits = 2 if self._budget_usd >= 1 else 6
            spent = f"{usd:,.{digits}f} of {self._budget_usd:,.{digits}f} USD"
            raise BudgetReached(f"the budget is spent: {spent} (cost.budget_usd)")

    def book(self) -> dict[str, float]:
        """The `cost/*` metrics: amounts since the last call, and the total cost."""
        step = self._total - self._booked
        self._booked = self._total
        row = step.metrics()
        usd, total = step.usd(self._prices), self._total.usd(self._prices)
        if usd is not None and total is not None:
            row |= {"cost/usd": usd, "cost/total_usd": total}
        return row
