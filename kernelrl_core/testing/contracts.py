"""Contract tests: the requirements of the core on a component, one class per kind.

Derive a class whose name begins with `Test` from the contract of the kind, and name the component. Pytest collects the
inherited tests:

    from kernelrl_core.testing.contracts import CheckerContract, RewardContract

    class TestBrevity(RewardContract):
        component = "brevity"
        sources = ("# " + "long " * 5000,)

    class TestNoSleep(CheckerContract):
        component = "no_sleep"
        sources = ("import time\\ntime.sleep(1)\\n",)

The plugin must be installed, for instance with `pip install -e .`. A test that needs a prerequisite which this machine
lacks is skipped. Checks of one kind only see what the arguments exercise: give the turns, sources or kernels that
matter to the component.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import importlib
import inspect
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar
from unittest import SkipTest

import attrs

from kernelrl_core.errors import MissingPrerequisite, UsageError
from kernelrl_core.interfaces.backends import BackendRunner
from kernelrl_core.interfaces.policies import PolicyContext, TrainablePolicy
from kernelrl_core.plugins.registry import Registry, registry
from kernelrl_core.plugins.use import Use
from kernelrl_core.recipe.declarations import declaration_faults
from kernelrl_core.recipe.plugin_faults import import_faults, option_faults, read_options
from kernelrl_core.sources.task_source import parse_task_source
from kernelrl_core.testing.values import (
    SOURCE,
    make_candidate,
    make_request,
    make_task,
    make_turn,
    turns_of_every_outcome,
)
from kernelrl_core.types import Evaluation, Example, Finding, Message, Outcome, Prompt, Severity, Task, Turn
from kernelrl_core.types.replies import Candidate, SourceFacts
from kernelrl_core.types.serialization import dumps, loads
from kernelrl_core.types.training import Loss, LossSample, OptimizerSettings, SamplingSettings, Update

__all__ = [
    "CONTRACTS",
    "AdvantageContract",
    "BackendContract",
    "CheckerContract",
    "ComponentContract",
    "EvaluatorContract",
    "FeedbackContract",
    "LoggerContract",
    "PolicyContract",
    "RetrieverContract",
    "RewardContract",
    "TaskSourceContract",
    "failures",
]

_ROUNDING = 1e-9


class ComponentContract:
    """Tests for a component of any kind. Derive from the contract of the kind instead."""

    kind: ClassVar[str]
    component: ClassVar[str]
    """Name as a recipe writes it after `use:`."""
    options: Mapping[str, Any] = {}
    """Options as a recipe writes them. Required ones must be given; a fixture may set them on `self`."""

    def registry(self) -> Registry:
        """Where the component is looked up: the plugins of this environment."""
        return registry()

    def use(self) -> Use:
        """The component with its options, as a recipe selects it."""
        return read_options(self.registry(), self.kind, self.component, self.options)

    def make(self) -> Any:
        """A new instance, made with `options`."""
        with _skipped_where_missing():
            return self.registry().make(self.kind, self.use())  # type: ignore[call-overload]

    def test_is_found_and_loads(self) -> None:
        found = self.registry().find(self.kind, self.component)
        with _skipped_where_missing():
            unknown = self.registry().unknown_methods(self.kind, self.component)
        assert found.name == self.component.rpartition(":")[2]
        assert unknown == ()

    def test_options_import_nothing_heavy(self) -> None:
        _require_none(import_faults(self.registry().find(self.kind, self.component)))

    def test_options_round_trip_and_unknown_ones_are_refused(self) -> None:
        _require_none(option_faults(self.registry(), self.kind, self.component, self.options))

    def test_declares_what_its_kind_requires(self) -> None:
        _require_none(declaration_faults(self.kind, self.make(), self.use().options))


class RewardContract(ComponentContract):
    """A reward component is a pure function from turns to finite numbers within its bounds."""

    kind = "rewards"
    sources: ClassVar[Sequence[str]] = ()
    """Further candidates, such as very long ones. Each is scored as rejected, incorrect and correct."""

    def turns(self) -> Sequence[Turn]:
        """The turns that are scored. Add those on which the component's formula depends."""
        outcomes = (Outcome.REJECTED, Outcome.INCORRECT, Outcome.CORRECT)
        given = (make_turn(outcome, source=source) for source in self.sources for outcome in outcomes)
        return (*turns_of_every_outcome(), *given)

    def test_scores_are_finite_and_within_bounds(self) -> None:
        reward, bounds = self.make(), self.use().options.bounds()
        for turn in self.turns():
            score = reward.score(turn)
            assert isinstance(score, int | float), f"{turn.outcome}: the score is {score!r}, not a number"
            assert math.isfinite(score), f"{turn.outcome}: the score is {score}"
            rounding = _ROUNDING * max(abs(bounds.low), abs(bounds.high))
            assert bounds.low - rounding <= score <= bounds.high + rounding, (
                f"{turn.outcome}: {score} is not in {bounds}"
            )

    def test_scores_are_repeatable(self) -> None:
        turns, reward = self.turns(), self.make()
        first = [reward.score(turn) for turn in turns]
        assert [reward.score(turn) for turn in reversed(turns)][::-1] == first
        assert list(map(self.make().score, turns)) == first

    def test_turns_are_not_changed(self) -> None:
        _require_unchanged(self.turns(), self.make().score)

    def test_correct_kernels_rise_by_the_declared_gap(self) -> None:
        reward, gap = self.make(), self.use().options.bounds().gap
        wrong = {turn.outcome: reward.score(turn) for turn in self.turns() if not turn.correct}
        right = min(reward.score(turn) for turn in self.turns() if turn.correct)
        for outcome, score in wrong.items():
            assert right - score >= gap - _ROUNDING, (
                f"correct {right}, {outcome} {score}: less than the gap {gap} apart"
            )


