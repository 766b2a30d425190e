"""Faults while a run is trained: each ends in the documented state, and the resumed run equals the undisturbed one."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest
from loop_builder import train_here
from value_builders import make_turn

from kernelrl_core.algorithms.advantages import dr_grpo
from kernelrl_core.api.errors import InfrastructureError, KernelRLError, UsageError
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
from kernelrl_core.planning.load import LoadedRecipe, recipe_from_mapping
from kernelrl_core.plugins.boundary import first_error
from kernelrl_core.plugins.registry import registry
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
from kernelrl_core.rollout.session import open_session
from kernelrl_core.runs.directory import RunDir
from kernelrl_core.training.execution import execute_run
from kernelrl_core.types import Candidate, Extraction, Message, Outcome, Prompt, Reply, SampleId, Score, Task, Turn
from kernelrl_plugin_scripted.policy import ScriptedPolicy

RECIPE = Recipe(
    tasks=Use("fake"),
    backend=Use("fake"),
    policy=Use("fake", PolicyConfig()),
    evaluator=Use("fake", EvaluatorConfig()),
    rewards={"correct": RewardUse("correctness")},
    episode=EpisodeSettings(turns=2),
    sampling=SamplingOptions(max_tokens=10),
    train=TrainSettings(
        tasks_per_step=2, group_size=2, steps=3, loss="ppo", length_norm="max_tokens", learning_rate=5.0
    ),
    eval=EvalSettings(),
)
"""A step has 8 turns. Gradients of a group are computed while others are sampled."""
SCORED = attrs.evolve(RECIPE, train=attrs.evolve(RECIPE.train, kl=0.1, mismatch=MismatchSettings()))
"""Asks for log-probabilities of the current weights and of the reference policy."""


@attrs.frozen
class Fault:
    """What the n-th call of a method of the policy does."""

    method: str
    call: int
    how: Literal["fails", "is cancelled", "is interrupted", "loses"]


@attrs.frozen
class Meeting:
    """An episode raises while the policy is in a method."""

    method: str
    """Empty: at any time."""
    episode: SampleId
    """The turn whose evaluation raises."""
    entered: asyncio.Event = attrs.field(factory=asyncio.Event)
    raised: asyncio.Event = attrs.field(factory=asyncio.Event)


class Policy(TrainablePolicy):
    """A reply is a function of weight, prompt and seed; a correct one becomes more probable by training."""

    context_tokens = 1000
    capabilities = PolicyCapabilities(
        frozenset({"ppo"}), deterministic=True, streams=True, logprobs=True, reference=True
    )

    def __init__(self, fault: Fault | None = None, meeting: Meeting | None = None) -> None:
        self.fault, self.meeting, self.weight = fault, meeting, 0.4
        self.calls: list[str] = []
        self.run: asyncio.Task[Any] | None = None
        self.slow_after: int | None = None
        """Replies after so many take longer."""
        self.updates: list[Update] = []

    async def start(self, context: PolicyContext) -> None: ...

    def render(self, messages: Sequence[Message]) -> Prompt:
        return Prompt(tuple(messages), tuple(range(len(messages))))

    async def sample(self, prompt: Prompt, settings: SamplingSettings) -> Reply:
        await self._call("sample")
        if self.slow_after is not None and self.calls.count("sample") > self.slow_after:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0)
        right = random.Random(f"{settings.seed}{len(prompt.tokens)}").random() < self.weight
        return Reply("right" if right else "wrong", (1, 2), (-0.1, -0.2), "stop")

    async def logprobs(
        self, samples: Sequence[TrainingSample], weights: Literal["current", "reference"]
    ) -> Sequence[Sequence[float]]:
        await self._call("logprobs")
        return [[value - (weights == "reference") * 0.1 for value in one.sampler_logprobs] for one in samples]

    async def backward(self, samples: Sequence[LossSample], loss: Loss) -> None:
        await self._call("backward")

    async def update(self, update: Update) -> dict[str, float]:
        await self._call("update")
        self.updates.append(update)
        signal = sum(max(sample.advantages[0], 0.0) for substep in update.substeps for sample in substep)
        self.weight += update.optimizer.learning_rate * signal / 10
        return {"loss": -signal}

    async def save(self, directory: Path) -> dict[str, Any]:
        (directory / "weights.json").write_text(json.dumps(self.weight))
        return {}

    async def load(self, state: Mapping[str, Any], directory: Path) -> None:
        self.weight = json.loads((directory / "weights.json").read_text())

    async def _call(self, method: str) -> None:
        self.calls.append(method)
        if self.fault is not None and (method, self.calls.count(method)) == (self.fault.method, self.fault.call):
            if self.fault.how == "loses":
                raise InfrastructureError("planted: no connection")
            await asyncio.sleep(0.01)  # until other episodes are under way
            if self.fault.how == "fails":
                raise RuntimeError("planted")
            if self.fault.how == "is cancelled":
                raise asyncio.CancelledError  # as a client does that is closed by its own library
            assert self.run is not None
            self.run.cancel()
            await asyncio.sleep(60)
        if self.meeting is not None and method == self.meeting.method:
            self.meeting.entered.set()
            await self.meeting.raised.wait()


class Composer:
    def fit(self, task: Task, *, render: Any, max_tokens: int, turns: Sequence[Turn], **_: Any) -> tuple[Prompt, int]:
        said = [Message("user", task.reference), *(Message("user", turn.feedback) for turn in turns)]
        return render(said), max_tokens


class Tasks(TaskSource):
    def splits(self) -> tuple[str, ...]:
        return ("train", "held_out")

    def tasks(self, split: str) -> list[Task]:
        return [Task(f"{split}/{i}", f"reference {i}", split) for i in range(4)]


class Environment:
    """Evaluates by the text of the reply."""

    def __init__(self, meeting: Meeting | None = None) -> None:
        self.composer, self.tasks, self.meeting = Composer(), Tasks(), meeting

    async def examples(self, task: Task) -> tuple[()]:
        return ()

    async def evaluate_reply(
        self, where: SampleId, task: Task, prompt: Prompt, reply: Reply, *, seconds: Mapping[str, float]
    ) -> Turn:
        await asyncio.sleep(0)
        if self.meeting is not None and where == self.meeting.episode:
            if self.meeting.method:
                await self.meeting.entered.wait()
            self.meeting.raised.set()
            raise KernelRLError("planted: the checker broke")
        right = reply.text == "right"
        return make_turn(
            Outcome.CORRECT if right else Outcome.INCORRECT,
            id=where,
            task=task,
            prompt=prompt,
            reply=reply,
            extraction=Extraction(Candidate(f"{reply.text} {where}", "fake")),
            score=Score(float(right), {"correct": float(right)}),
            feedback=f"turn {where.turn}: {reply.text}",
            seconds=seconds,
        )

    async def observe(self, rows: Sequence[Mapping[str, Any]]) -> None: ...

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, loop: Mapping[str, Any]) -> None: ...


@attrs.frozen
class Played:
    run: RunDir
    policy: Policy

    def ids(self) -> list[str]:
        return [row["sample"] for row in self.run.rows("samples")]

    def result(self) -> tuple[object, ...]:
        """Everything of a run that must not depend on a fault: metrics, turns, credits, weights."""
        rows = self.run.rows("metrics")
        turns = [{k: v for k, v in row.items() if k not in ("seconds", "behind")} for row in self.run.rows("samples")]
        return (
            [{k: v for k, v in row.items() if not k.startswith(("time/", "cost/"))} for row in rows],
            sorted(turns, key=lambda row: row["sample"]),
            self.run.rows("credits"),
            self.policy.weight,
        )


def play(
    path: Path, recipe: Recipe = RECIPE, policy: Policy | None = None, environment: Environment | None = None
) -> Played:
    """Train the run in `path` from where it stands."""
    run = RunDir(path) if path.exists() else RunDir.create(path, {"seed": recipe.seed}, {})
    policy = policy or Policy()

    def stop_requested() -> bool:
        policy.run = asyncio.current_task()
        return False

    train_here(
        run, recipe, environment or Environment(), policy, dr_grpo, say=lambda _: None, stop_requested=stop_requested
    )
    return Played(run, policy)


def failed(path: Path, recipe: Recipe, policy: Policy, environment: Environment | None = None) -> BaseException:
    """What ended a run."""
    try:
        play(path, recipe, policy, environment)
    except BaseException as error:  # of the run, or its cancellation
        return first_error(error)
    pytest.fail("the run did not fail")


def require_equal_after_resume(tmp_path: Path, recipe: Recipe) -> Played:
    """Resume `run`: it equals an undisturbed run, and no turn that was recorded is sampled again."""
    recorded = [row["sample"] for row in RunDir(tmp_path / "run").rows("samples") if row["outcome"] != "infra_error"]
    again, whole = play(tmp_path / "run", recipe), play(tmp_path / "whole", recipe)
    assert again.result() == whole.result()
    assert len(recorded) == len(set(recorded))
    assert again.policy.calls.count("sample") == len(whole.ids()) - len(recorded)
    return again


# --- the policy -----------------------------------------------------------------------------------------------------

CALLS = [("sample", RECIPE, 11), ("backward", RECIPE, 3), ("update", RECIPE, 2), ("logprobs", SCORED, 4)]
"""Each is in the second step."""


def committed_steps(path: Path) -> list[int]:
    return [row["step"] for row in RunDir(path).rows("checkpoints")]


@pytest.mark.parametrize(("method", "recipe", "call"), CALLS, ids=[call[0] for call in CALLS])
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("fails", "policy 'fake' failed in {}: RuntimeError: planted"),
        ("is cancelled", "policy 'fake' was cancelled in {}"),
    ],
)
def test_a_failing_policy_ends_the_run_and_loses_nothing(
    tmp_path: Path, method: str, recipe: Recipe, call: int, how: Any, message: str
) -> None:
    error = failed(tmp_path / "run", recipe, Policy(Fault(method, call, how)))
    assert isinstance(error, KernelRLError)
    assert error.message == message.format(method)
    assert committed_steps(tmp_path / "run") == [0]
    require_equal_after_resume(tmp_path, recipe)


@pytest.mark.parametrize(("method", "recipe", "call"), CALLS, ids=[call[0] for call in CALLS])
def test_a_run_that_is_cancelled_within_the_policy_loses_nothing(
    tmp_path: Path, method: str, recipe: Recipe, call: int
) -> None:
    error = failed(tmp_path / "run", recipe, Policy(Fault(method, call, "is interrupted")))
    assert isinstance(error, asyncio.CancelledError)
    assert committed_steps(tmp_path / "run") == [0]
    require_equal_after_resume(tmp_path, recipe)


@pytest.mark.parametrize(("method", "recipe", "call"), CALLS[1:], ids=[call[0] for call in CALLS[1:]])
def test_an_infrastructure_error_while_learning_ends_the_run(
    tmp_path: Path, method: str, recipe: Recipe, call: int
) -> None:
    error = failed(tmp_path / "run", recipe, Policy(Fault(method, call, "loses")))
    assert isinstance(error, InfrastructureError)
    require_equal_after_resume(tmp_path, recipe)


def test_an_infrastructure_error_while_sampling_masks_one_episode(tmp_path: Path) -> None:
    done = play(tmp_path / "run", policy=Policy(Fault("sample", 9, "loses")))
    lost = [row for row in done.run.rows("samples") if row["outcome"] == "infra_error"]
    assert [(row["step"], row["turn"]) for row in lost] == [(1, 0)]
    # The other turn of that episode is never sampled.
    assert len(done.ids()) == len(set(done.ids())) == 3 * 8 - 1
    assert [row["reason"] for row in done.run.rows("credits") if row["sample"] == lost[0]["sample"]] == ["infra_error"]


def test_a_turn_lost_in_a_step_that_was_not_fixed_is_sampled_again(tmp_path: Path) -> None:
    policy = Policy(Fault("sample", 9, "loses"))
    failed(tmp_path / "run", RECIPE, policy, Environment(Meeting("", SampleId(1, 1, 1, 1))))
    run = RunDir(tmp_path / "run")
    lost = [row["sample"] for row in run.rows("samples") if row["outcome"] == "infra_error"]
    assert len(lost) == 1
    recorded = len(run.rows("samples")) - 1
    again, whole = play(tmp_path / "run"), play(tmp_path / "whole")
    assert again.policy.calls.count("sample") == 3 * 8 - recorded
    assert (again.run.rows("credits"), again.policy.weight) == (whole.run.rows("credits"), whole.policy.weight)
    outcomes = [row["outcome"] for row in again.run.rows("samples") if row["sample"] == lost[0]]
    assert outcomes[0] == "infra_error" != outcomes[1]


# --- a rollout that raises while the policy learns ------------------------------------------------------------------


def test_an_episode_that_raises_during_backward_ends_the_step(tmp_path: Path) -> None:
    meeting = Meeting("backward", SampleId(0, 1, 1, 1))
    policy = Policy(meeting=meeting)
    assert str(failed(tmp_path / "run", RECIPE, policy, Environment(meeting))) == "planted: the checker broke"
    assert policy.calls.count("backward") == 1
    assert not policy.updates
    assert committed_steps(tmp_path / "run") == []
    require_equal_after_resume(tmp_path, RECIPE)


def test_an_episode_that_raises_during_an_update_ends_its_own_step(tmp_path: Path) -> None:
    """The step that is being learned from is committed; the one that is sampled ahead is not."""
    train = attrs.evolve(RECIPE.train, staleness=1, exact_resume=False, learning_rate=0.0)
    recipe = attrs.evolve(RECIPE, train=train)
    meeting = Meeting("update", SampleId(1, 0, 0, 1))
    policy = Policy(meeting=meeting)
    assert str(failed(tmp_path / "run", recipe, policy, Environment(meeting))) == "planted: the checker broke"
    assert len(policy.updates) == 1
    assert committed_steps(tmp_path / "run") == [0]
    recorded = [row["sample"] for row in RunDir(tmp_path / "run").rows("samples")]
    assert len(recorded) > 8
    again, whole = play(tmp_path / "run", recipe), play(tmp_path / "whole", recipe)
    assert again.policy.calls.count("sample") == 3 * 8 - len(recorded)
    # Staleness is what a resumed run does not repeat, so metrics differ in it.
    assert again.result()[1:] == whole.result()[1:]


# --- the budget -----------------------------------------------------------------------------------------------------


def with_budget(usd: float) -> Recipe:
    """A reply costs 2 USD."""
    prices = PriceSettings(prompt=0.0, reply=1e6, train=0.0, gpu_hour=0.0)
    return attrs.evolve(RECIPE, cost=CostSettings(budget_usd=usd, prices=prices))


def test_replies_under_way_when_the_budget_is_reached_are_recorded_and_paid(tmp_path: Path) -> None:
    policy = Policy()
    policy.slow_after = 1
    error = failed(tmp_path / "run", with_budget(2.0), policy)
    assert isinstance(error, BudgetReached)
    assert error.message == "the budget is spent: 2.00 of 2.00 USD (cost.budget_usd)"
    run = RunDir(tmp_path / "run")
    assert {row["sample"] for row in run.rows("begun")} == {row["sample"] for row in run.rows("samples")}
    assert sorted(row["sample"] for row in run.rows("samples")) == ["0.0.0.0", "0.0.1.0", "0.1.0.0", "0.1.1.0"]
    again = failed(tmp_path / "run", with_budget(8.0), Policy())
    assert str(again) == "the budget is spent: 8.00 of 8.00 USD (cost.budget_usd)"
    require_equal_after_resume(tmp_path, with_budget(1000.0))


def test_a_budget_that_is_reached_before_the_update_keeps_the_whole_step(tmp_path: Path) -> None:
    policy = Policy()
    error = failed(tmp_path / "run", with_budget(16.0), policy)
    assert isinstance(error, BudgetReached)
    assert not policy.updates
    run = RunDir(tmp_path / "run")
    assert (len(run.rows("samples")), len(run.rows("credits")), committed_steps(run.path)) == (8, 8, [])
    require_equal_after_resume(tmp_path, with_budget(1000.0))


# --- capabilities that shrink after the start -----------------------------------------------------------------------


def scripted(**changes: Any) -> LoadedRecipe:
    data = {
        "tasks": {"use": "starter"},
        "backend": {"use": "triton"},
        "policy": {"use": "scripted", "replies": [{"reply": "Hello."}]},
        "rewards": {"correct": {"use": "correctness"}},
        **changes,
    }
    return recipe_from_mapping(data, registry=registry(), name="test")


@pytest.fixture
def shrink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replaces the capabilities of the policy `scripted` before its start, and after it."""
    monkeypatch.setenv("KERNELRL_CACHE_DIR", str(tmp_path / "cache"))

    def use(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        make, begin = ScriptedPolicy.__init__, ScriptedPolicy.start

        def init(self: Any, options: Any) -> None:
            make(self, options)
            self.capabilities = attrs.evolve(self.capabilities, **before)

        async def start(self: Any, context: PolicyContext) -> None:
            await begin(self, context)
            self.capabilities = attrs.evolve(self.capabilities, **after)

        monkeypatch.setattr(ScriptedPolicy, "__init__", init)
        monkeypatch.setattr(ScriptedPolicy, "start", start)

    return use


@pytest.mark.parametrize(
    ("after", "message"),
    [
        ({"losses": frozenset()}, "policy 'scripted' cannot learn"),
        ({"losses": frozenset({"other"})}, "train.loss: policy 'scripted' has no loss 'importance_sampling'"),
        ({"ratios": frozenset({"sequence"})}, "train.ratio: policy 'scripted' weights its losses by sequence alone"),
    ],
)
def test_a_run_whose_policy_can_do_less_after_its_start_ends_before_the_first_sample(
    tmp_path: Path, shrink: Any, after: dict[str, Any], message: str
) -> None:
    shrink({}, after)
    loaded = scripted()
    run = RunDir.create(tmp_path / "run", loaded.resolved, {})
    with pytest.raises(UsageError) as refused:
        execute_run(run, loaded.recipe, loaded.resolved, registry())
    assert refused.value.message.startswith(message)
    state = json.loads((run.path / "state.json").read_text())
    assert state["state"] == "failed"
    assert state["error"].startswith(message)
    assert run.rows("begun") == []


@pytest.mark.parametrize(
    ("train", "capability", "message"),
    [
        ({"kl": 0.1}, "reference", "train.kl: policy 'scripted' gives no log-probabilities of its reference policy"),
        ({"mismatch": {}}, "logprobs", "train.mismatch: policy 'scripted' gives no log-probabilities of its current"),
    ],
)
def test_log_probabilities_that_a_policy_declares_and_does_not_give_are_refused(
    tmp_path: Path, shrink: Any, monkeypatch: pytest.MonkeyPatch, train: Any, capability: str, message: str
) -> None:
    config = type(scripted().recipe.policy.options)
    declared = config.capabilities
    monkeypatch.setattr(config, "capabilities", lambda self: attrs.evolve(declared(self), **{capability: True}))
    shrink({}, {capability: False})
    loaded = scripted(train=train)
    run = RunDir.create(tmp_path / "run", loaded.resolved, {})
    with pytest.raises(UsageError) as refused:
        execute_run(run, loaded.recipe, loaded.resolved, registry())
    assert refused.value.message.startswith(message)
    assert run.rows("begun") == []


def test_a_policy_that_no_longer_warm_starts_refuses_demonstrations(tmp_path: Path, shrink: Any) -> None:
    shrink({"warm_start": True}, {"warm_start": False})
    file = tmp_path / "demonstrations.jsonl"
    said = [{"role": "user", "content": "Write a kernel."}, {"role": "assistant", "content": "Here."}]
    file.write_text(json.dumps({"messages": said}) + "\n")
    recipe = scripted(demonstrations={"file": str(file)}).recipe

    async def scene() -> None:
        async with open_session(recipe, registry(), secret=b"s", run_dir=None, say=print):
            raise AssertionError("the session was opened")

    with pytest.raises(UsageError, match=r"^demonstrations\.file: policy 'scripted' does not warm-start as it is set"):
        asyncio.run(scene())


def test_a_capability_that_no_key_asks_for_may_shrink(tmp_path: Path, shrink: Any) -> None:
    shrink({"warm_start": True, "streams": True}, {"warm_start": False, "streams": False})

    async def scene() -> bool:
        async with open_session(scripted().recipe, registry(), secret=b"s", run_dir=None, say=print) as session:
            return session.policy.capabilities.warm_start

    assert asyncio.run(scene()) is False
