"""The contract of an evaluator on the one that is bundled: four candidates are built and run."""

from __future__ import annotations

import pytest

from kernelrl_core.testing.contracts import EvaluatorContract

pytest.importorskip("triton")

pytestmark = pytest.mark.slow


class TestLocal(EvaluatorContract):
    component = "local"
    options = {"workers": 1}  # noqa: RUF012
    backend = "triton"
    backend_options = {"mode": "interpreter"}  # noqa: RUF012