class FeedbackContract(ComponentContract):
    """A feedback formatter is a pure function from turns to text."""

    kind = "feedback"

    def turns(self) -> Sequence[Turn]:
        """The turns that are described."""
        return turns_of_every_outcome()

    def test_text_for_every_outcome(self) -> None:
        formatter = self.make()
        for turn in self.turns():
            text = formatter.format(turn)
            assert isinstance(text, str), f"{turn.outcome}: {text!r} is not text"

    def test_text_is_repeatable(self) -> None:
        turns, formatter = self.turns(), self.make()
        first = [formatter.format(turn) for turn in turns]
        assert [formatter.format(turn) for turn in reversed(turns)][::-1] == first
        assert list(map(self.make().format, turns)) == first

    def test_turns_are_not_changed(self) -> None:
        _require_unchanged(self.turns(), self.make().format)


class CheckerContract(ComponentContract):
    """A checker reports findings of the rules that it declares, the same ones for the same candidate."""

    kind = "checkers"
    sources: ClassVar[Sequence[str]] = ()
    """Candidates beside the kit's, such as those that break the rules."""
    backend: ClassVar[str] = "triton"
    """Backend of the candidates."""

    def candidates(self) -> Sequence[Candidate]:
        """The candidates that are checked; they parse as Python."""
        sources = (SOURCE, "", "class ModelNew: ...\n", "# " + "long " * 5000 + "\n" + SOURCE, *self.sources)
        return [make_candidate(source, self.backend) for source in sources]

    def evaluations(self) -> Sequence[Evaluation | None]:
        """The evaluations of each candidate; None: before it runs."""
        return (None, *(turn.evaluation for turn in turns_of_every_outcome() if turn.evaluation is not None))

    def findings(self, checker: Any) -> list[list[Finding]]:
        """The findings on each pair of candidate and evaluation."""
        pairs = [(candidate, evaluation) for candidate in self.candidates() for evaluation in self.evaluations()]
        return [list(checker.check(candidate, make_task(), evaluation)) for candidate, evaluation in pairs]

    def test_findings_name_declared_rules(self) -> None:
        checker = self.make()
        rules = {rule.id for rule in checker.rules}
        for finding in (finding for findings in self.findings(checker) for finding in findings):
            assert isinstance(finding, Finding), f"{finding!r} is not a Finding"
            assert finding.rule in rules, f"rule {finding.rule!r} is not among the declared {sorted(rules)}"
            assert isinstance(finding.severity, Severity), f"{finding.severity!r} is not a Severity"

    def test_findings_are_repeatable(self) -> None:
        checker = self.make()
        first = self.findings(checker)
        assert self.findings(checker) == first
        assert self.findings(self.make()) == first

    def test_arguments_are_not_changed(self) -> None:
        checker, task = self.make(), make_task()
        for candidate in self.candidates():
            evaluations = [evaluation for evaluation in self.evaluations() if evaluation is not None]
            _require_unchanged(evaluations, lambda evaluation: list(checker.check(candidate, task, evaluation)))  # noqa: B023


