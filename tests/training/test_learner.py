"""What overlaps in a step, what stops it, and where its seconds go; on a policy and an environment of this test."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest
from loop_builder import train_here

from kernelrl_core.algorithms import advantages
from kernelrl_core.api.evaluators import EvaluatorConfig
from kernelrl_core.api.policies import (
    Loss,
    LossSample,
    PolicyCapabilities,
    PolicyConfig,
    PolicyContext,
    SamplingSettings,
    TrainablePolicy,
    TrainingSample,
    Update,
)
from kernelrl_core.api.tasks import TaskSource
from kernelrl_core.monitoring.costs import BudgetReached
from kernelrl_core.recipe.schema import (
    CostSettings,
    EpisodeSettings,
    EvalSettings,
    MismatchSettings,
    PriceSettings,
    Recipe,
    RewardUse,
    SamplingOptions,
    TrainSettings,
    Use,
)
from kernelrl_core.runs.directory import RunDir
from kernelrl_core.runs.run_journal import RunJournal
from kernelrl_core.training.learner import streaming_obstacle
from kernelrl_core.types import (
    Candidate,
    Evaluation,
    Extraction,
    Message,
    Outcome,
    Prompt,
    Reply,
    SampleId,
    Score,
    Task,
    Turn,
    Verdict,
)

TRAIN = TrainSettings(tasks_per_step=3, group_size=2, steps=2, length_norm="max_tokens", loss="ppo", substeps=2)
RECIPE = Recipe(
    tasks=Use("fake"),
    backend=Use("fake"),
    policy=Use("fake", PolicyConfig()),
    evaluator=Use("fake", EvaluatorConfig()),
    rewards={"correct": RewardUse("correctness")},
    episode=EpisodeSettings(turns=2),
    sampling=SamplingOptions(max_tokens=10),
    train=TRAIN,
    eval=EvalSettings(),
)


class Policy(TrainablePolicy):
    """Replies take as long as `delays` says for their task; what happens is noted in order."""

    context_tokens = 1000
    capabilities = PolicyCapabilities(
        frozenset({"ppo"}), deterministic=True, streams=True, logprobs=True, reference=True
    )

    def __init__(self, delays: Sequence[float]) -> None:
        self.delays, self.drawing, self.most, self.asked = delays, 0, 0, 0
        self.accumulated: list[tuple[Sequence[LossSample], Loss]] = []
        self.steps: list[Update] = []
        self.events: list[str] = []
        self.train_s = 0.0

    async def start(self, context: PolicyContext) -> None: ...

    def render(self, messages: Sequence[Message]) -> Prompt:
        return Prompt(tuple(messages), tuple(range(5)))

    async def sample(self, prompt: Prompt, settings: SamplingSettings) -> Reply:
        self.asked += 1
        self.drawing += 1
        self.most = max(self.most, self.drawing)
        await asyncio.sleep(self.delays[int(prompt.messages[0].content[-1])])
        self.drawing -= 1
        self.events.append(f"sampled {prompt.messages[0].content[-1]}")
        right = random.Random(settings.seed).random() < 0.5
        return Reply("right" if right else "wrong", (1, 2), (-0.1, -0.2), "stop")

    async def logprobs(
        self, samples: Sequence[TrainingSample], weights: Literal["current", "reference"]
    ) -> Sequence[Sequence[float]]:
        self.events.append(f"logprobs {weights}")
        return [sample.sampler_logprobs for sample in samples]

    async def backward(self, samples: Sequence[LossSample], loss: Loss) -> None:
        self.events.append(f"backward {samples[0].id}")
        self.accumulated.append((samples, loss))

    async def update(self, update: Update) -> dict[str, float]:
        self.events.append(f"update {update.step}")
        self.steps.append(update)
        await asyncio.sleep(self.train_s)
        return {}

    async def save(self, directory: Path) -> dict[str, Any]:
        return {}

    async def load(self, state: Mapping[str, Any], directory: Path) -> None: ...


class Composer:
    def fit(self, task: Task, *, render: Any, max_tokens: int, turns: Sequence[Turn], **_: Any) -> tuple[Prompt, int]:
        return render([Message("user", task.reference)]), max_tokens


class Tasks(TaskSource):
    def splits(self) -> tuple[str, ...]:
        return ("train", "held_out")

    def tasks(self, split: str) -> list[Task]:
        return [Task(f"{split}/{i}", f"reference {i}", split) for i in range(3)]


class Environment:
    def __init__(self) -> None:
        self.composer, self.tasks = Composer(), Tasks()

    async def examples(self, task: Task) -> tuple[()]:
        return ()

    async def evaluate_reply(
        self, where: SampleId, task: Task, prompt: Prompt, reply: Reply, *, seconds: Mapping[str, float]
    ) -> Turn:
        await asyncio.sleep(0.001)
        # By the attempt, so that every group has a signal.
        right = where.attempt == 0
        outcome = Outcome.CORRECT if right else Outcome.INCORRECT
        return Turn(
            id=where,
            task=task,
            prompt=prompt,
            reply=reply,
            extraction=Extraction(Candidate(f"{where}", "fake")),
            evaluation=Evaluation(outcome, seconds={"run": 3600.0}, provenance={"gpu": "H200"}),
            findings=(),
            outcome=outcome,
            verdict=Verdict.CLEAN,
            message="",
            score=Score(float(right)),
            seconds={**seconds, "evaluate": 0.001},
        )

    async def observe(self, rows: Sequence[Mapping[str, Any]]) -> None: ...

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, loop: Mapping[str, Any]) -> None: ...


class Display:
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def play(path: Path, recipe: Recipe = RECIPE, policy: Policy | None = None) -> tuple[RunDir, Policy, Display]:
    run = RunDir(path) if path.exists() else RunDir.create(path, {}, {})
    policy, display = policy or Policy((0.0, 0.0, 0.0)), Display()
    train_here(run, recipe, Environment(), policy, advantages.dr_grpo, say=display.say)
    return run, policy, display


def with_train(**changes: Any) -> Recipe:
    return attrs.evolve(RECIPE, train=attrs.evolve(TRAIN, **changes))


# --- gradients while others are sampled ---------------------------------------------------------------------------


def test_gradients_begin_while_later_groups_are_sampled(tmp_path: Path) -> None:
    _, policy, _ = play(tmp_path / "run", with_train(steps=1, shuffle=False), Policy((0.0, 0.0, 0.2)))
    early = policy.events.index("backward 0.0.0.0")
    assert early < len(policy.events) - 1 - policy.events[::-1].index("sampled 2")


def test_gradients_wait_for_the_groups_before(tmp_path: Path) -> None:
    _, policy, _ = play(tmp_path / "run", with_train(steps=1, shuffle=False), Policy((0.2, 0.0, 0.0)))
    assert policy.events.index("backward 0.0.0.0") > policy.events.index("sampled 0")
    ids = [sample.id for samples, _ in policy.accumulated for sample in samples]
    assert ids == sorted(ids)


def test_what_is_accumulated_is_the_beginning_of_the_first_substep(tmp_path: Path) -> None:
    """12 samples in 2 substeps: after groups of 4 samples, 2, 4 and 6 surely belong to the first."""
    _, policy, _ = play(tmp_path / "run", with_train(steps=1))
    assert [len(samples) for samples, _ in policy.accumulated] == [2, 2, 2]
    (update,) = policy.steps
    assert update.accumulated == (2, 2, 2)
    assert list(update.substeps[0]) == [sample for samples, _ in policy.accumulated for sample in samples]
    assert {loss for _, loss in policy.accumulated} == {update.loss}
    # Returns [2, 1] and [0, 0] with mean 0.75; the loss of a substep is divided by 12 * 10 / 2.
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
def test_gradients_wait_where_something_is_known_at_the_end_alone(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    recipe = with_train(**changes)
    assert why in streaming_obstacle(recipe, Policy.capabilities)
    _, policy, _ = play(tmp_path / "run", recipe)
    assert not policy.accumulated
    assert [(step.accumulated, list(map(len, step.substeps))) for step in policy.steps] == [((), [6, 6])] * 2


def test_a_policy_that_cannot_accumulate_is_not_asked(tmp_path: Path) -> None:
    policy = Policy((0.0, 0.0, 0.0))
    policy.capabilities = attrs.evolve(policy.capabilities, streams=False)
    play(tmp_path / "run", policy=policy)
    assert not policy.accumulated


def test_an_early_end_of_attempts_leaves_the_divisor_open() -> None:
    recipe = attrs.evolve(RECIPE, episode=EpisodeSettings(turns=2, stop="correct"))
    assert "episode.stop" in streaming_obstacle(recipe, Policy.capabilities)


def test_groups_may_be_learnt_from_in_the_order_of_their_completion(tmp_path: Path) -> None:
    recipe = with_train(steps=1, shuffle=False, order="completion", exact_resume=False)
    run, policy, _ = play(tmp_path / "run", recipe, Policy((0.1, 0.05, 0.0)))
    samples = [sample for substep in policy.steps[0].substeps for sample in substep]
    assert [sample.id[:4] for sample in samples[::4]] == ["0.2.", "0.1.", "0.0."]
    ids = [row["sample"] for row in run.rows("credits")]
    assert ids == sorted(ids)


# --- sampling ahead -------------------------------------------------------------------------------------------------


def test_a_step_may_be_sampled_while_the_one_before_is_trained(tmp_path: Path) -> None:
    policy = Policy((0.0, 0.0, 0.0))
    policy.train_s = 0.05
    run, policy, _ = play(tmp_path / "run", with_train(steps=3, staleness=1, exact_resume=False), policy)
    between = policy.events[policy.events.index("update 0") : policy.events.index("update 1")]
    assert any(event.startswith("sampled") for event in between)
    behind = {row["step"]: row["behind"] for row in run.rows("samples")}
    assert behind == {0: 0, 1: 1, 2: 1}
    assert [row.get("train/staleness_max") for row in run.rows("metrics")] == [None, 1, 1]


def test_the_next_step_is_sampled_while_the_held_out_split_is_evaluated(tmp_path: Path) -> None:
    """With 2 attempts at each of 3 tasks, 6 replies of either are drawn at once."""
    recipe = attrs.evolve(RECIPE, eval=EvalSettings(every=1, samples=2))
    run, policy, _ = play(tmp_path / "run", recipe, Policy((0.02, 0.02, 0.02)))
    assert policy.most == 12
    assert {row["behind"] for row in run.rows("samples")} == {0}


def test_without_staleness_every_step_is_sampled_with_its_own_weights(tmp_path: Path) -> None:
    run, policy, _ = play(tmp_path / "run")
    assert {row["behind"] for row in run.rows("samples")} == {0}
    assert policy.events[policy.events.index("update 0") + 1].startswith("sampled")
    assert not any("train/staleness_max" in row for row in run.rows("metrics"))


# --- places at the sampler --------------------------------------------------------------------------------------------


def test_no_more_replies_are_drawn_at_once_than_the_recipe_allows(tmp_path: Path) -> None:
    recipe = attrs.evolve(RECIPE, sampling=SamplingOptions(max_tokens=10, concurrency=3))
    _, policy, _ = play(tmp_path / "run", recipe, Policy((0.01, 0.01, 0.01)))
    assert policy.most == 3


@pytest.mark.parametrize("concurrency", [1, 3])
def test_held_out_samples_share_the_places_with_those_of_the_next_step(tmp_path: Path, concurrency: int) -> None:
    """Both have the sample ids of step 1 while they wait."""
    recipe = attrs.evolve(
        RECIPE,
        sampling=SamplingOptions(max_tokens=10, concurrency=concurrency),
        eval=EvalSettings(every=1, samples=2, at_start=True),
    )
    run, policy, _ = play(tmp_path / "run", recipe, Policy((0.001, 0.001, 0.001)))
    assert policy.most == concurrency
    assert (len(run.rows("samples")), len(run.rows("eval_samples"))) == (2 * 12, 3 * 12)


# --- where the time goes ----------------------------------------------------------------------------------------------


def test_the_parts_of_a_step_add_up_to_its_time(tmp_path: Path) -> None:
    policy = Policy((0.02, 0.01, 0.01))
    policy.train_s = 0.03
    run, _, _ = play(tmp_path / "run", policy=policy)
    for row in run.rows("metrics"):
        parts = {key: value for key, value in row.items() if key.startswith("time/in_")}
        assert sum(parts.values()) == pytest.approx(row["time/total"], abs=1e-6)
        assert parts["time/in_training"] >= 0.03
        assert parts["time/in_sampling"] > 0


# --- cost -------------------------------------------------------------------------------------------------------------


def test_a_run_stops_at_its_budget_and_goes_on_with_a_larger_one(tmp_path: Path) -> None:
    """A sample reads 5 tokens for 5 USD, draws 2 for 2 USD, and is judged for 1 hour at 3 USD: 10 USD."""
    prices = PriceSettings(prompt=1e6, reply=1e6, train=0.0, gpu_hour=3.0)

    def recipe(budget: float) -> Recipe:
        sampling = SamplingOptions(max_tokens=10, concurrency=1)
        return attrs.evolve(RECIPE, sampling=sampling, cost=CostSettings(budget_usd=budget, prices=prices))

    # One reply is drawn while the one before is judged: the ninth is refused, with seven paid and the eighth under way,
    # or paid as well.
    with pytest.raises(BudgetReached, match=r"[78]0\.00 of 65\.00 USD"):
        play(tmp_path / "run", recipe(65.0), Policy((0.02,) * 3))
    run = RunDir(tmp_path / "run")
    assert len(run.rows("samples")) == 8
    with pytest.raises(BudgetReached, match=r"80\.00 of 80\.00 USD"):
        play(tmp_path / "run", recipe(80.0))
    _, policy, _ = play(tmp_path / "run", recipe(1000.0))
    assert policy.asked == 24 - 8
    rows = run.rows("metrics")
    assert [row["cost/usd"] for row in rows] == [120.0, 120.0]
    assert rows[-1]["cost/total_usd"] == 240.0
    assert (rows[0]["cost/prompt_tokens"], rows[0]["cost/reply_tokens"], rows[0]["cost/gpu_seconds"]) == (60, 24, 43200)
    assert rows[0]["cost/train_tokens"] == 12 * 7


def test_what_is_only_scored_is_metered_and_known_on_resume(tmp_path: Path) -> None:
    """12 samples of 7 tokens, at the reference and at the weights of now: 2 * 84 at 1 USD, and 12 prompts of 5."""
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


def test_replies_that_were_under_way_are_counted_on_resume(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "run", {}, {})
    run.unlock()
    with run.journal_path("begun").open("w") as stream:
        stream.write('{"purpose":"train","sample":"0.0.0.0"}\n{"purpose":"train","sample":"0.1.0.0"}\n')
    _, _, display = play(tmp_path / "run")
    assert any(line.startswith("2 replies were under way") for line in display.said)
    assert not any("under way" in line for line in play(tmp_path / "other")[2].said)
