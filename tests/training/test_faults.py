"""Faults during training: each ends in the documented state, and the resumed run equals an uninterrupted one."""

from __future__ import annotations

import asyncio
import json
import math
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest

from kernelrl_core.algorithms.advantages import dr_grpo
from kernelrl_core.api.errors import InfrastructureError, KernelRLError, UsageError
from kernelrl_core.api.policies import (
    PolicyContext,
)
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
    SamplingOptions,
    TrainSettings,
)
from kernelrl_core.rollout.session import open_session
from kernelrl_core.runs.directory import RunDir, State
from kernelrl_core.training.execution import execute_run
from kernelrl_core.types import SampleId, Turn
from kernelrl_plugin_scripted.policy import ScriptedPolicy
from kernelrl_testing.fakes import FakeEnvironment, FakePolicy
from kernelrl_testing.training import make_recipe, train_here
from kernelrl_testing.waiting import takes_async

RECIPE = make_recipe(
    episode=EpisodeSettings(turns=2),
    sampling=SamplingOptions(max_tokens=10),
    train=TrainSettings(
        tasks_per_step=2, group_size=2, steps=3, loss="ppo", length_norm="max_tokens", learning_rate=0.5
    ),
    eval=EvalSettings(),
)
"""A step has 8 turns. Gradients of a group are computed while other groups are sampled."""
SCORED = attrs.evolve(RECIPE, train=attrs.evolve(RECIPE.train, kl=0.1, mismatch=MismatchSettings()))
"""Needs log-probabilities of the current weights and of the reference policy."""


@attrs.frozen
class Fault:
    """A fault in the n-th call of a policy method."""

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


class Policy(FakePolicy):
    """Fails according to `fault`, or waits within a method until an episode has raised."""

    def __init__(self, fault: Fault | None = None, meeting: Meeting | None = None) -> None:
        super().__init__()
        self.fault, self.meeting = fault, meeting
        self.run: asyncio.Task[Any] | None = None
        self.slow_after: int | None = None
        """Number of replies after which sampling takes longer."""

    async def before(self, method: str, argument: Any) -> None:
        call = self.calls.count(method)
        if self.fault is not None and (method, call) == (self.fault.method, self.fault.call):
            if self.fault.how == "loses":
                raise InfrastructureError("planted: no connection")
            await takes_async(0.01)  # until other episodes are under way
            if self.fault.how == "fails":
                raise RuntimeError("planted")
            if self.fault.how == "is cancelled":
                raise asyncio.CancelledError  # as a client does that is closed by its own library
            assert self.run is not None
            self.run.cancel()
            await takes_async(60)
        if self.meeting is not None and method == self.meeting.method:
            self.meeting.entered.set()
            await self.meeting.raised.wait()
        if method == "sample" and self.slow_after is not None and call > self.slow_after:
            await takes_async(0.05)
        await super().before(method, argument)


class Environment(FakeEnvironment):
    """Raises in the evaluation of the episode of `meeting`, once the policy is in the method of `meeting`."""

    def __init__(self, meeting: Meeting | None = None) -> None:
        super().__init__()
        self.meeting = meeting

    async def evaluate_reply(self, where: SampleId, *arguments: Any, **more: Any) -> Turn:
        if self.meeting is not None and where == self.meeting.episode:
            if self.meeting.method:
                await self.meeting.entered.wait()
            self.meeting.raised.set()
            raise KernelRLError("planted: the checker broke")
        return await super().evaluate_reply(where, *arguments, **more)


@attrs.frozen
class Played:
    run: RunDir
    policy: Policy

    def ids(self) -> list[str]:
        return [row["sample"] for row in self.run.rows("samples")]

    def result(self) -> tuple[object, ...]:
        """The parts of a run that must not depend on a fault: metrics, turns, credits, weights."""
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
    """Train the run in `path` from its last checkpoint."""
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
    """The exception that ended a run."""
    try:
        play(path, recipe, policy, environment)
    except BaseException as error:  # of the run, or its cancellation
        return first_error(error)
    pytest.fail("the run did not fail")


def require_equal_after_resume(tmp_path: Path, recipe: Recipe) -> Played:
    """Resume `run`; require that it equals an uninterrupted run and samples no recorded turn again."""
    recorded = [row["sample"] for row in RunDir(tmp_path / "run").rows("samples") if row["outcome"] != "infra_error"]
    again, whole = play(tmp_path / "run", recipe), play(tmp_path / "whole", recipe)
    assert again.result() == whole.result()
    assert len(recorded) == len(set(recorded))
    assert again.policy.calls.count("sample") == len(whole.ids()) - len(recorded)
    return again