class TaskSourceContract(ComponentContract):
    """A task source lists tasks that parse, in the same order each time."""

    kind = "tasks"
    training_splits: ClassVar[Sequence[str]] = ()
    """Splits beside the first whose tasks may have demonstrations."""

    def tasks(self, source: Any) -> list[Task]:
        """The tasks of all splits."""
        with _skipped_where_missing():
            return [task for split in source.splits() for task in source.tasks(split)]

    def test_declares_what_its_kind_requires(self) -> None:
        with _skipped_where_missing():
            super().test_declares_what_its_kind_requires()

    def test_tasks_parse_and_have_ids_of_their_own(self) -> None:
        tasks = self.tasks(self.make())
        assert tasks, "there is no task"
        ids = [task.id for task in tasks]
        assert len(set(ids)) == len(ids), f"ids that occur twice: {sorted({one for one in ids if ids.count(one) > 1})}"
        for task in tasks:
            parse_task_source(task.reference, task.id)

    def test_tasks_belong_to_the_split_that_lists_them(self) -> None:
        source = self.make()
        self.tasks(source)
        for split in source.splits():
            others = {task.split for task in source.tasks(split)} - {split}
            assert not others, f"split {split!r} lists tasks of {sorted(others)}"

    def test_order_is_stable(self) -> None:
        source = self.make()
        first = self.tasks(source)
        assert self.tasks(source) == first
        assert self.tasks(self.make()) == first

    def test_an_unknown_split_is_a_usage_error(self) -> None:
        source = self.make()
        self.tasks(source)
        try:
            listed = source.tasks("no_such_split")
        except UsageError:
            return
        except Exception as error:
            raise AssertionError(f"tasks('no_such_split') must raise UsageError, raised {error!r}") from error
        raise AssertionError(f"tasks('no_such_split') must raise UsageError, returned {listed!r}")

    def test_manifest_is_plain_data(self) -> None:
        source = self.make()
        self.tasks(source)
        assert json.loads(json.dumps(source.manifest(), allow_nan=False)) is not None

    def test_held_out_tasks_have_no_demonstrations(self) -> None:
        source = self.make()
        tasks = self.tasks(source)
        training = {source.splits()[0], *self.training_splits}
        for task in tasks:
            if task.split not in training:
                assert not source.demonstrations(task), f"{task.id} of split {task.split!r} has demonstrations"


