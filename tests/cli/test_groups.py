"""Commands that plugins add to a group of the core."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType

import click
import pytest

from kernelrl_core.api import Component
from kernelrl_core.cli.main import main
from kernelrl_core.plugins.loading import PluginInfo
from kernelrl_core.plugins.registry import Registry

Install = Callable[..., None]
Capture = pytest.CaptureFixture[str]


def plugin(name: str, *commands: str, target: str = "kernelrl_group_test:tidy") -> PluginInfo:
    components = tuple(Component(command, target, summary=f"Summary of {name}.") for command in commands)
    return PluginInfo(name, f"dist-{name}", "1", "ok", components={"commands": components})


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Let these plugins be the installed ones."""
    module = ModuleType("kernelrl_group_test")

    @click.command("tidy")
    def tidy() -> None:
        """Tidy."""
        click.echo("tidied")

    vars(module).update(tidy=tidy, text="no command")
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def installed(*plugins: PluginInfo) -> None:
        monkeypatch.setattr("kernelrl_core.plugins.registry.registry", lambda: Registry(plugins))

    return installed


def call(capsys: Capture, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def test_a_command_of_a_plugin_runs_in_its_group(install: Install, capsys: Capture) -> None:
    install(plugin("demo", "runs tidy"))
    assert call(capsys, "runs", "tidy") == (0, "tidied\n", "")


def test_the_help_of_the_group_has_the_summary_of_the_component(install: Install, capsys: Capture) -> None:
    install(plugin("demo", "runs tidy", target="no_such_module:tidy"))
    code, out, _ = call(capsys, "runs", "--help")
    assert code == 0
    assert "tidy  Summary of demo." in out
    assert "runs tidy" not in call(capsys, "--help")[1]


def test_a_command_of_the_core_cannot_be_replaced(install: Install, capsys: Capture) -> None:
    install(plugin("demo", "runs list"))
    code, out, _ = call(capsys, "runs", "list")
    assert (code, "tidied" in out) == (0, False)


def test_a_missing_command_names_its_distribution(install: Install, capsys: Capture) -> None:
    install()
    code, out, err = call(capsys, "runs", "compare", "a", "b")
    assert (code, out) == (3, "")
    assert "kernelrl-report is not installed" in err
    assert "fix: pip install kernelrl-report" in err


@pytest.mark.parametrize("name", ["eval", "sample", "ablate"])
def test_a_missing_command_of_the_program_names_its_distribution(install: Install, capsys: Capture, name: str) -> None:
    install()
    code, out, err = call(capsys, name, "quickstart")
    assert (code, out) == (3, "")
    assert "kernelrl-experiments is not installed" in err
    assert "fix: pip install kernelrl-experiments" in err


def test_an_unknown_command_suggests_the_nearest_one_of_the_group(install: Install, capsys: Capture) -> None:
    install(plugin("demo", "runs tidy"))
    code, _, err = call(capsys, "runs", "tydy")
    assert (code, "did you mean 'tidy'?" in err) == (2, True)


def test_a_target_that_is_no_command_names_the_plugin(install: Install, capsys: Capture) -> None:
    install(plugin("demo", "runs tidy", target="kernelrl_group_test:installed_text"))
    code, _, err = call(capsys, "runs", "tidy")
    assert (code, "plugin demo" in err) == (1, True)
