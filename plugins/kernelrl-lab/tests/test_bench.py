"""The measurement of an evaluator, on evaluations that are given."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from kernelrl_core.api.checkers import Evaluation
from kernelrl_core.api.components import registry
from kernelrl_core.api.evaluators import EvaluationRequest
from kernelrl_core.api.tasks import Outcome
from kernelrl_lab.bench import N_HACKS, bench_kernels
from kernelrl_lab.bench_command import command
from kernelrl_plugin_local.evaluator import LocalEvaluator
from kernelrl_testing.fakes import FakeEvaluator
from kernelrl_testing.values import make_evaluation

ONLY = ("--only", "relu_double", "--only", "gelu")


def test_the_kernels_are_all_honest_ones_and_30_hacks() -> None:
    kernels = bench_kernels(registry(), "cpu")
    assert sum(kernel.hack is not None for kernel in kernels) == N_HACKS == 30
    assert len({kernel.id for kernel in kernels}) == len(kernels)
    assert [kernel.id for kernel in kernels] == [kernel.id for kernel in bench_kernels(registry(), "cpu")]


@pytest.fixture
def outcomes(monkeypatch: pytest.MonkeyPatch) -> list[Outcome]:
    """Outcomes of the first evaluations; the others are correct."""
    found: list[Outcome] = []

    def evaluation(request: EvaluationRequest) -> Evaluation:
        return make_evaluation(found.pop(0) if found else Outcome.CORRECT)

    fake = FakeEvaluator(evaluation)

    async def evaluate(self: object, request: EvaluationRequest) -> Evaluation:
        return await fake.evaluate(request)

    monkeypatch.setattr(LocalEvaluator, "evaluate", evaluate)
    return found


def measured(*words: str) -> tuple[int, dict[str, object]]:
    done = CliRunner().invoke(command, ["evaluator", "local", *ONLY, *words, "--json"])
    return done.exit_code, json.loads(done.stdout)


def test_equal_evaluations_agree(outcomes: list[Outcome]) -> None:
    code, found = measured("--against", "local")
    assert (code, found["agreement"], found["differing"]) == (0, 1.0, [])


def test_a_kernel_that_ends_otherwise_is_named(outcomes: list[Outcome]) -> None:
    outcomes.append(Outcome.TIMEOUT)
    code, found = measured("--against", "local")
    assert code == 1
    assert [one["id"] for one in found["differing"]]  # type: ignore[attr-defined]
    assert 0 < float(str(found["agreement"])) < 1


def test_figures_name_their_units(outcomes: list[Outcome]) -> None:
    code, found = measured()
    figures = found["evaluators"][0]  # type: ignore[index]
    assert code == 0
    assert {"start_s", "first_result_s", "per_minute", "latency_p50_s", "latency_p95_s", "capacity_share"} <= {*figures}
    assert 0 < figures["latency_p50_s"] + 1e-9 <= figures["latency_p95_s"] + 1e-9