class RetrieverContract(ComponentContract):
    """A retriever finds the same examples for a task until it observes a step."""

    kind = "retrievers"
    backend: ClassVar[str] = "triton"
    at_most: ClassVar[int] = 20
    """Examples that are taken of each search."""

    def tasks(self) -> Sequence[Task]:
        """The tasks that are searched for."""
        return (make_task(), make_task("other", "class Model: ...\n"))

    def found(self, retriever: Any) -> list[list[Example]]:
        """The best examples for each task."""
        searches = (iter(retriever.search(task, self.backend)) for task in self.tasks())
        return [[example for _, example in zip(range(self.at_most), search, strict=False)] for search in searches]

    def test_finds_examples(self) -> None:
        for example in (example for examples in self.found(self.make()) for example in examples):
            assert isinstance(example, Example), f"{example!r} is not an Example"
            assert "ModelNew" in example.kernel or example.kernel.strip(), "an example has no kernel"

    def test_ids_are_unique(self) -> None:
        for examples in self.found(self.make()):
            ids = [example.id for example in examples if isinstance(example, Example) and example.id]
            assert len(set(ids)) == len(ids), "two examples of a search have the same id"

    def test_identity_is_plain_and_repeatable(self) -> None:
        identity = self.make().identity()
        assert json.loads(json.dumps(identity, allow_nan=False)) == identity == self.make().identity()

    def test_search_is_repeatable(self) -> None:
        retriever = self.make()
        assert self.found(retriever) == self.found(retriever) == self.found(self.make())

    def test_state_is_plain_and_restores(self) -> None:
        retriever, other = self.make(), self.make()
        retriever.observe(())
        other.restore(json.loads(json.dumps(retriever.state(), allow_nan=False)))
        assert self.found(other) == self.found(retriever)


class AdvantageContract(ComponentContract):
    """An advantage is a pure function that returns finite numbers in the shape of its returns."""

    kind = "advantages"

    def groups(self) -> Sequence[list[list[float]]]:
        """The returns of the groups that are tried: `[episode][turn]`, ragged."""
        return (
            [[1.0], [0.0], [0.5], [0.0]],
            [[1.0, 2.0], [0.0], [1.0, 0.0, 3.0]],
            [[-1e6], [1e6]],
            [[1e-12], [0.0]],
            [[0.3]],
        )

    def test_shape_is_that_of_the_returns(self) -> None:
        estimate = self.make()
        for group in self.groups():
            made = estimate(group)
            assert [len(episode) for episode in made] == [len(episode) for episode in group], f"{group} gives {made}"
            assert all(math.isfinite(value) for episode in made for value in episode), f"{group} gives {made}"

    def test_equal_returns_give_zero(self) -> None:
        estimate = self.make()
        for group in ([[0.3], [0.3], [0.3]], [[1.0, 1.0], [1.0, 1.0]], [[0.0]] * 7):
            made = estimate(group)
            assert all(value == 0.0 for episode in made for value in episode), f"{group} gives {made}"

    def test_is_pure(self) -> None:
        estimate = self.make()
        groups = self.groups()
        before = copy.deepcopy(groups)
        first = [estimate(group) for group in groups]
        assert groups == before, "the returns were changed"
        assert [estimate(group) for group in reversed(groups)][::-1] == first


class LoggerContract(ComponentContract):
    """A logger takes every event of a run and of its continuation, and changes no row."""

    kind = "loggers"

    def rows(self) -> Mapping[str, Any]:
        """A row for each event: `turn`, `credits`, `step`, `evaluation`."""
        turn = {"sample": "0.0.0.0", "task": "task", "outcome": "correct", "score": {"total": 1.0}, "seconds": {}}
        return {
            "turn": turn,
            "credits": [{"sample": "0.0.0.0", "return": 1.0, "advantage": 0.5, "excluded": ""}],
            "step": {"step": 0, "reward/mean": 0.5, "train/kl": None, "kernel/correct": 1},
            "evaluation": {"step": 0, "eval/pass@1": 0.5},
        }

    def test_takes_every_event(self, tmp_path: Path) -> None:
        rows = self.rows()
        before = copy.deepcopy(rows)
        for first_step, state in ((0, "stopped"), (1, "failed"), (2, "finished")):
            logger = self.make()
            held = logger.start(tmp_path, {"train": {"steps": 3}}, first_step)
            assert held in (None, -1 if first_step == 0 else 0), f"start returns {held}, the last step held is not that"
            for event, row in rows.items():
                getattr(logger, event)(row)
            logger.finish(state)
        assert rows == before, "a row was changed"


