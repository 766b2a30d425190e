"""The contract of an evaluator on a cluster of this machine."""

from __future__ import annotations

import pytest

from kernelrl_testing.contracts import EvaluatorContract

pytest.importorskip("ray")
pytest.importorskip("triton")

pytestmark = pytest.mark.slow


class TestRay(EvaluatorContract):
    component = "ray"
    options = {"judges": 1}  # noqa: RUF012
    backend = "triton"
    backend_options = {"mode": "interpreter"}  # noqa: RUF012
