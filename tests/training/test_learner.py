"""Overlap within and between steps, streaming of gradients, durations and cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from kernelrl_core.algorithms import advantages
from kernelrl_core.monitoring.costs import BudgetReached
from kernelrl_core.recipe.schema import (
    CostSettings,
    EpisodeSettings,
    EvalSettings,
    MismatchSettings,
    PriceSettings,
    Recipe,
    SamplingOptions,
    TrainSettings,
)
from kernelrl_core.runs.directory import RunDir
from kernelrl_core.runs.run_journal import RunJournal
from kernelrl_core.training.learner import streaming_obstacle
from kernelrl_core.types import (
    Message,
    Prompt,
    Reply,
    SampleId,
    Task,
    Turn,
)
from kernelrl_testing.fakes import FakeEnvironment, FakePolicy, FakeTasks, numbered_tasks
from kernelrl_testing.training import make_recipe, train_here
from kernelrl_testing.values import make_evaluation
from kernelrl_testing.waiting import takes_async, wait_until_async

TRAIN = TrainSettings(tasks_per_step=3, group_size=2, steps=2, length_norm="max_tokens", loss="ppo", substeps=2)
RECIPE = make_recipe(
    episode=EpisodeSettings(turns=2),
    sampling=SamplingOptions(max_tokens=10),
    train=TRAIN,
    eval=EvalSettings(),
)


class Policy(FakePolicy):
    """Samples the replies of a task in `delays[task]` seconds; `events` lists the calls in order.

    Args:
        replies_during: number of replies that are sampled before an update ends, except the last one of `steps`.
    """

    def __init__(
        self, delays: Sequence[float], *, train_s: float = 0.0, replies_during: int = 0, steps: int = 0
    ) -> None:
        super().__init__()
        self.delays, self.train_s = delays, train_s
        self.replies_during, self.steps = replies_during, steps
        self.events: list[str] = []

    def render(self, messages: Sequence[Message]) -> Prompt:
        return Prompt(tuple(messages), tuple(range(5)))

    async def before(self, method: str, argument: Any) -> None:
        if method == "sample":
            number = argument.messages[0].content.split()[1]
            await takes_async(self.delays[int(number)])
            self.events.append(f"sampled {number}")
        elif method == "update":
            begin = len(self.events)
            self.events.append(f"update {argument.step}")
            await takes_async(self.train_s)
            if argument.step < self.steps - 1:
                await wait_until_async(lambda: len(self.sampled_since(begin)) >= self.replies_during)
        else:
            self.events.append(f"{method} {argument if method == 'logprobs' else argument[0].id}")

    def sampled_since(self, begin: int) -> list[str]:
        return [event for event in self.events[begin:] if event.startswith("sampled")]


class Environment(FakeEnvironment):
    """The first episode of a task is correct, so that every group has a signal. An evaluation takes one GPU hour."""

    def turn(self, where: SampleId, task: Task, reply: Reply) -> Turn:
        turn = self.turn_that_is(where.attempt == 0, where)
        billed = make_evaluation(turn.outcome, seconds={"run": 3600.0}, provenance={"gpu": "H200"})
        return attrs.evolve(turn, evaluation=billed)


def play(path: Path, recipe: Recipe = RECIPE, policy: Policy | None = None) -> tuple[RunDir, Policy, list[str]]:
    """The run, its policy and the lines for the user."""
    run = RunDir(path) if path.exists() else RunDir.create(path, {}, {})
    policy, said = policy or Policy((0.0, 0.0, 0.0)), []
    environment = Environment(tasks=FakeTasks(numbered_tasks(train=3, held_out=3)))
    train_here(run, recipe, environment, policy, advantages.dr_grpo, say=said.append)
    return run, policy, said


def with_train(**changes: Any) -> Recipe:
    return attrs.evolve(RECIPE, train=attrs.evolve(TRAIN, **changes))


# --- gradients while others are sampled ---------------------------------------------------------------------------


def test_gradients_start_while_later_groups_are_sampled(tmp_path: Path) -> None:
    _, policy, _ = play(tmp_path / "run", with_train(steps=1, shuffle=False), Policy((0.0, 0.0, 0.2)))
    early = policy.events.index("backward 0.0.0.0")
    assert early < len(policy.events) - 1 - policy.events[::-1].index("sampled 2")


def test_gradients_wait_for_the_groups_before(tmp_path: Path) -> None:
    _, policy, _ = play(tmp_path / "run", with_train(steps=1, shuffle=False), Policy((0.2, 0.0, 0.0)))
    assert policy.events.index("backward 0.0.0.0") > policy.events.index("sampled 0")
    ids = [sample.id for samples, _ in policy.accumulated for sample in samples]
    assert ids == sorted(ids)


def test_accumulated_samples_are_the_start_of_the_first_substep(tmp_path: Path) -> None:
    """12 samples in 2 substeps: after groups of 4 samples, 2, 4 and 6 certainly belong to the first."""
    _, policy, _ = play(tmp_path / "run", with_train(steps=1))
    assert [len(samples) for samples, _ in policy.accumulated] == [2, 2, 2]
    (update,) = policy.updates
    assert update.accumulated == (2, 2, 2)
    assert list(update.substeps[0]) == [sample for samples, _ in policy.accumulated for sample in samples]
    assert {loss for _, loss in policy.accumulated} == {update.loss}
    # Returns [2, 1] and [0, 0] with mean 0.75; the loss denominator of a substep is 12 * 10 / 2.
    tokens = {advantage for substep in update.substeps for sample in substep for advantage in sample.advantages}
    assert tokens == {1.25 / 60, 0.25 / 60, -0.75 / 60}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"stream": False}, "train.stream"),
        ({"length_norm": "tokens"}, "length_norm"),
        ({"kl": 0.1}, "train.kl"),
    ],
)
def test_gradients_wait_for_values_known_only_at_the_end(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    recipe = with_train(**changes)
    assert why in streaming_obstacle(recipe, Policy.capabilities)
    _, policy, _ = play(tmp_path / "run", recipe)
    assert not policy.accumulated
    assert [(step.accumulated, list(map(len, step.substeps))) for step in policy.updates] == [((), [6, 6])] * 2


def test_policy_without_streaming_gets_no_backward_calls(tmp_path: Path) -> None:
    policy = Policy((0.0, 0.0, 0.0))
    policy.capabilities = attrs.evolve(policy.capabilities, streams=False)
    play(tmp_path / "run", policy=policy)
    assert not policy.accumulated


def test_early_stop_of_episodes_prevents_streaming() -> None:
    recipe = attrs.evolve(RECIPE, episode=EpisodeSettings(turns=2, stop="correct"))
    assert "episode.stop" in streaming_obstacle(recipe, Policy.capabilities)


def test_order_completion_trains_on_groups_as_they_complete(tmp_path: Path) -> None:
    recipe = with_train(steps=1, shuffle=False, order="completion", exact_resume=False)
    run, policy, _ = play(tmp_path / "run", recipe, Policy((0.1, 0.05, 0.0)))
    samples = [sample for substep in policy.updates[0].substeps for sample in substep]
    assert [sample.id[:4] for sample in samples[::4]] == ["0.2.", "0.1.", "0.0."]
    ids = [row["sample"] for row in run.rows("credits")]
    assert ids == sorted(ids)


# --- sampling ahead -------------------------------------------------------------------------------------------------


def test_step_is_sampled_during_the_update_of_the_previous_step(tmp_path: Path) -> None:
    policy = Policy((0.0, 0.0, 0.0), replies_during=12, steps=3)
    run, policy, _ = play(tmp_path / "run", with_train(steps=3, staleness=1, exact_resume=False), policy)
    between = policy.events[policy.events.index("update 0") : policy.events.index("update 1")]
    assert any(event.startswith("sampled") for event in between)
    behind = {row["step"]: row["behind"] for row in run.rows("samples")}
    assert behind == {0: 0, 1: 1, 2: 1}
    assert [row.get("train/staleness_max") for row in run.rows("metrics")] == [None, 1, 1]


def test_next_step_is_sampled_during_held_out_evaluation(tmp_path: Path) -> None:
    """With 2 episodes for each of 3 tasks, 6 replies of each are sampled concurrently."""
    recipe = attrs.evolve(RECIPE, eval=EvalSettings(every=1, samples=2))
    run, policy, _ = play(tmp_path / "run", recipe, Policy((0.02, 0.02, 0.02)))
    assert policy.most_concurrent == 12
    assert {row["behind"] for row in run.rows("samples")} == {0}


def test_without_staleness_every_step_is_sampled_with_its_own_weights(tmp_path: Path) -> None:
    run, policy, _ = play(tmp_path / "run")
    assert {row["behind"] for row in run.rows("samples")} == {0}
    assert policy.events[policy.events.index("update 0") + 1].startswith("sampled")
    assert not any("train/staleness_max" in row for row in run.rows("metrics"))


# --- sampling slots ---------------------------------------------------------------------------------------------------


def test_concurrency_limits_the_replies_sampled_concurrently(tmp_path: Path) -> None:
    recipe = attrs.evolve(RECIPE, sampling=SamplingOptions(max_tokens=10, concurrency=3))
    _, policy, _ = play(tmp_path / "run", recipe, Policy((0.01, 0.01, 0.01)))
    assert policy.most_concurrent == 3


@pytest.mark.parametrize("concurrency", [1, 3])
def test_held_out_evaluation_shares_the_slots_with_the_next_step(tmp_path: Path, concurrency: int) -> None:
    """Both have the sample ids of step 1 while they wait."""
    recipe = attrs.evolve(
        RECIPE,
        sampling=SamplingOptions(max_tokens=10, concurrency=concurrency),
        eval=EvalSettings(every=1, samples=2, at_start=True),
    )
    run, policy, _ = play(tmp_path / "run", recipe, Policy((0.001, 0.001, 0.001)))
    assert policy.most_concurrent == concurrency
    assert (len(run.rows("samples")), len(run.rows("eval_samples"))) == (2 * 12, 3 * 12)


# --- durations --------------------------------------------------------------------------------------------------------


def test_durations_of_the_phases_sum_to_the_time_of_the_step(tmp_path: Path) -> None:
    run, _, _ = play(tmp_path / "run", policy=Policy((0.02, 0.01, 0.01), train_s=0.03))
    for row in run.rows("metrics"):
        parts = {key: value for key, value in row.items() if key.startswith("time/in_")}
        assert sum(parts.values()) == pytest.approx(row["time/total"], abs=1e-6)
        assert parts["time/in_training"] >= 0.03
        assert parts["time/in_sampling"] > 0


# --- cost -------------------------------------------------------------------------------------------------------------


def test_run_stops_at_its_budget_and_continues_with_a_larger_one(tmp_path: Path) -> None:
    """Per sample: 5 prompt tokens for 5 USD, 2 reply tokens for 2 USD, 1 GPU hour of evaluation for 3 USD: 10 USD."""
    prices = PriceSettings(prompt=1e6, reply=1e6, train=0.0, gpu_hour=3.0)

    def recipe(budget: float) -> Recipe:
        sampling = SamplingOptions(max_tokens=10, concurrency=1)
        return attrs.evolve(RECIPE, sampling=sampling, cost=CostSettings(budget_usd=budget, prices=prices))

    # A reply is sampled while the previous one is evaluated. The ninth is refused when seven are billed and the eighth
    # is in progress or billed, too.
    with pytest.raises(BudgetReached, match=r"[78]0\.00 of 65\.00 USD"):
        play(tmp_path / "run", recipe(65.0), Policy((0.02,) * 3))
    run = RunDir(tmp_path / "run")
    assert len(run.rows("samples")) == 8
    with pytest.raises(BudgetReached, match=r"80\.00 of 80\.00 USD"):
        play(tmp_path / "run", recipe(80.0))
    _, policy, _ = play(tmp_path / "run", recipe(1000.0))
    assert len(policy.requests) == 24 - 8
    rows = run.rows("metrics")
    assert [row["cost/usd"] for row in rows] == [120.0, 120.0]
    assert rows[-1]["cost/total_usd"] == 240.0
    assert (rows[0]["cost/prompt_tokens"], rows[0]["cost/reply_tokens"], rows[0]["cost/gpu_seconds"]) == (60, 24, 43200)
    assert rows[0]["cost/train_tokens"] == 12 * 7


def test_scored_tokens_are_billed_and_known_on_resume(tmp_path: Path) -> None:
    """12 samples of 7 tokens, scored by reference policy and current weights: 2 * 84 tokens; 12 prompts of 5."""
    recipe = with_train(steps=1, kl=0.1, mismatch=MismatchSettings())
    recipe = attrs.evolve(recipe, cost=CostSettings(prices=PriceSettings(prompt=1e6, reply=0.0, train=0.0)))
    run, policy, _ = play(tmp_path / "run", recipe)
    assert policy.events[-3:] == ["logprobs current", "logprobs reference", "update 0"]
    (row,) = run.rows("metrics")
    assert (row["cost/train_tokens"], row["cost/scored_tokens"]) == (84, 168)
    assert row["cost/usd"] == 168 + 60
    ledger = RunJournal(run)
    ledger.close()
    assert ledger.spent == ledger.booked
    assert ledger.spent.scored_tokens == 168


def test_unfinished_replies_are_counted_on_resume(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "run", {}, {})
    run.unlock()
    with run.journal_path("begun").open("w") as stream:
        stream.write('{"purpose":"train","sample":"0.0.0.0"}\n{"purpose":"train","sample":"0.1.0.0"}\n')
    _, _, said = play(tmp_path / "run")
    assert any(line.startswith("resampling 2 replies") for line in said)
    assert not any("resampling" in line for line in play(tmp_path / "other")[2])


def test_replies_that_were_lost_in_an_earlier_interruption_are_not_counted_again(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "run", {}, {})
    run.unlock()
    run.journal_path("begun").write_text('{"purpose":"train","sample":"0.0.0.0"}\n')
    play(tmp_path / "run")
    with run.journal_path("begun").open("a") as stream:
        stream.write('{"purpose":"train","sample":"7.0.0.0"}\n{"purpose":"eval","sample":"0.0.0.0"}\n')
    ledger = RunJournal(run)
    ledger.close()
    assert ledger.lost == 2


def test_step_whose_samples_are_all_filtered_by_mismatch_is_skipped_and_trains_nothing(tmp_path: Path) -> None:
    """The forward passes that found the mismatch are billed: they were made."""

    class Different(Policy):
        async def logprobs(self, samples: Any, weights: Any) -> Any:
            return [[value - 9.0 for value in row] for row in await super().logprobs(samples, weights)]

    recipe = with_train(steps=1, mismatch=MismatchSettings())
    run, policy, _ = play(tmp_path / "run", recipe, Different([0.0] * 9))
    (row,) = run.rows("metrics")
    assert policy.updates == []
    assert (row["train/skipped"], row["train/rejected"]) == (1.0, 1.0)
    assert row["cost/train_tokens"] == 0
    assert row["cost/scored_tokens"] > 0


def test_metrics_that_are_not_finite_are_named_and_not_recorded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Diverged(Policy):
        async def update(self, update: Any) -> Any:
            return {**await super().update(update), "loss": float("nan"), "grad_norm": float("inf"), "tokens": 7.0}

    run, _, _ = play(tmp_path / "run", with_train(steps=1), Diverged([0.0] * 3))
    (row,) = run.rows("metrics")
    assert row["train/tokens"] == 7.0
    assert not {"train/loss", "train/grad_norm"} & set(row)
    assert "step 0: not recorded, because they are not finite: grad_norm, loss" in caplog.text