# --- the policy -----------------------------------------------------------------------------------------------------

CALLS = [("sample", RECIPE, 11), ("backward", RECIPE, 3), ("update", RECIPE, 2), ("logprobs", SCORED, 4)]
"""Each fault is in the second step."""


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
def test_failing_policy_ends_the_run_and_loses_nothing(
    tmp_path: Path, method: str, recipe: Recipe, call: int, how: Any, message: str
) -> None:
    error = failed(tmp_path / "run", recipe, Policy(Fault(method, call, how)))
    assert isinstance(error, KernelRLError)
    assert error.message.partition(" (")[0] == message.format(method)  # the rest is the place
    assert committed_steps(tmp_path / "run") == [0]
    require_equal_after_resume(tmp_path, recipe)


@pytest.mark.parametrize(("method", "recipe", "call"), CALLS, ids=[call[0] for call in CALLS])
def test_run_cancelled_within_the_policy_loses_nothing(tmp_path: Path, method: str, recipe: Recipe, call: int) -> None:
    error = failed(tmp_path / "run", recipe, Policy(Fault(method, call, "is interrupted")))
    assert isinstance(error, asyncio.CancelledError)
    assert committed_steps(tmp_path / "run") == [0]
    require_equal_after_resume(tmp_path, recipe)


@pytest.mark.parametrize(("method", "recipe", "call"), CALLS[1:], ids=[call[0] for call in CALLS[1:]])
def test_infrastructure_error_during_the_update_ends_the_run(
    tmp_path: Path, method: str, recipe: Recipe, call: int
) -> None:
    error = failed(tmp_path / "run", recipe, Policy(Fault(method, call, "loses")))
    assert isinstance(error, InfrastructureError)
    require_equal_after_resume(tmp_path, recipe)


def test_infrastructure_error_during_sampling_masks_one_episode(tmp_path: Path) -> None:
    done = play(tmp_path / "run", policy=Policy(Fault("sample", 9, "loses")))
    lost = [row for row in done.run.rows("samples") if row["outcome"] == "infra_error"]
    assert [(row["step"], row["turn"]) for row in lost] == [(1, 0)]
    # The other turn of that episode is never sampled.
    assert len(done.ids()) == len(set(done.ids())) == 3 * 8 - 1
    assert [row["reason"] for row in done.run.rows("credits") if row["sample"] == lost[0]["sample"]] == ["infra_error"]


def test_lost_turn_of_an_uncommitted_step_is_sampled_again(tmp_path: Path) -> None:
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


def test_error_of_an_episode_during_backward_ends_the_step(tmp_path: Path) -> None:
    meeting = Meeting("backward", SampleId(0, 1, 1, 1))
    policy = Policy(meeting=meeting)
    assert str(failed(tmp_path / "run", RECIPE, policy, Environment(meeting))) == "planted: the checker broke"
    assert policy.calls.count("backward") == 1
    assert not policy.updates
    assert committed_steps(tmp_path / "run") == []
    require_equal_after_resume(tmp_path, RECIPE)


def test_error_of_an_episode_during_an_update_ends_its_own_step(tmp_path: Path) -> None:
    """The step that is being updated is committed; the step sampled ahead is not."""
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
    # A resumed run has other staleness, so this metric differs.
    assert again.result()[1:] == whole.result()[1:]


# --- the budget -----------------------------------------------------------------------------------------------------


def with_budget(usd: float) -> Recipe:
    """A reply costs 2 USD."""
    prices = PriceSettings(prompt=0.0, reply=1e6, train=0.0, gpu_hour=0.0)
    return attrs.evolve(RECIPE, cost=CostSettings(budget_usd=usd, prices=prices))


def test_unfinished_replies_at_the_budget_are_recorded_and_billed(tmp_path: Path) -> None:
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


def test_budget_reached_before_the_update_keeps_the_whole_step(tmp_path: Path) -> None:
    policy = Policy()
    error = failed(tmp_path / "run", with_budget(16.0), policy)
    assert isinstance(error, BudgetReached)
    assert not policy.updates
    run = RunDir(tmp_path / "run")
    assert (len(run.rows("samples")), len(run.rows("credits")), committed_steps(run.path)) == (8, 8, [])
    require_equal_after_resume(tmp_path, with_budget(1000.0))


