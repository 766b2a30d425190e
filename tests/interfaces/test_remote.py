"""An evaluation by a process elsewhere; here the process is this one."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_core.errors import InfrastructureError, KernelRLError, MissingPrerequisite, UsageError
from kernelrl_core.interfaces.remote import read_response, serve_request
from kernelrl_core.types import Outcome
from kernelrl_core.types.serialization import to_json
from kernelrl_testing.fakes import FakeEvaluator
from kernelrl_testing.values import make_evaluation, make_request


def carried(result: Any) -> Any:
    """The result of a worker's evaluator, as its client gets it."""
    evaluator = FakeEvaluator(lambda request: result)
    response = asyncio.run(serve_request(evaluator.evaluate, json.loads(json.dumps(to_json(make_request())))))
    return read_response(json.loads(json.dumps(response)))


def test_an_evaluation_arrives_unchanged() -> None:
    evaluation = make_evaluation(Outcome.INCORRECT)
    assert carried(evaluation) == evaluation


@pytest.mark.parametrize("kind", [UsageError, MissingPrerequisite, InfrastructureError])
def test_an_error_arrives_with_its_class_and_fix(kind: type[KernelRLError]) -> None:
    with pytest.raises(kind) as caught:
        carried(kind("no such thing", fix="make it"))
    assert (caught.value.message, caught.value.fix) == ("no such thing", "make it")


def test_another_exception_of_a_worker_is_an_infrastructure_error() -> None:
    with pytest.raises(InfrastructureError, match="ZeroDivisionError"):
        carried(ZeroDivisionError("x"))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["evaluation", "error", "outcome"]), inner),
    )
)
def test_any_other_response_is_an_infrastructure_error(response: Any) -> None:
    with pytest.raises(InfrastructureError):
        read_response(response)
