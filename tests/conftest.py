"""A registry of small components, so that these tests depend on no plugin; modules of this folder can be imported."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import ClassVar, Literal

import attrs
import pytest

from kernelrl_core.api import Component
from kernelrl_core.api.checkers import Candidate, Checker, Evaluation, Finding, Rule, Severity
from kernelrl_core.api.config import ComponentConfig, Fraction, NonNegativeFloat, PositiveInt
from kernelrl_core.api.errors import MissingPrerequisite, UsageError
from kernelrl_core.api.feedback import Feedback
from kernelrl_core.api.policies import PolicyCapabilities, PolicyConfig
from kernelrl_core.api.retrievers import RetrieverConfig
from kernelrl_core.api.rewards import Reward, RewardBounds, RewardConfig, Turn
from kernelrl_core.api.tasks import Task, TaskConfig, TaskSource
from kernelrl_core.plugins.loading import PluginInfo
from kernelrl_core.plugins.registry import Registry

sys.path.insert(0, str(Path(__file__).parent))


@attrs.frozen
class Nested:
    """A mapping within options."""

    size: PositiveInt
    """A required size."""
    share: Fraction = Fraction(0.5)
    """A share."""


@attrs.frozen
class Options(ComponentConfig):
    """Options of every type that recipes know."""

    renamed_options: ClassVar[Mapping[str, str]] = {"breadth": "width", "inner": "nested"}

    model: str | None = None
    """Text or nothing."""
    width: PositiveInt = PositiveInt(8)
    """A range."""
    rate: float = 0.5
    """Any number."""
    fast: bool = False
    """A switch."""
    path: Path | None = None
    """A path."""
    mode: Literal["a", "b", 3] = "a"
    """A choice."""
    nested: Literal["auto"] | Nested | None = "auto"
    """A word, a mapping or nothing."""
    names: tuple[str, ...] = ()
    """A list."""
    pair: tuple[int, float] = (1, 2.0)
    """Two numbers."""
    table: dict[str, NonNegativeFloat] = attrs.field(factory=dict)
    """Numbers by name."""
    checked: int = attrs.field(default=5, validator=attrs.validators.ge(2))
    """At least 2, by a validator."""

    def idle_options(self) -> Mapping[str, str]:
        return {"width": "the model has its own width"} if self.model is not None else {}

    def problems(self) -> Iterable[str]:
        if self.width > 1000:
            yield "a width above 1000 does not fit"


@attrs.frozen
class PolicyOptions(Options, PolicyConfig):
    context: PositiveInt | None = None
    """Context, if it is known."""
    warms: bool = False
    """Whether it has a warm start."""

    def capabilities(self) -> PolicyCapabilities:
        losses = frozenset({"importance_sampling", "ppo"})
        return PolicyCapabilities(losses, logprobs=True, reference=True, warm_start=self.warms)

    def context_limit(self) -> int | None:
        return self.context


@attrs.frozen
class SilentPolicyOptions(PolicyOptions):
    """Options of a policy that gives no log-probabilities."""

    def capabilities(self) -> PolicyCapabilities:
        return PolicyCapabilities(frozenset({"importance_sampling", "ppo"}))


@attrs.frozen
class TaskOptions(Options, TaskConfig):
    network: bool = False
    """Whether listing needs the network."""

    def remote(self) -> bool:
        return self.network


@attrs.frozen
class RetrieverOptions(Options, RetrieverConfig):
    pass


@attrs.frozen
class Boundless(RewardConfig):
    """Options of a reward that does not state its bounds."""


@attrs.frozen
class Bounded(RewardConfig):
    """A reward with any bounds."""

    gap: float = 1.0
    """Least rise to a correct kernel."""
    timing: bool = False
    """Whether it needs run times."""
    low: float = 0.0
    """Score of a failure."""
    compiled: bool = False
    """Whether it needs the compiled baseline."""
    reply_tokens: int = 0
    """Reply length from which on it acts."""

    def bounds(self) -> RewardBounds:
        return RewardBounds(low=self.low, high=2.0, gap=self.gap)

    def needs_settings(self) -> dict[str, str]:
        return {"baseline": "compile"} if self.compiled else {}

    def needs_timing(self) -> bool:
        return self.timing

    def needs_reply_tokens(self) -> int:
        return self.reply_tokens


class BoundedReward(Reward):
    def __init__(self, options: Bounded) -> None:
        pass

    def score(self, turn: Turn) -> float:
        return 0.0


class Structured(Feedback):
    def format(self, turn: Turn) -> str:
        return ""


class Formless(Feedback):
    pass


class Scoreless(Reward):
    def __init__(self, options: Bounded) -> None:
        pass


class Files(TaskSource):
    def __init__(self, options: TaskOptions) -> None:
        pass

    def splits(self) -> tuple[str, ...]:
        return ("train",)

    def tasks(self, split: str) -> tuple[Task, ...]:
        if split not in self.splits():
            raise UsageError(f"no split {split!r}; known: train", fix="set holdout")
        return (Task("t", "", level=1),)


class Elsewhere(Files):
    def tasks(self, split: str) -> tuple[Task, ...]:
        raise MissingPrerequisite("no clone on this machine")


class Failing(Files):
    def tasks(self, split: str) -> tuple[Task, ...]:
        raise ValueError("planted")


class RulesChecker(Checker):
    rules = (
        Rule("no_kernel", Severity.HACK, "Launch a kernel.", stated=True),
        Rule("library_compute", Severity.HACK, "Compute."),
    )

    def __init__(self, config: object = None) -> None: ...

    def check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> tuple[Finding, ...]:
        return ()


class WordsChecker(RulesChecker):
    rules = ("sleep",)  # type: ignore[assignment]


@pytest.fixture(scope="session")
def plugins() -> Registry:
    """A plugin `demo` with a component of each kind, and two plugins that offer `twice`."""
    module = ModuleType("kernelrl_recipe_test_components")
    vars(module).update(globals())
    sys.modules[module.__name__] = module

    def component(name: str, config: str = "", target: str = "Bounded", *, default: bool = False) -> Component:
        place = module.__name__
        return Component(name, f"{place}:{target}", config=f"{place}:{config}" if config else "", default=default)

    demo = {
        "tasks": tuple(component(name.lower(), "TaskOptions", name) for name in ("Files", "Elsewhere", "Failing")),
        "backends": (component("triton"),),
        "policies": (component("tiny", "PolicyOptions"), component("silent", "SilentPolicyOptions")),
        "rewards": (
            component("bounded", "Bounded", "BoundedReward"),
            component("boundless", "Boundless"),
            component("scoreless", "Bounded", "Scoreless"),
            component("twice"),
        ),
        "evaluators": (component("local", default=True),),
        "feedback": (
            component("structured", target="Structured", default=True),
            component("formless", target="Formless"),
        ),
        "checkers": (component("rules", target="RulesChecker"), component("words", target="WordsChecker")),
        "retrievers": (component("bm25", "RetrieverOptions"),),
        "advantages": (component("raw"),),
        "loggers": (component("unreadable", "Missing"),),
    }
    estimators = {"advantages": (component("grpo", default=True),)}
    return Registry(
        (
            PluginInfo("broken", "dist-broken", "1", "broken", error="ImportError: no libfoo"),
            PluginInfo("core", "kernelrl", "1", "ok", components=estimators),
            PluginInfo("demo", "dist-demo", "1", "ok", components=demo),
            PluginInfo("other", "dist-other", "1", "ok", components={"rewards": (component("twice"),)}),
        )
    )
