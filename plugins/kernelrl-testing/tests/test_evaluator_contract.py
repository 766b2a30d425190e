"""The contract of an evaluator on bundled ones: four candidates are built and run."""

from __future__ import annotations

import pytest

from kernelrl_testing.contracts import EvaluatorContract

pytest.importorskip("triton")

pytestmark = pytest.mark.slow


class TestLocal(EvaluatorContract):
    component = "local"
    options = {"workers": 1}  # noqa: RUF012
    backend = "triton"
    backend_options = {"mode": "interpreter"}  # noqa: RUF012


class TestRoute(EvaluatorContract):
    component = "route"
    options = {  # noqa: RUF012
        "members": {name: {"use": "local", "workers": 1} for name in ("first", "timed")},
        "timing": "timed",
    }
    backend = "triton"
    backend_options = {"mode": "interpreter"}  # noqa: RUF012
