"""The budget of a search: reservations, waiting, and what an interruption leaves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kernelrl_core.recipe.schema import PriceSettings
from kernelrl_core.rollout.sampler import SampleRequest
from kernelrl_core.types import Message, Outcome, Prompt, Reply, SampleId, Turn
from kernelrl_core.types.numbers import NonNegativeFloat
from kernelrl_core.types.replies import UNKNOWN_TOKEN
from kernelrl_core.types.training import SamplingSettings
from kernelrl_experiments.optimize.budget import Budget, Ended, prompt_tokens_at_most
from kernelrl_testing.values import make_turn
from kernelrl_testing.waiting import takes_async

MILLION = NonNegativeFloat(1e6)
PRICES = PriceSettings(prompt=MILLION, reply=MILLION)
"""One US dollar per token."""


def request(number: int, max_tokens: int = 10) -> SampleRequest:
    settings = SamplingSettings(max_tokens, 1.0, 1.0, -1, (), 0)
    return SampleRequest(SampleId(0, 0, 0, number), Prompt((Message("user", "ab"),), (1, 2)), settings)


def turn(number: int, **reply: Any) -> Turn:
    return make_turn(Outcome.FORMAT_ERROR, id=SampleId(0, 0, 0, number), evaluation=None, reply=made_reply(**reply))


def made_reply(tokens: int = 0, counted: tuple[int, int] | None = None) -> Reply:
    return Reply("", (1,) * tokens, (0.0,) * tokens, "stop", None, counted)


def budget(usd: float | None = None, evaluations: int | None = None) -> Budget:
    return Budget(PRICES, usd=usd, evaluations=evaluations)


def test_a_reply_reserves_its_prompt_and_all_tokens_that_it_may_have() -> None:
    async def go() -> None:
        made = budget(12.0)
        await made.reserve(request(0))
        assert made.reserved(SampleId(0, 0, 0, 0)) == 12

    asyncio.run(go())


def test_a_reply_waits_until_another_one_has_freed_its_rest() -> None:
    async def go() -> None:
        made = budget(20.0)
        await made.reserve(request(0))
        waiting = asyncio.create_task(made.reserve(request(1)))
        await takes_async()
        assert not waiting.done()
        made.settle(SampleId(0, 0, 0, 0), turn(0, counted=(2, 6)))
        await waiting
        assert made.usd == 8

    asyncio.run(go())


def test_the_search_ends_when_no_reply_in_progress_can_free_enough() -> None:
    async def go() -> None:
        made = budget(20.0)
        await made.reserve(request(0))
        made.settle(SampleId(0, 0, 0, 0), turn(0, counted=(2, 7)))
        with pytest.raises(Ended, match=r"9\.0000 of 20 USD are spent, and the next reply may cost 12\.0000 USD"):
            await made.reserve(request(1))

    asyncio.run(go())


@pytest.mark.parametrize("ended", [None, turn(0)], ids=["lost", "not counted"])
def test_a_reply_without_a_count_costs_its_highest_price(ended: Turn | None) -> None:
    async def go() -> None:
        made = budget(100.0)
        await made.reserve(request(0))
        made.settle(SampleId(0, 0, 0, 0), ended)
        assert made.usd == 12

    asyncio.run(go())


def test_evaluations_in_progress_count() -> None:
    async def go() -> None:
        made = budget(evaluations=1)
        await made.reserve(request(0))
        waiting = asyncio.create_task(made.reserve(request(1)))
        await takes_async()
        assert not waiting.done()
        made.settle(SampleId(0, 0, 0, 0), turn(0, tokens=1))  # no kernel, so no evaluation
        await waiting

    asyncio.run(go())


def row(number: int, outcome: str = "correct", counted: list[int] | None = None) -> dict[str, Any]:
    reply = {"tokens": [], "counted": counted}
    evaluation = {"seconds": {}, "provenance": {}} if outcome == "correct" else None
    return {"sample": f"0.0.0.{number}", "outcome": outcome, "reply": reply, "evaluation": evaluation}


def test_a_continued_search_counts_recorded_replies_and_those_that_an_end_interrupted() -> None:
    made = budget(100.0)
    begun = [{"sample": f"0.0.0.{number}", "usd": 12.0} for number in (1, 2, 3, 3)]
    made.restore(begun, [row(0), row(1, counted=[2, 3]), row(2, "infra_error"), row(3, counted=[1, 1])])
    # 5 and 2 counted, the lost reply, and the first one of attempt 3.
    assert made.usd == 5 + 2 + 12 + 12
    assert made.evaluations == 3


def test_no_token_of_an_estimated_prompt_is_shorter_than_a_byte() -> None:
    estimated = Prompt((Message("user", "é" * 100),), (UNKNOWN_TOKEN,) * 50)
    assert 200 <= prompt_tokens_at_most(estimated) < 250
    assert prompt_tokens_at_most(Prompt((Message("user", "é" * 100),), (5, 6, 7))) == 3
