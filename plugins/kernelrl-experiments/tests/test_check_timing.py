"""`kernelrl check` measures a speedup where that is possible, and otherwise prints why there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar

import attrs
import pytest

from kernelrl_core.environment.checked_kernels import CheckedKernel
from kernelrl_core.environment.one_kernel import why_untimed
from kernelrl_core.environment.turn_text import turn_lines
from kernelrl_core.interfaces.backends import BackendConfig
from kernelrl_core.interfaces.component import Component
from kernelrl_core.interfaces.evaluators import EvaluatorConfig
from kernelrl_core.interfaces.requirements import Requires
from kernelrl_core.plugins.registry import PluginFailed, PluginInfo, Registry
from kernelrl_core.plugins.use import Use
from kernelrl_core.recipe.evaluation_spec import EvaluationSpec
from kernelrl_core.types import Candidate, EvaluationSettings, Extraction, Outcome
from kernelrl_experiments.check.kernel_check import expected_evaluator
from kernelrl_experiments.check.options import default_keys
from kernelrl_testing.fakes import FakeEvaluator
from kernelrl_testing.values import make_evaluation, make_turn

WHY = "this device has no run times"


class Untimed(FakeEvaluator):
    """An evaluator on a device that cannot be timed, and that remembers what it is to expect."""

    expected: ClassVar[list[str]] = []

    def why_untimed(self, backend: str, options: Mapping[str, Any]) -> str:
        return WHY

    async def expect(self, backend: str) -> None:
        self.expected.append(backend)


@attrs.frozen
class OnGpuOnly(BackendConfig):
    """Options of a backend that is timed on a device of which there is none."""

    def requires_for(self, settings: EvaluationSettings) -> Requires:
        return Requires(files=("/nowhere/a device",)) if settings.timing else Requires()


def spec(timing: bool = False, options: BackendConfig | None = None) -> EvaluationSpec:
    backend = Use("triton", options=options or BackendConfig())
    evaluator = Use("local", options=EvaluatorConfig())
    return EvaluationSpec(backend, evaluator, EvaluationSettings(timing=timing), {}, ())


def why(spec: EvaluationSpec, evaluator: FakeEvaluator) -> str:
    return why_untimed(spec, evaluator, Registry(()))


def correct() -> Any:
    extraction = Extraction(Candidate("class ModelNew: ...", "triton"))
    return make_turn(Outcome.CORRECT, extraction=extraction, evaluation=make_evaluation(Outcome.CORRECT))


def described(turn: Any, why_untimed: str = "") -> Any:
    return CheckedKernel("k.py", turn, 1.0).row(spec(), why_untimed)


def test_kernels_are_timed_by_default() -> None:
    assert why(spec(), FakeEvaluator()) == ""


def test_a_device_that_cannot_be_timed_is_the_reason() -> None:
    assert why(spec(), Untimed()) == WHY


def test_a_prerequisite_of_timing_alone_is_the_reason() -> None:
    assert "/nowhere/a device" in why(spec(options=OnGpuOnly()), FakeEvaluator())


def test_the_reason_is_printed_where_there_is_no_speedup() -> None:
    turn = correct()
    assert described(turn, WHY)["speedup"] is None
    assert described(turn, WHY)["reasons"] == {"speedup": WHY}
    assert f"speedup   not measured: {WHY}" in turn_lines(turn, WHY)


def test_a_kernel_that_the_judge_did_not_time_has_its_reason() -> None:
    turn = correct()
    turn = attrs.evolve(turn, evaluation=attrs.evolve(turn.evaluation, not_timed="not_recorded: line 3"))
    assert described(turn)["reasons"] == {"speedup": "not_recorded: line 3"}


def test_a_wrong_kernel_has_its_outcome_as_the_reason() -> None:
    turn = make_turn(Outcome.INCORRECT, evaluation=make_evaluation(Outcome.INCORRECT))
    assert "incorrect" in described(turn)["reasons"]["speedup"]


def test_a_measured_speedup_needs_no_reason() -> None:
    turn = correct()
    turn = attrs.evolve(turn, evaluation=attrs.evolve(turn.evaluation, speedup=2.0))
    assert described(turn)["reasons"] == {}


def known(evaluator: str, serves_check: str = "") -> Registry:
    component = Component(evaluator, f"{__name__}:Untimed", serves_check=serves_check)
    return Registry((PluginInfo("fake", "dist-fake", "1", "ok", components={"evaluators": (component,)}),))


def serves() -> bool:
    return True


def serves_not() -> bool:
    return False


def fails() -> bool:
    raise RuntimeError("planted")


@pytest.mark.parametrize(
    ("backend", "evaluator", "overrides", "expected"),
    [
        (None, None, (), ("local", "triton")),
        ("cpp", "local", ("evaluation.trials=3",), ("local", "cpp")),
        (None, None, ("evaluator.use=other",), None),
    ],
)
def test_evaluator_and_backend_are_known_early_unless_an_override_may_change_them(
    backend: str | None, evaluator: str | None, overrides: tuple[str, ...], expected: tuple[str, str] | None
) -> None:
    assert default_keys(backend, evaluator, overrides, Registry(()))[1] == expected


@pytest.mark.parametrize(
    ("function", "evaluator", "overrides", "expected"),
    [
        ("serves", None, (), "elsewhere"),
        ("serves_not", None, (), "local"),
        ("serves", "other", (), "other"),
        ("serves", None, ("evaluator.workers=1",), "local"),
    ],
)
def test_an_evaluator_that_serves_check_replaces_the_default_where_nothing_names_one(
    function: str, evaluator: str | None, overrides: tuple[str, ...], expected: str
) -> None:
    merged, _ = default_keys(None, evaluator, overrides, known("elsewhere", f"{__name__}:{function}"))
    assert merged.data["evaluator"]["use"] == expected


def test_an_evaluator_that_cannot_find_out_whether_it_serves_check_is_named() -> None:
    with pytest.raises(PluginFailed, match=r"plugin fake .*serves_check failed: .*planted"):
        default_keys(None, None, (), known("elsewhere", f"{__name__}:fails"))


@pytest.mark.parametrize(("evaluator", "expected"), [("local", ["cpp"]), ("nowhere", [])])
def test_an_evaluator_that_is_known_early_gets_the_backend(evaluator: str, expected: list[str]) -> None:
    Untimed.expected = []
    made = asyncio.run(expected_evaluator(evaluator, "cpp", known("local")))
    assert Untimed.expected == expected
    assert (made is not None) == bool(expected)
