"""The lab's fixtures against the evaluator of this machine, as users get it."""

from __future__ import annotations

import ast
import re
import shutil

import pytest

from kernelrl_core.plugins.registry import registry
from kernelrl_lab.catalogue import FIXTURES
from kernelrl_lab.fixture import Fixture
from kernelrl_lab.running import Report, Result, run

HERE = tuple(fixture for fixture in FIXTURES if fixture.where == "cpu")
ON_GPU = tuple(fixture for fixture in FIXTURES if fixture.where == "gpu")


def _marked(fixture: Fixture) -> object:
    marks = []
    if fixture.backend == "cpp" and shutil.which("g++") is None:
        marks.append(pytest.mark.skip(reason="needs g++"))
    return pytest.param(fixture, id=fixture.id, marks=marks)


@pytest.fixture(scope="module")
def report(one_judge_at_once: None) -> Report:
    """All fixtures for the processor, judged at once."""
    usable = [fixture for fixture in HERE if fixture.backend != "cpp" or shutil.which("g++")]
    return run(usable, registry=registry())


def _ended(report: Report, fixture: Fixture) -> Result:
    return next(result for result in report.results if result.fixture is fixture)


@pytest.mark.slow
@pytest.mark.parametrize("fixture", [_marked(fixture) for fixture in HERE])
def test_a_hack_does_not_pay_and_an_honest_kernel_is_clean(report: Report, fixture: Fixture) -> None:
    result = _ended(report, fixture)
    assert result.passed, (result.outcome, result.verdict, result.speedup, result.findings, result.message)


@pytest.mark.gpu
@pytest.mark.slow
def test_on_a_gpu_too() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    failed = [result for result in run(ON_GPU, registry=registry()).results if not result.passed]
    assert [(result.fixture.id, result.outcome, result.message) for result in failed] == []


def test_every_id_names_its_row_and_backend_and_is_unique() -> None:
    ids = [fixture.id for fixture in FIXTURES]
    assert len(set(ids)) == len(ids)
    assert [id_ for id_ in ids if not re.fullmatch(r"[A-EKT]\d+-(triton|cpp|cuda)(-[a-z]+)*", id_)] == []
    assert [fixture.id for fixture in FIXTURES if fixture.id.split("-")[1] != fixture.backend] == []


def test_rows_of_honest_kernels_expect_a_correct_one_and_no_other_row_does() -> None:
    assert [fixture.id for fixture in FIXTURES if fixture.clean != fixture.id.startswith("K")] == []


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda fixture: fixture.id)
def test_every_source_is_python_that_defines_what_it_has_to(fixture: Fixture) -> None:
    reference = {getattr(node, "name", "") for node in ast.parse(fixture.task).body}
    assert {"Model", "get_inputs", "get_init_inputs"} <= reference
    assert "ModelNew" in {getattr(node, "name", "") for node in ast.parse(fixture.candidate).body}


def test_what_was_never_tried_does_not_pass() -> None:
    hack = next(fixture for fixture in HERE if fixture.expected == "hacked")
    honest = next(fixture for fixture in HERE if fixture.clean)
    for fixture in (hack, honest):
        for outcome in ("infra_error", "compile_error"):
            assert not Result(fixture, _outcome(outcome), _verdict("clean"), None, (), "").passed


def test_a_time_that_a_trick_made_short_does_not_pass() -> None:
    slow = next(fixture for fixture in HERE if fixture.most_speedup == 0.5)
    told = [Result(slow, _outcome("correct"), _verdict("clean"), speedup, (), "") for speedup in (0.1, 3.0, None)]
    assert [result.passed for result in told] == [True, False, False]


def test_a_task_in_quarantine_pays_no_hack_and_excuses_no_alarm() -> None:
    hack = next(fixture for fixture in HERE if fixture.expected == "hacked")
    honest = next(fixture for fixture in HERE if fixture.clean)
    told = [
        Result(fixture, _outcome(outcome), _verdict("clean"), None, (), "", ("constant_pass",)).passed
        for fixture, outcome in ((hack, "correct"), (honest, "correct"), (honest, "incorrect"), (hack, "infra_error"))
    ]
    assert told == [True, True, False, False]


def _outcome(value: str) -> object:
    from kernelrl_core.types import Outcome

    return Outcome(value)


def _verdict(value: str) -> object:
    from kernelrl_core.types import Verdict

    return Verdict(value)
