"""The policy fulfils its contract with the local server of the tests."""

from __future__ import annotations

from typing import Any

import pytest

from kernelrl_testing.contracts import PolicyContract


class TestTinker(PolicyContract):
    component = "tinker"

    @pytest.fixture(autouse=True)
    def _served(self, server: Any) -> None:
        self.options = {"model": server.models[0], "renderer": "chat_template", "base_url": server.base_url}
