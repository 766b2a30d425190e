"""The contract tests on the bundled components, and on broken ones: each test of a contract can fail."""

from __future__ import annotations

import math
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pytest

from kernelrl_core.api import Component, Requires
from kernelrl_core.api.backends import Backend, BackendFacts, Example, KernelFact, SourceFacts
from kernelrl_core.api.checkers import Candidate, Checker, Finding, Rule, Severity
from kernelrl_core.api.evaluators import Evaluation, EvaluationRequest, Outcome
from kernelrl_core.api.feedback import Feedback
from kernelrl_core.api.loggers import Logger
from kernelrl_core.api.policies import PolicyCapabilities, PolicyConfig
from kernelrl_core.api.retrievers import Retriever
from kernelrl_core.api.rewards import Reward, RewardBounds, RewardConfig, Turn
from kernelrl_core.api.tasks import Demonstration, Task
from kernelrl_core.plugins.kinds import KINDS_BY_NAME
from kernelrl_core.plugins.loading import PluginInfo
from kernelrl_core.plugins.registry import Registry, registry
from kernelrl_core.recipe.plugin_faults import import_faults
from kernelrl_core.testing.contracts import CONTRACTS, RewardContract, failures
from kernelrl_core.testing.fakes import FakeEvaluator, FakePolicy, FakeTasks
from kernelrl_core.testing.values import REFERENCE, SOURCE, make_evaluation, make_reply

ATTRIBUTES: Mapping[str, Mapping[str, Any]] = {
    "scripted": {"options": {"replies": [{"reply": "one"}, {"reply": "two"}]}},
    "starter": {"training_splits": ("practice",)},
}
ELSEWHERE = (
    *("local", "modal", "ray", "route", "openai", "tinker", "torch", "kernelbench"),
    *("dataset", "directory", "bm25", "faiss", "hybrid", "value", "wandb"),
)
"""Components that need processes, a server, an account or files: other tests run their contracts where they can."""


def bundled() -> Iterator[tuple[str, str]]:
    for kind in CONTRACTS:
        yield from ((kind, one.name) for one in registry().components(kind) if one.name not in ELSEWHERE)


@pytest.mark.parametrize(("kind", "name"), list(bundled()))
def test_bundled_components_fulfil_their_contract(kind: str, name: str, tmp_path: Path) -> None:
    contract = type("Bundled", (CONTRACTS[kind],), {"component": name, **ATTRIBUTES.get(name, {})})
    assert failures(contract(), tmp_path) == {}


def test_each_kind_has_a_contract() -> None:
    assert set(CONTRACTS) == set(KINDS_BY_NAME) - {"commands"}


class TestCorrectness(RewardContract):
    """As a plugin's author writes it."""

    component = "correctness"


# --- broken components ----------------------------------------------------------------------------------------------


@pytest.fixture
def failing(tmp_path: Path) -> Callable[..., set[str]]:
    """Names of the tests that fail for a component of this kind, made of a class and the class of its options."""

    def run(kind: str, target: Any, config: Any = None, **attributes: Any) -> set[str]:
        module = ModuleType("kernelrl_broken_component")
        vars(module).update(target=target, config=config)
        sys.modules[module.__name__] = module
        offered = Component("broken", f"{module.__name__}:target", config=f"{module.__name__}:config" if config else "")
        plugins = Registry((*registry().plugins, PluginInfo("test", "test", "1", "ok", components={kind: (offered,)})))
        named = {"component": "broken", "registry": lambda self: plugins}
        # The module is not there in another process: that test has a component of its own below.
        named["test_options_import_nothing_heavy"] = lambda self: None
        contract = type("Broken", (CONTRACTS[kind],), named | attributes)
        with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
            return {name.removeprefix("test_") for name in failures(contract(), Path(folder))}

    return run


@attrs.frozen
class Bounds(RewardConfig):
    low: float = 0.0
    high: float = 1.0
    gap: float = 1.0

    def bounds(self) -> RewardBounds:
        return RewardBounds(self.low, self.high, self.gap)


class Correct(Reward):
    def __init__(self, options: Bounds) -> None:
        self.scored = 0

    def score(self, turn: Turn) -> float:
        return float(turn.correct)


def test_a_component_that_nobody_offers_fails(tmp_path: Path) -> None:
    contract = type("Absent", (RewardContract,), {"component": "no_such_reward"})
    found = failures(contract(), tmp_path)
    assert "no reward 'no_such_reward'" in found["test_is_found_and_loads"]


