from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kernelrl_core.kinds import LossSettings, OptimizerSettings, PolicyContext, SamplingSettings
from kernelrl_core.values import Message, Outcome, WarmStartExample

os.environ["TINKER_TELEMETRY"] = "0"

OPERATIONS = ("relu", "exp", "abs", "sin", "cos", "neg")


def examples() -> list[WarmStartExample]:
    """Short answers to short questions, right and flawed."""
    made = []
    for name in OPERATIONS:
        messages = (Message("user", f"Write a kernel for {name}.\nAnswer with one line.\n"),)
        for weight, answer in ((0.5, f"y = tl.{name}(x)"), (0.3, f"y = torch.{name}(x)"), (0.2, "y = x")):
            outcome = Outcome.CORRECT if weight == 0.5 else Outcome.INCORRECT
            made.append(WarmStartExample(messages, answer, weight, name, outcome))
    return made


@pytest.fixture(scope="session")
def cache(tmp_path_factory) -> Path:
    """Shared by the session, so that the model of the local server is made once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def make_context(cache: Path, tmp_path: Path):
    """What a policy is given; what it said is in `said`."""

    def make(*, loss: str = "ppo", reference: bool = False, run: str = "run") -> PolicyContext:
        async def demonstrations() -> list[WarmStartExample]:
            return examples()

        directory = tmp_path / run
        directory.mkdir(exist_ok=True)
        return PolicyContext(7, cache, directory, demonstrations, "short", make.said.append, loss, reference)

    make.said = []
    return make


@pytest.fixture
def sampling():
    def make(seed: int = 0, **changes: Any) -> SamplingSettings:
        values: dict[str, Any] = {
            "max_tokens": 16, "temperature": 1.0, "top_p": 1.0, "top_k": -1, "stop": (), "seed": seed,
        }  # fmt: skip
        return SamplingSettings(**(values | changes))

    return make


@pytest.fixture
def loss():
    def make(name: str = "ppo", normaliser: float = 50.0, **more: Any) -> LossSettings:
        return LossSettings(name, 0.2, 0.28, normaliser, **more)

    return make


@pytest.fixture
def optimizer():
    def make(learning_rate: float = 3e-3, max_grad_norm: float | None = 0.5) -> OptimizerSettings:
        return OptimizerSettings(learning_rate, 0.9, 0.95, 1e-8, 0.01, max_grad_norm)

    return make