class BackendContract(ComponentContract):
    """A backend reads sources without running them and names a runner."""

    kind = "backends"

    def test_kernels_of_its_own_examples_are_read(self) -> None:
        backend = self.make()
        for example in (backend.facts.example, *backend.facts.few_shot):
            facts = backend.source_facts(example.kernel)
            assert isinstance(facts, SourceFacts)
            reached = [kernel.name for kernel in facts.kernels if kernel.launched and kernel.reached]
            assert reached, f"no kernel of example {example.name!r} is launched and reached: {facts}"

    def test_source_facts_are_repeatable_for_any_source(self) -> None:
        backend = self.make()
        for source in ("", SOURCE, "x = 1\n", "class ModelNew: ...\n", "def f(:\n".replace("(:", "():\n    pass")):
            facts = backend.source_facts(source)
            assert isinstance(facts, SourceFacts)
            assert facts.kernels == (), f"{source!r} has no kernel, found {facts.kernels}"
            assert backend.source_facts(source) == facts

    def test_runner_loads_and_states_its_mode(self) -> None:
        module, _, attribute = self.make().runner.partition(":")
        try:
            runner = getattr(importlib.import_module(module), attribute)()
        except ModuleNotFoundError as error:
            raise SkipTest(str(error)) from error
        assert isinstance(runner, BackendRunner)
        options = self.use().raw
        for has_gpu in (False, True):
            assert runner.mode(options, has_gpu) in ("interpreter", "cpu", "gpu", "compile")


class EvaluatorContract(ComponentContract):
    """An evaluator returns an evaluation for any candidate, good or bad.

    Evaluates four candidates for the one-shot example of a backend: its kernel, one that does not parse, one that
    raises and one that returns zeros. Each is built and run once for all tests, so `options` must be set on the class.
    """

    kind = "evaluators"
    backend: ClassVar[str]
    """A backend whose kernels this evaluator can run on this machine."""
    backend_options: ClassVar[Mapping[str, Any]] = {}

    _BAD: ClassVar[Mapping[str, str]] = {
        "does not parse": "class ModelNew(:\n",
        "raises": SOURCE.replace("return torch.relu(x)", "raise RuntimeError('planted')").replace(
            "(self, x)", "(self, *x)"
        ),
        "wrong": SOURCE.replace("torch.relu(x)", "torch.zeros(())").replace("(self, x)", "(self, *x)"),
    }

    @classmethod
    @functools.cache
    def evaluations(cls) -> Mapping[str, Evaluation]:
        """By candidate: `right` and the names of the bad ones; `again` is a second evaluation of `right`."""
        self = cls()
        use = read_options(self.registry(), "backends", self.backend, self.backend_options)
        with _skipped_where_missing():
            example = self.registry().make("backends", use).facts.example
        sources = {"right": example.kernel, **self._BAD, "again": example.kernel}

        async def evaluate() -> dict[str, Evaluation]:
            evaluator = self.make()
            await evaluator.start()
            try:
                requests = {
                    name: make_request(source, example.reference, self.backend, backend_options=use.raw)
                    for name, source in sources.items()
                }
                return {name: await evaluator.evaluate(request) for name, request in requests.items()}
            finally:
                await evaluator.aclose()
                await evaluator.aclose()

        with _skipped_where_missing():
            return asyncio.run(evaluate())

    def test_the_correct_kernel_of_the_backend_is_correct(self) -> None:
        found = self.evaluations()["right"]
        assert (found.outcome, found.message) == (Outcome.CORRECT, "")
        assert 0 < found.tests_passed == found.tests_total

    def test_bad_candidates_have_outcomes(self) -> None:
        found = {name: self.evaluations()[name].outcome for name in self._BAD}
        assert found["does not parse"] is Outcome.COMPILE_ERROR
        assert found["raises"] is Outcome.RUNTIME_ERROR
        assert found["wrong"] in (Outcome.INCORRECT, Outcome.HACKED)

    def test_bad_candidates_have_messages(self) -> None:
        assert [name for name in self._BAD if not self.evaluations()[name].message] == []

    def test_a_second_evaluation_has_the_same_outcome(self) -> None:
        first, again = self.evaluations()["right"], self.evaluations()["again"]
        assert (again.outcome, again.tests_passed) == (first.outcome, first.tests_passed)

    def test_evaluations_are_plain_data(self) -> None:
        for evaluation in self.evaluations().values():
            assert loads(Evaluation, dumps(evaluation)) == evaluation


