"""The contract of backends."""

from __future__ import annotations

import asyncio
import time
from typing import Any, ClassVar
from unittest import SkipTest

from kernelrl_core.interfaces.backends import BackendRunner
from kernelrl_core.types import Evaluation, EvaluationRequest, Outcome
from kernelrl_core.types.replies import SourceFacts
from kernelrl_devices.gpus import gpu_vendors
from kernelrl_testing.contracts.base import ComponentContract
from kernelrl_testing.contracts.breaches import Breach, Fault, calling, located, require, skipped_where_missing
from kernelrl_testing.contracts.here import evaluator_here, obstacle_to_running, runner_of
from kernelrl_testing.contracts.hostile import HOSTILE_SOURCES
from kernelrl_testing.values import SOURCE, make_request

__all__ = ["BackendContract"]

_FIX_FACTS = "return SourceFacts for any source that parses as Python"
_FIX_EXAMPLE = "correct the example in `facts`: kernelrl check TASK KERNEL evaluates it"


class BackendContract(ComponentContract):
    """A backend reads sources without running them, names a runner, and has an example that is correct."""

    kind = "backends"
    limit_s: ClassVar[float] = 900.0
    max_ms: ClassVar[float] = 100.0
    """Processor time of `source_facts` for an example. A source that strains a reader may take 20 times as long."""

    def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """Evaluate the example kernel, by default with an evaluator of this machine."""
        evaluator = self.registry().make("evaluators", evaluator_here(self.registry()))

        async def whole() -> Evaluation:
            await evaluator.start()
            try:
                return await evaluator.evaluate(request)
            finally:
                await evaluator.aclose()

        with skipped_where_missing():
            return asyncio.run(whole())

    def test_kernels_of_its_own_examples_are_read(self) -> None:
        backend = self.make()
        for example in (backend.facts.example, *backend.facts.few_shot):
            facts = _facts(backend, example.kernel)
            reached = [kernel.name for kernel in facts.kernels if kernel.launched and kernel.reached]
            message = f"no kernel of example {example.name!r} is launched and reached: {facts}"
            require(reached, message, "let source_facts find the kernels of the examples in `facts`")

    def test_source_facts_are_repeatable_for_any_source(self) -> None:
        backend = self.make()
        for source in ("", SOURCE, "x = 1\n", "class ModelNew: ...\n", "def f():\n    pass\n"):
            facts = _facts(backend, source)
            message = f"{source!r} has no kernel, source_facts finds {facts.kernels}"
            require(facts.kernels == (), message, "report functions with the backend's decorator or syntax only")
            again = _facts(backend, source) == facts
            require(again, "two calls of source_facts differ", "compute the facts from the source alone")

    def test_hostile_sources_are_read_in_milliseconds(self) -> None:
        backend = self.make()
        example = backend.facts.example.kernel
        timed = {"of the example": (example, 1), **{f"with {key}": (text, 20) for key, text in HOSTILE_SOURCES.items()}}
        for name, (source, factor) in timed.items():
            taken_ms = min(_milliseconds(backend, source, factor * self.max_ms))
            message = f"source_facts of a source {name} takes {taken_ms:.0f} ms, the limit is {factor * self.max_ms:g}"
            require(taken_ms <= factor * self.max_ms, message, "read the source once, and limit the work per character")

    def test_runner_loads_and_states_its_mode(self) -> None:
        runner = self._runner(self.make())
        for has_gpu in (False, True):
            with calling("mode of the runner", "return interpreter, cpu, gpu or compile for any options"):
                mode = runner.mode(self.use().raw, has_gpu)
            fix = "return interpreter, cpu, gpu or compile"
            require(mode in ("interpreter", "cpu", "gpu", "compile"), f"mode of the runner returns {mode!r}", fix)

    def test_the_example_is_correct(self) -> None:
        backend, use = self.make(), self.use()
        mode = self._runner(backend).mode(use.raw, bool(gpu_vendors()))
        if obstacle := obstacle_to_running(self.registry(), use, mode):
            raise SkipTest(f"the example kernel was not evaluated: {obstacle}")
        example = backend.facts.example
        request = make_request(example.kernel, example.reference, use.use, backend_options=use.raw)
        found = self.evaluate(request)
        message = f"the example kernel is {found.outcome.value}: {found.message}"
        require(found.outcome is Outcome.CORRECT, message, _FIX_EXAMPLE)
        require(found.compiled, "the evaluation of the example does not say that it was built", _FIX_EXAMPLE)

    def _runner(self, backend: Any) -> BackendRunner:
        fix = "let `runner` name, as module:attribute, a class derived from BackendRunner that takes no argument"
        try:
            runner: object = runner_of(backend)
        except ModuleNotFoundError as error:
            component = self.registry().find(self.kind, self.component)
            if (error.name or "").partition(".")[0] in component.requires.modules:
                raise SkipTest(str(error)) from error
            raise Breach(Fault(f"the runner {backend.runner!r} cannot be made: {located(error)}", fix)) from error
        except Exception as error:
            raise Breach(Fault(f"the runner {backend.runner!r} cannot be made: {located(error)}", fix)) from error
        if not isinstance(runner, BackendRunner):
            raise Breach(Fault(f"the runner {backend.runner!r} is no BackendRunner", fix))
        return runner


def _facts(backend: Any, source: str) -> SourceFacts:
    with calling("source_facts", _FIX_FACTS):
        facts = backend.source_facts(source)
    require(isinstance(facts, SourceFacts), f"source_facts returns {facts!r}", _FIX_FACTS)
    assert isinstance(facts, SourceFacts)
    return facts


def _milliseconds(backend: Any, source: str, enough_ms: float) -> list[float]:
    """Times of at most three calls in processor time of this thread; a time within the limit is enough."""
    taken: list[float] = []
    while len(taken) < 3 and (not taken or min(taken) > enough_ms):
        began = time.thread_time()
        _facts(backend, source)
        taken.append(1e3 * (time.thread_time() - began))
    return taken
