"""The policy from scratch fulfils the contract of a policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelrl_core.api.policies import PolicyContext
from kernelrl_testing.contracts import PolicyContract

pytest.importorskip("torch")


class TestScratch(PolicyContract):
    component = "torch"
    options = {"width": 32, "layers": 1, "heads": 2, "warm_start": {"steps": 2}}  # noqa: RUF012

    @pytest.fixture(autouse=True)
    def _demonstrations(self, make_context: Any) -> None:
        self.make_context = make_context

    def context(self, folder: Path) -> PolicyContext:
        return self.make_context()
