"""A pytest plugin: an isolated cache directory and one evaluator for all tests of a process.

    # conftest.py
    pytest_plugins = ["kernelrl_core.testing.fixtures"]

    # tests/test_kernels.py
    def test_the_example_is_correct(evaluate):
        found = evaluate(make_request(KERNEL, REFERENCE, "triton"))
        assert found.correct

The evaluator is the one that is installed. Where there are several, or it needs options, name it in `pytest.ini` or on
the command line: `kernelrl_evaluator = local`, `--kernelrl-evaluator=local`, and `kernelrl_evaluator_options`
as YAML: `{workers: 1}`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from kernelrl_core.errors import UsageError
from kernelrl_core.interfaces.evaluators import Evaluator
from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe.plugin_faults import read_options
from kernelrl_core.sources.yaml import parse_value
from kernelrl_core.types import Evaluation, EvaluationRequest

__all__ = ["Evaluate", "evaluate", "kernelrl_cache"]

Evaluate: TypeAlias = Callable[[EvaluationRequest], Evaluation]
"""Type of the fixture `evaluate`."""

pytest.register_assert_rewrite("kernelrl_core.testing.contracts")


def pytest_addoption(parser: pytest.Parser) -> None:
    help_name = "evaluator component of the fixture `evaluate`; default: the installed one"
    parser.addoption("--kernelrl-evaluator", default=None, metavar="NAME", help=help_name)
    parser.addini("kernelrl_evaluator", help_name, default="")
    parser.addini("kernelrl_evaluator_options", "its options as YAML", default="{}")


@pytest.fixture(scope="session", autouse=True)
def kernelrl_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The cache directory of this test session, empty at its start: `KERNELRL_CACHE_DIR`.

    Processes of pytest-xdist share it. A test that needs an empty one sets the variable itself.
    """
    base = tmp_path_factory.getbasetemp()
    directory = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "kernelrl-cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELRL_CACHE_DIR", str(directory))
        yield directory


@pytest.fixture(scope="session")
def evaluate(kernelrl_cache: Path, pytestconfig: pytest.Config) -> Iterator[Evaluate]:
    """Evaluate a request. One evaluator, started at the first use, serves all tests of a process."""
    name = pytestconfig.getoption("--kernelrl-evaluator") or pytestconfig.getini("kernelrl_evaluator") or _installed()
    options = parse_value(pytestconfig.getini("kernelrl_evaluator_options"))
    with asyncio.Runner() as runner:
        evaluator = runner.run(_started(name, options))
        yield lambda request: runner.run(evaluator.evaluate(request))
        runner.run(evaluator.aclose())


async def _started(name: str, options: dict[str, object]) -> Evaluator:
    evaluator = registry().make("evaluators", read_options(registry(), "evaluators", name, options))
    await evaluator.start()
    return evaluator


def _installed() -> str:
    names = [component.name for component in registry().components("evaluators")]
    if not names:
        raise UsageError("no evaluator is installed", fix="install a plugin that offers one")
    if len(names) > 1:
        raise UsageError(f"{len(names)} evaluators are installed: {', '.join(names)}", fix="--kernelrl-evaluator NAME")
    return names[0]
