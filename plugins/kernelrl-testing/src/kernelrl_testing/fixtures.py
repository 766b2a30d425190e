"""A pytest plugin: an isolated cache directory, and one evaluator for all tests of a process.

    # conftest.py
    pytest_plugins = ["kernelrl_testing.fixtures"]

    # tests/test_kernels.py
    def test_relu(assert_kernel):
        assert_kernel("tasks/relu.py", "kernels/relu.py", min_speedup=1.2)

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

import pytest

from kernelrl_core.errors import KernelRLError, MissingPrerequisite, UsageError
from kernelrl_core.interfaces.evaluators import Evaluator
from kernelrl_core.plugins.registry import registry
from kernelrl_core.sources.yaml import parse_value
from kernelrl_core.types import Evaluation, EvaluationRequest, Turn
from kernelrl_testing.contracts.options import read_options
from kernelrl_testing.kernels import KernelTests

__all__ = ["AssertKernel", "Evaluate", "assert_kernel", "evaluate", "kernelrl_cache"]

Evaluate: TypeAlias = Callable[[EvaluationRequest], Evaluation]
"""Type of the fixture `evaluate`."""


class AssertKernel(Protocol):
    """Type of the fixture `assert_kernel`."""

    def __call__(
        self,
        reference: str | os.PathLike[str],
        kernel: str | os.PathLike[str],
        *,
        min_speedup: float | None = None,
        backend: str | None = None,
        function: str = "",
        path: str | os.PathLike[str] = "",
        lenient: bool = False,
        overrides: Sequence[str] = (),
    ) -> Turn: ...


class _Started(NamedTuple):
    runner: asyncio.Runner
    evaluator: Evaluator
    block: Mapping[str, Any]
    """Name and options of the evaluator, as in a recipe."""


def pytest_addoption(parser: pytest.Parser) -> None:
    help_name = "evaluator component of the fixtures `evaluate` and `assert_kernel`; default: the installed one"
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
def _evaluator(kernelrl_cache: Path, pytestconfig: pytest.Config) -> Iterator[_Started]:
    name = pytestconfig.getoption("--kernelrl-evaluator") or pytestconfig.getini("kernelrl_evaluator") or _installed()
    options = parse_value(pytestconfig.getini("kernelrl_evaluator_options"))
    with asyncio.Runner() as runner:
        evaluator = registry().make("evaluators", read_options(registry(), "evaluators", name, options))
        runner.run(evaluator.start())
        yield _Started(runner, evaluator, {**options, "use": name})
        runner.run(evaluator.aclose())


@pytest.fixture(scope="session")
def evaluate(_evaluator: _Started) -> Evaluate:
    """Evaluate a request. One evaluator, started at the first use, serves all tests of a process."""
    return lambda request: _evaluator.runner.run(_evaluator.evaluator.evaluate(request))


@pytest.fixture(scope="session")
def assert_kernel(_evaluator: _Started) -> AssertKernel:
    """Assert that a kernel is correct for a reference, and fast enough. It is evaluated as by `kernelrl check`.

    `assert_kernel(reference, kernel, *, min_speedup=None, backend=None, function="", path="", lenient=False,
    overrides=())` takes:

    - `reference`: a task in KernelBench's format or a function with `get_inputs`, as a file or as source text; or the
      id of a task.
    - `kernel`: a kernel file as of `kernelrl check`, or its text. Text has several lines; a single line is a path.
    - `min_speedup`: least speedup over the baseline. None: correctness alone; nothing is timed.
    - `backend`: kernel language. None: the one that finds a kernel in the source.
    - `function`: the kernel is this function of the file.
    - `path`: directory of the package that the kernel imports.
    - `lenient`: a correct kernel with verdict suspect passes.
    - `overrides`: evaluation keys, such as `["evaluation.precision=fp16"]`.

    It returns the evaluated turn. An AssertionError has outcome, findings and message. The test is skipped, with the
    reason, where this machine cannot execute the backend, or cannot time a kernel that is correct. An argument that
    cannot be used, and a failed machine, fail the test with a message. The kernel is executed in the evaluator's
    sandbox, never in the process of the tests.
    """
    kernels = KernelTests(_evaluator.evaluator, _evaluator.block, registry())

    def check(
        reference: str | os.PathLike[str],
        kernel: str | os.PathLike[str],
        *,
        min_speedup: float | None = None,
        backend: str | None = None,
        function: str = "",
        path: str | os.PathLike[str] = "",
        lenient: bool = False,
        overrides: Sequence[str] = (),
    ) -> Turn:
        __tracebackhide__ = True
        made = kernels.evaluate(
            reference,
            kernel,
            backend=backend,
            function=function,
            path=os.fspath(path),
            timing=min_speedup is not None,
            overrides=tuple(overrides),
        )
        try:
            found = _evaluator.runner.run(made)
        except MissingPrerequisite as error:
            pytest.skip(str(error))
        except KernelRLError as error:
            pytest.fail(str(error), pytrace=False)
        if failure := found.failure(min_speedup, lenient=lenient):
            raise AssertionError(failure)
        if min_speedup is not None and found.turn.speedup is None:
            pytest.skip(f"the kernel is correct; its speedup was not measured: {found.why_untimed}")
        return found.turn

    return check


def _installed() -> str:
    names = [component.name for component in registry().components("evaluators")]
    if not names:
        raise UsageError("no evaluator is installed", fix="install a plugin that offers one")
    if len(names) > 1:
        raise UsageError(f"{len(names)} evaluators are installed: {', '.join(names)}", fix="--kernelrl-evaluator NAME")
    return names[0]