def test_heavy_imports_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "heavy_options.py").write_text("import hashlib, json, numpy\n")
    (tmp_path / "numpy.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    component = Component("heavy", "heavy_options:x", config="heavy_options:y", requires=Requires(modules=("hashlib",)))
    assert [fault.split()[3] for fault in import_faults(component)] == ["hashlib;", "numpy;"]


Failing = Callable[..., set[str]]


def test_broken_rewards_fail(failing: Failing) -> None:
    class TooHigh(Correct):
        def score(self, turn: Turn) -> float:
            return 2.0 * turn.correct

    class NotFinite(Correct):
        def score(self, turn: Turn) -> float:
            return math.nan if turn.outcome is Outcome.TIMEOUT else float(turn.correct)

    class Counts(Correct):
        def score(self, turn: Turn) -> float:
            self.scored += 1
            return 1.0 if turn.correct else -self.scored / 1e6

    class Changes(Correct):
        def score(self, turn: Turn) -> float:
            turn.seconds.update(score=1.0)  # type: ignore[attr-defined]
            return float(turn.correct)

    @attrs.frozen
    class Misspelt(Bounds):
        def need_timing(self) -> bool:
            return True

    @attrs.frozen
    class NoSetting(Bounds):
        def needs_settings(self) -> dict[str, Any]:
            return {"profile_kernel": True}

    class Marked(Correct):
        def score(self, turn: Turn) -> float:
            marked = turn.candidate is not None and turn.candidate.source == "# marked"
            return 2.0 if marked and turn.correct else float(turn.correct)

    wide = {"options": {"low": -1.0}}
    assert failing("rewards", Correct, Bounds, sources=("# marked",)) == set()
    assert failing("rewards", Marked, Bounds) == set()
    assert failing("rewards", Marked, Bounds, sources=("# marked",)) == {"scores_are_finite_and_within_bounds"}
    assert failing("rewards", Correct, Bounds) == set()
    assert failing("rewards", TooHigh, Bounds) == {"scores_are_finite_and_within_bounds"}
    assert "scores_are_finite_and_within_bounds" in failing("rewards", NotFinite, Bounds)
    assert failing("rewards", Counts, Bounds, **wide) == {"scores_are_repeatable"}
    assert failing("rewards", Changes, Bounds) == {"turns_are_not_changed"}
    assert failing("rewards", Correct, Bounds, options={"high": 2.0, "gap": 1.5}) == {
        "correct_kernels_rise_by_the_declared_gap"
    }
    assert "declares_what_its_kind_requires" in failing("rewards", Correct, Bounds, options={"high": -1.0})
    assert failing("rewards", Correct, Misspelt) == {"is_found_and_loads"}
    assert failing("rewards", Correct, NoSetting) == {"declares_what_its_kind_requires"}
    assert "options_round_trip_and_unknown_ones_are_refused" in failing(
        "rewards", Correct, Bounds, options={"high": "1"}
    )


def test_broken_feedback_fails(failing: Failing) -> None:
    class Silent(Feedback):
        def format(self, turn: Turn) -> Any:
            return turn.message if turn.evaluation is None else None

    class Random(Feedback):
        def format(self, turn: Turn) -> str:
            return str(random.random())

    class Changes(Feedback):
        def format(self, turn: Turn) -> str:
            turn.seconds.update(feedback=1.0)  # type: ignore[attr-defined]
            return ""

    assert failing("feedback", Silent) == {"text_for_every_outcome"}
    assert failing("feedback", Random) == {"text_is_repeatable"}
    assert failing("feedback", Changes) == {"turns_are_not_changed"}


def test_broken_checkers_fail(failing: Failing) -> None:
    class Sleep(Checker):
        rules: Any = (Rule("sleep", Severity.SUSPECT, "Do not sleep."),)
        rule = "sleep"

        def check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> Any:
            return [Finding(self.rule, Severity.SUSPECT, "sleeps")] if "sleep(" in candidate.source else []

    class Undeclared(Sleep):
        rule = "rest"

    class NoRule(Sleep):
        rules = ("sleep",)

    class Twice(Sleep):
        rules = Sleep.rules * 2

    class Random(Sleep):
        def check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> Any:
            return [Finding("sleep", Severity.SUSPECT, str(random.random()))]

    class Changes(Sleep):
        def check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> Any:
            if evaluation is not None:
                evaluation.profile.update(checked=True)  # type: ignore[attr-defined]
            return []

    sources = ("import time\ntime.sleep(1)\n",)
    assert failing("checkers", Sleep, sources=sources) == set()
    assert failing("checkers", Undeclared, sources=sources) == {"findings_name_declared_rules"}
    assert "declares_what_its_kind_requires" in failing("checkers", NoRule)
    assert failing("checkers", Twice) == {"declares_what_its_kind_requires"}
    assert failing("checkers", Random) == {"findings_are_repeatable"}
    assert failing("checkers", Changes) == {"arguments_are_not_changed"}


def test_broken_task_sources_fail(failing: Failing) -> None:
    good = [Task("a", REFERENCE), Task("b", REFERENCE, "held_out")]

    class Good(FakeTasks):
        def __init__(self) -> None:
            super().__init__(good)

    class Same(FakeTasks):
        def __init__(self) -> None:
            super().__init__([good[0], attrs.evolve(good[1], id="a")])

    class NotTasks(FakeTasks):
        """References of `numbered_tasks` do not parse."""

        def __init__(self) -> None:
            super().__init__()

    class Elsewhere(Good):
        def tasks(self, split: str) -> Any:
            return [attrs.evolve(task, split="test") for task in super().tasks(split)]

    class Shuffled(Good):
        def tasks(self, split: str) -> Any:
            return [attrs.evolve(task, name=str(random.random())) for task in super().tasks(split)]

    class AnySplit(Good):
        def tasks(self, split: str) -> Any:
            return super().tasks(split) if split in self.splits() else []

    class Opaque(Good):
        def manifest(self) -> Any:
            return {"path": Path("tasks")}

    class Shown(Good):
        def demonstrations(self, task: Task) -> Any:
            return [Demonstration("class ModelNew: ...", "triton", Outcome.CORRECT)]

    class NoSplits(Good):
        def splits(self) -> Any:
            return ("train", "train")

    assert failing("tasks", Good) == set()
    assert failing("tasks", Same) == {"tasks_parse_and_have_ids_of_their_own"}
    assert failing("tasks", NotTasks) == {"tasks_parse_and_have_ids_of_their_own"}
    assert failing("tasks", Elsewhere) == {"tasks_belong_to_the_split_that_lists_them"}
    assert failing("tasks", Shuffled) == {"order_is_stable"}
    assert failing("tasks", AnySplit) == {"an_unknown_split_is_a_usage_error"}
    assert failing("tasks", Opaque) == {"manifest_is_plain_data"}
    assert failing("tasks", Shown) == {"held_out_tasks_have_no_demonstrations"}
    assert "declares_what_its_kind_requires" in failing("tasks", NoSplits)


def test_broken_retrievers_fail(failing: Failing) -> None:
    class Found(Retriever):
        def search(self, task: Task, backend: str) -> Any:
            yield Example("reference", SOURCE, "one")

    class Texts(Found):
        def search(self, task: Task, backend: str) -> Any:
            yield SOURCE

    class Random(Found):
        def search(self, task: Task, backend: str) -> Any:
            yield Example("reference", SOURCE, str(random.random()))

    class Forgets(Found):
        seen = 0

        def observe(self, rows: Any) -> None:
            self.seen += 1

        def search(self, task: Task, backend: str) -> Any:
            yield Example("reference", SOURCE, str(self.seen))

    assert failing("retrievers", Found) == set()
    assert failing("retrievers", Texts) == {"finds_examples"}
    assert failing("retrievers", Random) == {"search_is_repeatable", "state_is_plain_and_restores"}
    assert failing("retrievers", Forgets) == {"state_is_plain_and_restores"}


def test_broken_advantages_fail(failing: Failing) -> None:
    def flat() -> Any:
        return lambda returns: [[value for episode in returns for value in episode]]

    def raw() -> Any:
        return lambda returns: [list(episode) for episode in returns]

    def in_place() -> Any:
        def estimate(returns: Any) -> Any:
            for episode in returns:
                episode[:] = [0.0] * len(episode)
            return returns

        return estimate

    assert "shape_is_that_of_the_returns" in failing("advantages", flat)
    assert failing("advantages", raw) == {"equal_returns_give_zero"}
    assert failing("advantages", in_place) == {"is_pure"}


def test_broken_loggers_fail(failing: Failing) -> None:
    class Fails(Logger):
        def evaluation(self, results: Any) -> None:
            raise RuntimeError("planted")

    class Changes(Logger):
        def step(self, metrics: Any) -> None:
            metrics.pop("step")

    assert failing("loggers", Logger) == set()
    assert failing("loggers", Fails) == failing("loggers", Changes) == {"takes_every_event"}


def test_broken_backends_fail(failing: Failing) -> None:
    class Good(Backend):
        facts = BackendFacts("Fake", (), "Write a kernel.", Example(REFERENCE, "# kernel\n" + SOURCE))
        runner = "kernelrl_broken_component:runner"

        def source_facts(self, source: str) -> SourceFacts:
            return SourceFacts((KernelFact("k", 1, True, True),) if "# kernel" in source else ())

    class Blind(Good):
        def source_facts(self, source: str) -> SourceFacts:
            return SourceFacts()

    class Fails(Good):
        def source_facts(self, source: str) -> SourceFacts:
            return SourceFacts(super().source_facts(source).kernels, unread=source.splitlines()[0])

    class NoFacts(Good):
        facts = attrs.evolve(Good.facts, instructions="")

    assert failing("backends", Good) == {"runner_loads_and_states_its_mode"}
    runner = "runner_loads_and_states_its_mode"
    assert failing("backends", Blind) == {runner, "kernels_of_its_own_examples_are_read"}
    assert failing("backends", Fails) == {runner, "source_facts_are_repeatable_for_any_source"}
    assert failing("backends", NoFacts) == {runner, "declares_what_its_kind_requires"}


def test_broken_policies_fail(failing: Failing) -> None:
    @attrs.frozen
    class Config(PolicyConfig):
        def capabilities(self) -> PolicyCapabilities:
            return FakePolicy.capabilities

    class Good(FakePolicy):
        def __init__(self, options: Config) -> None:
            super().__init__(weight=0.5)

    class Boasts(Good):
        capabilities = attrs.evolve(FakePolicy.capabilities, exports=True)

    class Endless(Good):
        def reply(self, prompt: Any, settings: Any) -> Any:
            return make_reply("long", settings.max_tokens + 1)

    class Random(Good):
        def reply(self, prompt: Any, settings: Any) -> Any:
            return make_reply(str(random.random()), 1)

    class Forgets(Good):
        async def load(self, state: Any, directory: Path) -> None:
            self.weight = -1.0

        async def update(self, update: Any) -> Any:
            self.weight = 2.0
            return {}

    class Ignores(Good):
        async def begin_from(self, state: Any, directory: Path) -> None:
            pass

        async def update(self, update: Any) -> Any:
            self.weight = 2.0
            return {}

        def reply(self, prompt: Any, settings: Any) -> Any:
            return self.reply_with("right" if self.weight > 1 else "wrong")

    # The fake has public methods that no policy has.
    helpers = {"test_is_found_and_loads": lambda self: None}
    assert failing("policies", Good, Config, **helpers) == set()
    assert failing("policies", Boasts, Config, **helpers) == {"capabilities_are_within_those_of_the_options"}
    assert failing("policies", Endless, Config, **helpers) == {"replies_keep_the_limits"}
    assert failing("policies", Random, Config, **helpers) == {
        "a_deterministic_policy_repeats_a_reply",
        "a_trainable_policy_updates_saves_and_loads",
        "a_policy_that_begins_from_saved_weights_samples_the_same",
    }
    assert failing("policies", Ignores, Config, **helpers) == {
        "a_policy_that_begins_from_saved_weights_samples_the_same"
    }
    assert failing("policies", Forgets, Config, **helpers) == {
        "a_trainable_policy_updates_saves_and_loads",
        "a_policy_that_begins_from_saved_weights_samples_the_same",
    }


def test_broken_evaluators_fail(failing: Failing) -> None:
    outcomes = {"(:": Outcome.COMPILE_ERROR, "raise": Outcome.RUNTIME_ERROR, "zeros": Outcome.INCORRECT}

    def found(request: EvaluationRequest) -> Evaluation:
        outcome = next((outcome for part, outcome in outcomes.items() if part in request.source), Outcome.CORRECT)
        return make_evaluation(outcome, message="" if outcome is Outcome.CORRECT else "bad")

    class Good(FakeEvaluator):
        def __init__(self) -> None:
            super().__init__(found)

    class Believes(FakeEvaluator):
        def __init__(self) -> None:
            super().__init__(lambda request: make_evaluation())

    class Refuses(FakeEvaluator):
        def __init__(self) -> None:
            super().__init__(lambda request: make_evaluation(Outcome.INCORRECT, message="bad"))

    class Full(Good):
        def __init__(self) -> None:
            super().__init__()
            self.capacity = 0

    class Changes(Good):
        async def evaluate(self, request: EvaluationRequest) -> Evaluation:
            return attrs.evolve(await super().evaluate(request), tests_passed=6 - len(self.requests))

    class Opaque(Good):
        async def evaluate(self, request: EvaluationRequest) -> Evaluation:
            return attrs.evolve(await super().evaluate(request), provenance={"when": {1, 2}})

    assert failing("evaluators", Good, backend="triton") == set()
    assert failing("evaluators", Believes, backend="triton") == {
        "bad_candidates_have_outcomes",
        "bad_candidates_have_messages",
    }
    assert "the_correct_kernel_of_the_backend_is_correct" in failing("evaluators", Refuses, backend="triton")
    assert failing("evaluators", Full, backend="triton") == {"declares_what_its_kind_requires"}
    assert failing("evaluators", Changes, backend="triton") == {"a_second_evaluation_has_the_same_outcome"}
    assert failing("evaluators", Opaque, backend="triton") == {"evaluations_are_plain_data"}
