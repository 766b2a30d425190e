"""A plugin that imports a former module of the core is listed as broken, with the replacement import."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernelrl_core.cli.plugins import list_command
from kernelrl_core.plugins import registry
from kernelrl_core.plugins.loading import PluginInfo, load_plugins

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Writes a distribution with the plugin `old` in the layout that pip installs."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)

    def write(code: str, **modules: str) -> None:
        for name, text in {"demo_old": code, **modules}.items():
            (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        info = tmp_path / "demo_old-1.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: demo-old\nVersion: 1.5\n")
        (info / "entry_points.txt").write_text("[kernelrl]\nold = demo_old\n")

    yield write
    for module in set(sys.modules) - before:
        if module.startswith("demo_"):
            del sys.modules[module]


def loaded() -> PluginInfo:
    (plugin,) = (plugin for plugin in load_plugins({}) if plugin.name == "old")
    assert (plugin.state, plugin.failed_at) == ("broken", "import")
    assert not plugin.components
    return plugin


@pytest.mark.parametrize(
    ("statement", "message", "instead"),
    [
        (
            "from kernelrl_core.judging import Turn",
            "ModuleNotFoundError: No module named 'kernelrl_core.judging'",
            "from kernelrl_core.api.rewards import Turn",
        ),
        (
            "from kernelrl_core.flow import Policy, TrainablePolicy, PolicyCapabilities",
            "ModuleNotFoundError: No module named 'kernelrl_core.flow'",
            "from kernelrl_core.api.policies import Policy, PolicyCapabilities, TrainablePolicy",
        ),
        (
            "from kernelrl_core.old import (\n    InfrastructureError,\n    Retriever,\n)",
            "ModuleNotFoundError: No module named 'kernelrl_core.old'",
            "from kernelrl_core.api.errors import InfrastructureError; "
            "from kernelrl_core.api.retrievers import Retriever",
        ),
        (
            "from kernelrl_core.interfaces.rewards import RewardConfig, Rewardd",
            "ImportError: cannot import name 'Rewardd' from 'kernelrl_core.interfaces.rewards'",
            "from kernelrl_core.api.rewards import RewardConfig",
        ),
        (
            "from kernelrl_core.judging import Judgement",
            "ModuleNotFoundError: No module named 'kernelrl_core.judging'",
            "an import from kernelrl_core.api, which docs/reference/python.md lists",
        ),
        (
            "import kernelrl_core.judging",
            "ModuleNotFoundError: No module named 'kernelrl_core.judging'",
            "an import from kernelrl_core.api, which docs/reference/python.md lists",
        ),
    ],
)
def test_the_message_has_the_replacement_import(install: Install, statement: str, message: str, instead: str) -> None:
    install(statement)
    assert loaded().error.startswith(message)
    assert loaded().fix == f"in the plugin, write: {instead}"


def test_a_failing_import_in_a_submodule_of_the_plugin_is_found(install: Install) -> None:
    install("import demo_inner", demo_inner="\nfrom kernelrl_core.judging import Reward\n")
    assert loaded().fix.endswith("write: from kernelrl_core.api.rewards import Reward")


def test_a_missing_module_outside_the_core_gets_no_replacement(install: Install) -> None:
    install("from a_module_that_is_not_there import Reward")
    assert loaded().error == "ModuleNotFoundError: No module named 'a_module_that_is_not_there'"


def test_the_replacement_import_works(install: Install) -> None:
    install("from kernelrl_core.flow import Policy, PolicyCapabilities, Reward")
    _, _, advice = loaded().fix.partition("write: ")
    names: dict[str, object] = {}
    exec(advice, names)
    assert {"Policy", "PolicyCapabilities", "Reward"} <= set(names)


def test_plugins_list_shows_the_replacement(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("from kernelrl_core.judging import Reward")
    found = registry.Registry(load_plugins({}))
    monkeypatch.setattr(registry, "registry", lambda: found)
    shown = CliRunner().invoke(list_command)
    assert shown.exit_code == 0
    (line,) = (line for line in shown.output.splitlines() if line.startswith("old "))
    assert "BROKEN: ModuleNotFoundError: No module named 'kernelrl_core.judging'" in line
    assert line.endswith("; fix: in the plugin, write: from kernelrl_core.api.rewards import Reward")