class PolicyContract(ComponentContract):
    """A policy samples replies within its limits; a trainable one updates, saves, loads and begins from weights."""

    kind = "policies"

    def context(self, folder: Path) -> PolicyContext:
        """What `start` gets: no demonstrations, and the first loss that the policy knows."""

        async def demonstrations() -> tuple[()]:
            return ()

        loss = next(iter(sorted(self.use().options.capabilities().losses)), "")
        return PolicyContext(0, folder, None, demonstrations, "none", lambda line: None, loss)

    def messages(self) -> tuple[Message, ...]:
        """The prompt that is sampled from."""
        return (Message("user", "Write a kernel for this reference:\n" + make_task().reference),)

    def settings(self, seed: int) -> SamplingSettings:
        """Settings of a short reply."""
        return SamplingSettings(max_tokens=32, temperature=1.0, top_p=1.0, top_k=-1, stop=(), seed=seed)

    def run(self, folder: Path, scene: Any, *, weights_follow: bool = False) -> None:
        """Start the policy, await `scene(policy)`, close the policy twice."""
        context = attrs.evolve(self.context(folder), weights_follow=weights_follow)

        async def whole() -> None:
            policy = self.make()
            try:
                with _skipped_where_missing():
                    await policy.start(context)
                await scene(policy)
            finally:
                await policy.aclose()
                await policy.aclose()

        asyncio.run(whole())

    def test_capabilities_are_within_those_of_the_options(self, tmp_path: Path) -> None:
        bound = self.use().options.capabilities()

        async def scene(policy: Any) -> None:
            for field in attrs.fields(type(bound)):
                has, may = getattr(policy.capabilities, field.name), getattr(bound, field.name)
                assert has <= may, f"{field.name}: the policy has {has}, its options allow {may}"
            assert not policy.capabilities.losses or isinstance(policy, TrainablePolicy)

        self.run(tmp_path, scene)

    def test_replies_keep_the_limits(self, tmp_path: Path) -> None:
        async def scene(policy: Any) -> None:
            prompt = policy.render(self.messages())
            assert isinstance(prompt, Prompt)
            assert prompt.messages == self.messages()
            assert 0 < len(prompt.tokens) < policy.context_tokens
            replies = await asyncio.gather(*(policy.sample(prompt, self.settings(seed)) for seed in range(4)))
            for reply in replies:
                assert len(reply.tokens) <= 32, f"{len(reply.tokens)} tokens, the limit is 32"
                assert len(reply.logprobs) in (0, len(reply.tokens)), "tokens and log-probabilities differ in number"
                assert all(value <= _ROUNDING for value in reply.logprobs), "a log-probability is above 0"
                assert reply.stop_reason in ("stop", "length")

        self.run(tmp_path, scene)

    def test_a_deterministic_policy_repeats_a_reply(self, tmp_path: Path) -> None:
        async def scene(policy: Any) -> None:
            if not policy.capabilities.deterministic:
                raise SkipTest("the policy is not deterministic")
            prompt = policy.render(self.messages())
            alone = await policy.sample(prompt, self.settings(1))
            among = await asyncio.gather(*(policy.sample(prompt, self.settings(seed)) for seed in range(4)))
            assert among[1] == alone, "a reply depends on the replies that are sampled with it"

        self.run(tmp_path, scene)

    def test_a_trainable_policy_updates_saves_and_loads(self, tmp_path: Path) -> None:
        cache, saved = tmp_path / "cache", tmp_path / "checkpoint"
        cache.mkdir()
        saved.mkdir()

        async def train(policy: Any) -> None:
            if not isinstance(policy, TrainablePolicy) or not policy.capabilities.losses:
                raise SkipTest("the policy is not trainable")
            prompt = policy.render(self.messages())
            metrics = await policy.update(await self._update(policy, prompt))
            assert all(math.isfinite(value) for value in metrics.values()), f"a metric is not finite: {metrics}"
            state = json.loads(json.dumps(await policy.save(saved)))
            after = await policy.sample(prompt, self.settings(3))

            async def load(other: Any) -> None:
                await other.load(state, saved)
                if other.capabilities.deterministic:
                    assert await other.sample(prompt, self.settings(3)) == after, "a loaded policy replies differently"

            self._then = load

        self.run(cache, train)
        self.run(cache, self._then)

    def test_a_policy_that_begins_from_saved_weights_samples_the_same(self, tmp_path: Path) -> None:
        cache, saved = tmp_path / "cache", tmp_path / "checkpoint"
        cache.mkdir()
        saved.mkdir()

        async def save(policy: Any) -> None:
            if getattr(type(policy), "begin_from", None) in (None, TrainablePolicy.begin_from):
                raise SkipTest("the policy does not implement `begin_from`")
            prompt = policy.render(self.messages())
            await policy.update(await self._update(policy, prompt))
            state = json.loads(json.dumps(await policy.save(saved)))
            reply = await policy.sample(prompt, self.settings(3))

            async def begin(other: Any) -> None:
                await other.begin_from(state, saved)
                if other.capabilities.deterministic:
                    again = await other.sample(other.render(self.messages()), self.settings(3))
                    assert again == reply, "the policy replies differently with the saved weights"

            self._then = begin

        self.run(cache, save)
        self.run(cache, self._then, weights_follow=True)

    async def _update(self, policy: Any, prompt: Prompt) -> Update:
        """An update with two replies, of which the first is better."""
        replies = [await policy.sample(prompt, self.settings(seed)) for seed in (1, 2)]
        samples = tuple(
            LossSample(f"0.0.{number}.0", prompt.tokens, reply.tokens, reply.logprobs, (sign / 10,) * len(reply.tokens))
            for number, (sign, reply) in enumerate(zip((1, -1), replies, strict=True))
        )
        loss = Loss(sorted(policy.capabilities.losses)[0], 0.2, 0.2)
        return Update(0, (samples,), (), loss, OptimizerSettings(1e-3, 0.9, 0.95, 1e-8, 0.0, 1.0))

    _then: Any


