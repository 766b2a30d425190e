"""Prices, amounts and their cost, on numbers computed by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.evaluators import EvaluatorConfig
from kernelrl_core.api.policies import PolicyConfig
from kernelrl_core.monitoring.costs import BudgetReached, CostMeter, Spent, prices_of, spent_on_row
from kernelrl_core.planning.estimates import spent_at_most
from kernelrl_core.recipe.schema import (
    CostSettings,
    EpisodeSettings,
    Extension,
    HistorySettings,
    LastHistory,
    MismatchSettings,
    PriceSettings,
    Recipe,
    RewardUse,
    SamplingOptions,
    Use,
)


@attrs.frozen
class Options(PolicyConfig):
    model: str = "vendor/large"

    def prices(self) -> Mapping[str, float]:
        return {"prompt": 1.0, "reply": 2.0, "train": 3.0}


def recipe(cost: CostSettings | None = None, **changes: object) -> Recipe:
    whole = Recipe(Use("none"), Use("none"), Use("none", Options()), {"correct": RewardUse("none")})
    whole = attrs.evolve(whole, evaluator=Use("none", EvaluatorConfig()))
    return attrs.evolve(whole, cost=cost or whole.cost, **changes)


def test_a_sum_in_dollars() -> None:
    """2 M prompts at 0.5, 1 M replies at 3, 4 M trained at 0.25, half an hour at 4: 1 + 3 + 1 + 2."""
    spent = Spent(2_000_000, 1_000_000, 4_000_000, 1800.0)
    assert spent.usd(PriceSettings(0.5, 3.0, 0.25, 4.0)) == pytest.approx(7.0)
    assert spent.usd(PriceSettings(reply=3.0)) == pytest.approx(3.0)
    assert spent.usd(PriceSettings()) is None
    assert spent + spent - spent == spent
    assert Spent(scored_tokens=2_000_000).usd(PriceSettings(0.5, 3.0, 0.25)) == pytest.approx(1.0)


def test_recipe_prices_override_the_table_and_the_table_overrides_the_plugin(tmp_path: Path) -> None:
    table = tmp_path / "prices.yaml"
    table.write_text("vendor/large: {reply: 20.0, train: 30}\n")
    found = prices_of(recipe(CostSettings(prices=PriceSettings(train=300.0), table=table)))
    assert found == PriceSettings(prompt=1.0, reply=20.0, train=300.0)


@pytest.mark.parametrize("price", ["1e-1", "1.0e-1", "0.1", ".1"])
def test_a_price_in_any_number_format_is_read(tmp_path: Path, price: str) -> None:
    table = tmp_path / "prices.yaml"
    table.write_text(f"vendor/large: {{reply: {price}}}\n")
    assert prices_of(recipe(CostSettings(table=table))).reply == 0.1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vendor/larger: {reply: 1}", "did you mean 'vendor/larger'"),
        ("vendor/large: {replies: 1}", "must map prompt, reply, train, gpu_hour"),
        ("vendor/large: {reply: -1}", "numbers of at least 0"),
        ("vendor/large: 3", "must map"),
        ("- a", "no prices for 'vendor/large'"),
        ("a: [", r"prices.yaml:1: not YAML"),
        ("a: {reply: 1}\na: {reply: 2}", r"prices.yaml:2: key 'a' is given twice"),
    ],
)
def test_an_unusable_price_table_is_reported(tmp_path: Path, text: str, message: str) -> None:
    table = tmp_path / "prices.yaml"
    table.write_text(text)
    with pytest.raises(UsageError, match=message):
        prices_of(recipe(CostSettings(table=table)))


@pytest.mark.parametrize(
    ("seconds", "provenance", "expected"),
    [
        ({"build": 9.0, "run": 2.0, "timing": 1.0, "wait": 7.0}, {"gpu": "H200"}, 3.0),
        ({"build": 9.0, "run": 2.0}, {}, 0.0),
        ({"run": 2.0, "gpu": 5.5}, {}, 5.5),
        ({"run": 2.0}, {"gpu": "H200", "cached": True}, 0.0),
        ({"run": 2.0}, {"gpu": "H200", "joined": True}, 0.0),
    ],
)
def test_gpu_seconds_count_evaluation_on_a_gpu_only(
    seconds: dict[str, float], provenance: dict[str, object], expected: float
) -> None:
    row = {
        "prompt": {"tokens": [1, 2, 3]},
        "reply": {"tokens": [4]},
        "evaluation": {"seconds": seconds, "provenance": provenance},
    }
    assert spent_on_row(row) == Spent(3, 1, 0, expected)


def test_an_estimate_assumes_replies_of_maximum_length_and_growing_prompts() -> None:
    """2 episodes, 3 turns, steps 0 and 1; replies of 100 tokens, of 150 from step 1 on; the last 1 turn is shown.

    Prompts 500, 1700, 1700 per episode: 3900 * 2 * 2 = 15600. Replies (100 + 150) * 2 * 3 = 1500.
    Trained 15600 + 1500. GPU 3 s * 12."""
    whole = recipe(
        episode=EpisodeSettings(turns=3),
        history=HistorySettings(keep=LastHistory(1)),
        sampling=SamplingOptions(max_tokens=100, extend=Extension(1, 150)),
    )
    found = spent_at_most(whole, 500, episodes=2, steps=[range(2)], on_gpu=True, trains=True)
    assert found == Spent(15_600, 1_500, 17_100, 36.0)


@pytest.mark.parametrize(("changes", "passes"), [({"kl": 0.1}, 1), ({"kl": 0.1, "mismatch": MismatchSettings()}, 2)])
def test_an_estimate_includes_the_scored_tokens(changes: dict[str, Any], passes: int) -> None:
    """4 episodes of one turn: 4 * 500 prompt and 4 * 100 reply tokens are trained on; each pass scores all 2,400."""
    whole = recipe(sampling=SamplingOptions(max_tokens=100))
    whole = attrs.evolve(whole, train=attrs.evolve(whole.train, **changes))
    found = spent_at_most(whole, 500, episodes=4, steps=[range(1)], on_gpu=False, trains=True)
    assert found == Spent(2_000, 400, 2_400, 0.0, passes * 2_400)
    evaluated = spent_at_most(whole, 500, episodes=4, steps=[range(1)], on_gpu=False, trains=False)
    assert evaluated == Spent(2_000, 400)


@pytest.mark.parametrize(
    ("budget", "amounts"), [(0.003, "0.004200 of 0.003000 USD"), (1200.0, "1,200.50 of 1,200.00 USD")]
)
def test_a_spent_budget_is_reported_with_enough_digits(budget: float, amounts: str) -> None:
    """At 1 dollar per million tokens, 4,200 tokens cost 0.0042 dollars."""
    spent = Spent(reply_tokens=4200 if budget < 1 else 1_200_500_000)
    with pytest.raises(BudgetReached, match=f"the budget is spent: {amounts}"):
        CostMeter(PriceSettings(1.0, 1.0, 1.0), budget, before=spent).check()
