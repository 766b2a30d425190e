"""The parts of the contracts: imports in a fresh process, undeclared imports, components of this machine, processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import SkipTest

import attrs
import pytest

from kernelrl_core.api import Component, Requires
from kernelrl_core.api.backends import BackendConfig
from kernelrl_core.api.config import MachineFact
from kernelrl_core.errors import MissingPrerequisite
from kernelrl_core.plugins.loading import PluginInfo
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.plugins.use import Use
from kernelrl_testing.contracts import imports
from kernelrl_testing.contracts.breaches import Breach, calling, located
from kernelrl_testing.contracts.here import backend_here, evaluator_here, obstacle_to_running
from kernelrl_testing.contracts.imports import import_faults, undeclared_imports
from kernelrl_testing.contracts.processes import descendants, left_over


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty package `demo_parts` that can be imported."""
    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / "demo_parts"
    folder.mkdir()
    (folder / "__init__.py").touch()
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "demo_parts"]:
        del sys.modules[name]


PART = Component("part", "demo_parts.part:Part", config="demo_parts.options:Options")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("import time; time.sleep(9)", "importing demo_parts and demo_parts.options takes more than 1 s"),
        ("import os; os._exit(7)", "importing demo_parts and demo_parts.options ends the process with exit code 7"),
        ("1 / 0", "importing demo_parts and demo_parts.options fails: ZeroDivisionError: division by zero"),
        (
            "import time\nends = time.process_time() + 0.5\nwhile time.process_time() < ends: pass",
            "importing demo_parts and demo_parts.options takes 0.5 s of CPU time",
        ),
        ("print('a\\nb')", "importing demo_parts and demo_parts.options prints 'a'"),
        ("x = 1", None),
    ],
)
def test_an_import_of_the_options_is_observed_in_a_fresh_process(
    package: Path, monkeypatch: pytest.MonkeyPatch, options: str, message: str | None
) -> None:
    monkeypatch.setattr(imports, "_LIMIT_S", 1.0 if "9" in options else 60.0)
    monkeypatch.setattr(imports, "_QUICK_CPU_S", 0.4)
    (package / "options.py").write_text(options)
    found = [fault.message for fault in import_faults(PART)]
    assert found == ([] if message is None else [message])


IMPORTS = """
from __future__ import annotations

import json
from typing import TYPE_CHECKING

import attrs
import declared.inner
import undeclared_one
from kernelrl_core.api import Component
from . import other
from .below import deep

try:
    import optional_one
except ImportError:
    optional_one = None
if TYPE_CHECKING:
    import for_types
else:
    import undeclared_two

def use():
    import lazy
"""


def test_imports_that_nothing_declares_are_found_also_in_modules_of_the_package(package: Path) -> None:
    (package / "part.py").write_text(IMPORTS)
    (package / "other.py").write_text("x = 1\n\nimport undeclared_three\n")
    (package / "below").mkdir()
    (package / "below/__init__.py").touch()
    (package / "below/deep.py").write_text("from undeclared_four.inner import x\n")
    component = attrs.evolve(PART, requires=Requires(modules=("declared",)))
    found = [fault.message.split(", which")[0] for fault in undeclared_imports(component, "no-such-distribution")]
    assert found == [
        "below/deep.py:1 imports undeclared_four",
        "demo_parts/part.py:9 imports undeclared_one",
        "demo_parts/other.py:3 imports undeclared_three",
        "demo_parts/part.py:21 imports undeclared_two",
    ]


def test_dependencies_of_the_distribution_are_declared(package: Path) -> None:
    (package / "part.py").write_text("import kernelrl_judge\nimport yaml\n")
    assert list(undeclared_imports(PART, "kernelrl-plugin-local")) == []


def test_an_exception_is_located_in_the_code_of_the_component(package: Path) -> None:
    (package / "part.py").write_text("import json\n\ndef read():\n    return json.loads('{')\n")
    from demo_parts.part import read

    with pytest.raises(ValueError, match="Expecting") as caught:
        read()
    assert caught.value.__traceback__ is not None
    # As the core calls it: without the frame of this test.
    error = caught.value.with_traceback(caught.value.__traceback__.tb_next)
    assert located(error).startswith("JSONDecodeError: Expecting property name")
    assert located(error).endswith("(demo_parts/part.py:4)")
    assert located(ValueError()) == "ValueError"


def test_an_exception_of_a_call_is_a_breach_with_the_fix_and_a_missing_prerequisite_a_skipped_test() -> None:
    with (
        pytest.raises(Breach, match=r"read raises ValueError: no .*; fix: return text"),
        calling("read", "return text"),
    ):
        raise ValueError("no")
    with pytest.raises(SkipTest, match="no server; fix: start it"), calling("read", "return text"):
        raise MissingPrerequisite("no server", fix="start it")


def test_without_evaluator_or_backend_a_test_is_skipped_with_the_fix() -> None:
    for find in (evaluator_here, backend_here):
        with pytest.raises(SkipTest, match="; fix: "):
            find(Registry(()))  # type: ignore[operator]


@attrs.frozen
class NotPrepared(BackendConfig):
    def found_here(self) -> list[MachineFact]:
        return [MachineFact("headers", "none yet", "pending")]


@pytest.mark.parametrize(
    ("mode", "requires", "options", "obstacle"),
    [
        ("cpu", Requires(), BackendConfig(), ""),
        ("compile", Requires(), BackendConfig(), "this machine can compile its kernels and not execute them"),
        ("cpu", Requires(executables=("no-such-program",)), BackendConfig(), "program no-such-program is missing; fix"),
        ("cpu", Requires(), NotPrepared(), "headers: none yet; fix: evaluate one kernel"),
    ],
)
def test_the_reason_why_a_backend_executes_nothing_here(
    mode: str, requires: Requires, options: BackendConfig, obstacle: str
) -> None:
    component = Component("small", "broken_components.backends:Good", requires=requires)
    plugins = Registry((PluginInfo("a", "a", "1", "ok", components={"backends": (component,)}),))
    found = obstacle_to_running(plugins, Use("small", options), mode)
    assert found.startswith(obstacle)
    assert bool(found) == bool(obstacle)


def test_a_process_that_still_runs_is_left_over_until_it_ends() -> None:
    before = descendants()
    started = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        (command,) = left_over(before, 0.0).values()
        assert command.endswith("-c input()")
    finally:
        started.communicate(b"\n")
    assert left_over(before, 10.0) == {}