CONTRACTS: Mapping[str, type[ComponentContract]] = {
    contract.kind: contract
    for contract in (
        AdvantageContract,
        BackendContract,
        CheckerContract,
        EvaluatorContract,
        FeedbackContract,
        LoggerContract,
        PolicyContract,
        RetrieverContract,
        RewardContract,
        TaskSourceContract,
    )
}
"""Kind -> its contract."""


def failures(contract: ComponentContract, folder: Path) -> dict[str, str]:
    """Run all tests of a contract without pytest; skipped ones count as passed.

    Args:
        folder: an empty directory for the tests that write.

    Returns:
        Name of each test that fails -> its message.
    """
    found = {}
    for number, name in enumerate(name for name in dir(contract) if name.startswith("test_")):
        test, directory = getattr(contract, name), folder / str(number)
        directory.mkdir()
        try:
            test(directory) if "tmp_path" in inspect.signature(test).parameters else test()
        except SkipTest:
            continue
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


# --- helpers --------------------------------------------------------------------------------------------------------


@contextmanager
def _skipped_where_missing() -> Iterator[None]:
    """Skip the test where a prerequisite is missing."""
    try:
        yield
    except MissingPrerequisite as error:
        raise SkipTest(f"{error.message}; fix: {error.fix}") from error


def _require_none(faults: Iterable[str]) -> None:
    found = list(faults)
    assert not found, "\n".join(found)


def _require_unchanged(values: Sequence[Any], use: Any) -> None:
    """`use` must not change mappings inside the values."""
    for value in values:
        before = dumps(value)
        use(value)
        assert dumps(value) == before, "the argument was changed"