# --- capabilities that are lost at the start ------------------------------------------------------------------------


def scripted(**changes: Any) -> LoadedRecipe:
    data = {
        "tasks": {"use": "starter", "practice": 0},
        "backend": {"use": "triton"},
        "policy": {"use": "scripted", "replies": [{"reply": "Hello."}]},
        "rewards": {"correct": {"use": "correctness"}},
        **changes,
    }
    return recipe_from_mapping(data, registry=registry(), name="test")


@pytest.fixture
def shrink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replaces the capabilities of policy `scripted` before and after its start."""
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
        (
            {"ratios": frozenset({"sequence"})},
            "train.ratio: policy 'scripted' with these options supports only ratio sequence",
        ),
    ],
)
def test_missing_capability_after_start_ends_the_run_before_the_first_sample(
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


def test_an_ended_run_is_locked_no_more(tmp_path: Path) -> None:
    """`kernelrl stop` would signal the process, which only prints the result."""
    loaded = scripted(train={"steps": 1})
    run = RunDir.create(tmp_path / "run", loaded.resolved, {})
    execute_run(run, loaded.recipe, loaded.resolved, registry())
    assert (run.state()[0], run.locked()) == ("finished", False)


def test_a_signal_after_the_last_step_does_not_undo_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = scripted(train={"steps": 1})
    run = RunDir.create(tmp_path / "run", loaded.resolved, {})
    record = RunDir.set_state

    def interrupted(run: RunDir, state: State, *details: Any, **more: Any) -> None:
        if state == "finished":
            signal.raise_signal(signal.SIGINT)
        record(run, state, *details, **more)

    monkeypatch.setattr(RunDir, "set_state", interrupted)
    former = signal.getsignal(signal.SIGINT)
    try:
        execute_run(run, loaded.recipe, loaded.resolved, registry())
    except KeyboardInterrupt:
        pytest.fail("the signal ended the process")
    assert run.state()[0] == "finished"
    assert signal.getsignal(signal.SIGINT) == former


@pytest.mark.parametrize(
    ("train", "capability", "message"),
    [
        ({"kl": 0.1}, "reference", "train.kl: policy 'scripted' gives no log-probabilities of its reference policy"),
        ({"mismatch": {}}, "logprobs", "train.mismatch: policy 'scripted' gives no log-probabilities of its current"),
    ],
)
def test_declared_but_missing_log_probabilities_are_a_usage_error(
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


def test_policy_without_warm_start_after_start_rejects_demonstrations(tmp_path: Path, shrink: Any) -> None:
    shrink({"warm_start": True}, {"warm_start": False})
    file = tmp_path / "demonstrations.jsonl"
    said = [{"role": "user", "content": "Write a kernel."}, {"role": "assistant", "content": "Here."}]
    file.write_text(json.dumps({"messages": said}) + "\n")
    recipe = scripted(demonstrations={"file": str(file)}).recipe

    async def scene() -> None:
        async with open_session(recipe, registry(), secret=b"s", run_dir=None, say=print):
            raise AssertionError("the session was opened")

    with pytest.raises(
        UsageError, match=r"^demonstrations\.file: policy 'scripted' does not warm-start with these options"
    ):
        asyncio.run(scene())


def test_capability_that_no_key_needs_may_be_lost(tmp_path: Path, shrink: Any) -> None:
    shrink({"warm_start": True, "streams": True}, {"warm_start": False, "streams": False})

    async def scene() -> bool:
        async with open_session(scripted().recipe, registry(), secret=b"s", run_dir=None, say=print) as session:
            return session.policy.capabilities.warm_start

    assert asyncio.run(scene()) is False


@pytest.mark.parametrize("advantages", [None, [0.0, 0.0], [["1"], [0.0]], [[0.0, 0.0], [0.0]], [[math.inf], [0.0]]])
def test_advantages_of_another_shape_end_the_run_with_the_name_of_the_component(
    advantages: Any, tmp_path: Path
) -> None:
    run = RunDir.create(tmp_path / "run", {}, {})
    recipe = attrs.evolve(RECIPE, episode=EpisodeSettings(turns=1))
    with pytest.raises(BaseException) as caught:  # noqa: PT011  (a group)
        train_here(run, recipe, FakeEnvironment(), FakePolicy(), lambda returns: advantages)
    error = first_error(caught.value)
    assert isinstance(error, KernelRLError)
    assert error.message.startswith("advantage 'grpo' returned ")
    assert "a list of finite numbers per episode" in error.fix
