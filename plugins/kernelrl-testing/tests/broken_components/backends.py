from __future__ import annotations

import time
from typing import Any

import attrs

from broken_components import UNMADE, Broken
from kernelrl_core.api.backends import Backend, BackendFacts, BackendRunner, Example, KernelFact, SourceFacts
from kernelrl_core.types import Outcome
from kernelrl_testing.values import REFERENCE, SOURCE, make_evaluation


class Runner(BackendRunner):
    mode_without_gpu = "cpu"

    def load(self, path: str, options: Any) -> Any:
        raise AssertionError("only the runner loads candidates")


class BadMode(Runner):
    def mode(self, options: Any, has_gpu: bool) -> str:
        return "fast"


class Good(Backend):
    facts = BackendFacts("Fake", (), "Write a kernel.", Example(REFERENCE, "# kernel\n" + SOURCE))
    runner = "broken_components.backends:Runner"

    def source_facts(self, source: str) -> SourceFacts:
        return SourceFacts((KernelFact("k", 1, True, True),) if "# kernel" in source else ())


class Blind(Good):
    def source_facts(self, source: str) -> SourceFacts:
        return SourceFacts()


class Fails(Good):
    def source_facts(self, source: str) -> SourceFacts:
        return SourceFacts(super().source_facts(source).kernels, unread=source.splitlines()[0])


class Everywhere(Good):
    def source_facts(self, source: str) -> SourceFacts:
        return SourceFacts((KernelFact("k", 1, True, True),))


class Slow(Good):
    def source_facts(self, source: str) -> SourceFacts:
        until = time.thread_time() + 1e-9 * source.count("\n") ** 2
        while time.thread_time() < until:
            pass
        return super().source_facts(source)


class NoFacts(Good):
    facts = attrs.evolve(Good.facts, instructions="")


class OddMode(Good):
    runner = "broken_components.backends:BadMode"


class NoRunner(Good):
    runner = "broken_components.backends:Absent"


def evaluated(outcome: Outcome) -> dict[str, Any]:
    return {"evaluate": lambda self, request: make_evaluation(outcome, message="planted")}


CORRECT = evaluated(Outcome.CORRECT)
RUNNER = "runner_loads_and_states_its_mode"
EXAMPLE = "the_example_is_correct"
FACTS = "source_facts_are_repeatable_for_any_source"
BROKEN = [
    Broken("backends", "backends.Good", (), attributes=CORRECT),
    Broken("backends", "backends.Good", [EXAMPLE], attributes=evaluated(Outcome.INCORRECT)),
    Broken("backends", "backends.Blind", ["kernels_of_its_own_examples_are_read"], attributes=CORRECT),
    Broken("backends", "backends.Fails", [FACTS], attributes=CORRECT),
    Broken("backends", "backends.Everywhere", [FACTS], attributes=CORRECT),
    Broken(
        "backends", "backends.Slow", ["hostile_sources_are_read_in_milliseconds"], attributes=CORRECT | {"max_ms": 1.0}
    ),
    Broken("backends", "backends.NoFacts", UNMADE, attributes=CORRECT),
    Broken("backends", "backends.OddMode", [RUNNER], attributes=CORRECT),
    Broken("backends", "backends.NoRunner", [RUNNER, EXAMPLE], attributes=CORRECT),
]
