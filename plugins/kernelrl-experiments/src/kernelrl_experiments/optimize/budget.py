"""The budget of a search. Every reply takes its highest possible price before it is sampled.

A reply that ends frees what it did not use. A reply without a count of its tokens keeps its highest price: one that was
lost, one that the end of the process interrupted, and one whose endpoint does not count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from kernelrl_core.monitoring.costs import BudgetReached, Spent, spent_on_row, spent_on_turn
from kernelrl_core.recipe.schema import PriceSettings
from kernelrl_core.rollout.sampler import SampleRequest
from kernelrl_core.types import Outcome, Prompt, SampleId, Turn
from kernelrl_core.types.replies import UNKNOWN_TOKEN

__all__ = ["Budget", "Ended", "prompt_tokens_at_most"]

_TOKENS_PER_MESSAGE = 16
"""Tokens that a chat template adds to a message, at most."""


class Ended(BudgetReached):
    """A limit of the search permits no further reply."""

    def __init__(self, message: str, limit: Literal["budget", "evaluations"]) -> None:
        super().__init__(message)
        self.limit = limit


class Budget:
    """See `heldout.search.Reservations`.

    Args:
        prices: prices of tokens and GPU hours; amounts without a price are free.
        usd: limit in US dollars; None: none.
        evaluations: limit of evaluations; None: none.
        gpu_seconds: GPU seconds of an evaluation, at most.
    """

    def __init__(
        self, prices: PriceSettings, *, usd: float | None, evaluations: int | None, gpu_seconds: float = 0.0
    ) -> None:
        self._prices, self._limit_usd, self._limit_evaluations = prices, usd, evaluations
        self._gpu_seconds = gpu_seconds
        self._open: dict[SampleId, float] = {}
        self._changed = asyncio.Event()
        self.last_usd = Spent(gpu_seconds=gpu_seconds).usd(prices) or 0.0
        """Highest price of the evaluation that measures the best kernel once more, at the end. It stays reserved."""
        self.spent = Spent()
        """Counted amounts."""
        self.uncounted_usd = 0.0
        """Highest prices of replies without a count."""
        self.evaluations = 0
        """Evaluations so far."""

    @property
    def usd(self) -> float | None:
        """Cost so far in US dollars; None without a price."""
        counted = self.spent.usd(self._prices)
        return None if counted is None else counted + self.uncounted_usd

    def restore(self, started: Iterable[Mapping[str, Any]], rows: Iterable[Mapping[str, Any]]) -> None:
        """Add what earlier processes spent.

        Args:
            started: rows of `begun.jsonl`, one for each started reply.
            rows: rows of `eval_samples.jsonl`.
        """
        highest: dict[str, list[float]] = {}
        for row in started:
            highest.setdefault(row["sample"], []).append(float(row.get("usd", 0.0)))
        for row in rows:
            self.evaluations += row["evaluation"] is not None
            prices = highest.get(row["sample"], [])
            is_counted = row["reply"].get("counted") is not None or bool(row["reply"]["tokens"])
            if row["outcome"] != Outcome.INFRA_ERROR and prices and is_counted:
                prices.pop(0)
                self.spent += spent_on_row(row)
        self.uncounted_usd += sum(sum(prices) for prices in highest.values())

    async def reserve(self, request: SampleRequest) -> None:
        """Wait until the limits permit a reply, and take its highest price.

        Raises:
            Ended: they do not, even when all replies in progress have ended.
        """
        usd = self._highest_price(request)
        while (lack := self._lack(usd)) is not None:
            if not self._open:
                raise lack
            self._changed.clear()
            await self._changed.wait()
        self._open[request.id] = usd

    def reserved(self, where: SampleId) -> float:
        """Highest price of a reply in progress, in US dollars."""
        return self._open.get(where, 0.0)

    def settle(self, where: SampleId, turn: Turn | None) -> None:
        """A reply has ended; see `heldout.search.Reservations`."""
        highest = self._open.pop(where, 0.0)
        self.evaluations += turn is not None and turn.evaluation is not None
        if turn is None or turn.masked or not (turn.reply.counted or turn.reply.tokens):
            self.uncounted_usd += highest
        else:
            self.spent += spent_on_turn(turn)
        self._changed.set()

    def add_last(self) -> None:
        """The best kernel is measured once more, at the highest price."""
        self.uncounted_usd += self.last_usd

    def _highest_price(self, request: SampleRequest) -> float:
        highest = Spent(
            prompt_tokens=prompt_tokens_at_most(request.prompt),
            reply_tokens=request.settings.max_tokens,
            gpu_seconds=self._gpu_seconds,
        )
        return highest.usd(self._prices) or 0.0

    def _lack(self, usd: float) -> Ended | None:
        """The reason why the limits do not permit a reply of this price."""
        spent = (self.usd or 0.0) + sum(self._open.values())
        if self._limit_usd is not None and spent + usd + self.last_usd > self._limit_usd:
            message = f"{spent:.4f} of {self._limit_usd:g} USD are spent, and the next reply may cost {usd:.4f} USD"
            return Ended(message, "budget")
        if self._limit_evaluations is not None and self.evaluations + len(self._open) >= self._limit_evaluations:
            return Ended(f"{self.evaluations} of {self._limit_evaluations} evaluations are made", "evaluations")
        return None


def prompt_tokens_at_most(prompt: Prompt) -> int:
    """Tokens of a prompt; the largest number possible, if the endpoint applies the chat template: no token of a text is
    shorter than a byte."""
    if UNKNOWN_TOKEN not in prompt.tokens[:1]:
        return len(prompt.tokens)
    texts = sum(len(message.content.encode("utf-8", "replace")) for message in prompt.messages)
    return texts + _TOKENS_PER_MESSAGE * len(prompt.messages)
