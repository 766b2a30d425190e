"""A local evaluator that the tests of this folder share, and the kernel that every trick is built on.

Modules of this folder may be imported by its tests.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelrl_core.types import Evaluation, EvaluationRequest, EvaluationSettings, sha256_text
from kernelrl_core.version import API_VERSION
from kernelrl_plugin_local.config import LocalConfig
from kernelrl_plugin_local.evaluator import LocalEvaluator

sys.path.insert(0, str(Path(__file__).parent))

REFERENCE = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(300)]


def get_init_inputs():
    return []
"""

KERNEL = """\
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    tl.store(y_ptr + offs, tl.maximum(x, 0.0) * 2.0, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        # HERE
        y = torch.empty_like(x)
        n = x.numel()
        kernel[(triton.cdiv(n, 128),)](x, y, n, BLOCK=128)
        return y
"""


USERS_KEY = "value-of-a-key-9c41"
"""In the environment of the judges."""


class Bench:
    """A local evaluator with one worker, and a loop to run it in."""

    def __init__(self) -> None:
        os.environ["SERVICE_API_KEY"] = USERS_KEY
        self.runner = asyncio.Runner()
        self.evaluator = self.runner.run(self._make())

    async def _make(self) -> LocalEvaluator:
        return LocalEvaluator(LocalConfig(workers=1))

    def request(self, source: str, reference: str = REFERENCE, **settings: Any) -> EvaluationRequest:
        seed = settings.pop("seed", "ab" * 16)
        chosen = EvaluationSettings(**{"timeout_s": 20.0, **settings})
        return EvaluationRequest(
            task_id="test/task",
            task_source=reference,
            task_sha256=sha256_text(reference),
            source=source,
            source_sha256=sha256_text(source),
            backend="triton",
            backend_options={"mode": "interpreter"},
            settings=chosen,
            seed=seed,
            api_version=API_VERSION,
        )

    def judge(self, source: str, reference: str = REFERENCE, **settings: Any) -> Evaluation:
        return self.runner.run(self.evaluator.evaluate(self.request(source, reference, **settings)))

    def close(self) -> None:
        self.runner.run(self.evaluator.aclose())
        self.runner.close()


@pytest.fixture(scope="session")
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


@pytest.fixture(scope="session")
def good() -> str:
    return KERNEL


@pytest.fixture(scope="session")
def reference() -> str:
    return REFERENCE


@pytest.fixture(scope="session")
def doing() -> Callable[..., str]:
    """The good kernel, with lines of code at the beginning of `forward`."""

    def made(lines: str, *, before: str = "") -> str:
        indented = "\n        ".join(lines.splitlines())
        return KERNEL.replace("        # HERE", f"        {indented}").replace(
            "class ModelNew", f"{before}class ModelNew"
        )

    return made
