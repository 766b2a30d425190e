"""Groups of commands: those of plugins in a group of the core, and imports on use."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest

from kernelrl_core.api import Component
from kernelrl_core.cli.main import main
from kernelrl_core.plugins.loading import PluginInfo
from kernelrl_core.plugins.registry import registry

Install = Callable[..., None]
Capture = pytest.CaptureFixture[str]


def plugin(name: str, *commands: str, target: str = "kernelrl_group_test:tidy") -> PluginInfo:
    components = tuple(Component(command, target, summary=f"Summary of {name}.") for command in commands)
    return PluginInfo(name, f"dist-{name}", "1", "ok", components={"commands": components})


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Let these plugins be the installed ones."""
    module = ModuleType("kernelrl_group_test")

    @click.command("tidy")
    def tidy() -> None:
        """Tidy."""
        click.echo("tidied")

    vars(module).update(tidy=tidy, text="no command")
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def installed(*plugins: PluginInfo) -> None:
        monkeypatch.setattr("kernelrl_core.plugins.registry.load_plugins", lambda: plugins)
        registry.cache_clear()

    yield installed
    registry.cache_clear()


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


def test_no_function_of_the_command_line_imports_a_module() -> None:
    """`loading.load` is the only deferred import."""
    folder = Path(main.__code__.co_filename).parent
    found = [
        f"{path.name}:{node.lineno}"
        for path in sorted(folder.glob("*.py"))
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("arguments", "unused"),
    [
        ("--help", ["cli.run", "cli.plugins", "planning", "recipe.structure", "types.turns"]),
        ("plugins --help", ["cli.plugins_list", "cli.plugins_show", "planning"]),
        ("plugins list", ["cli.plugins_show", "planning", "recipe.structure", "types.turns"]),
        ("validate smoke", ["planning.plan", "rollout", "environment.environment"]),
    ],
)
def test_a_command_imports_no_module_that_only_others_need(arguments: str, unused: list[str]) -> None:
    program = (
        "import sys\n"
        "from kernelrl_core.cli.main import main\n"
        "try:\n"
        "    main(sys.argv[1:])\n"
        "finally:\n"
        "    print(*sys.modules, file=sys.stderr)\n"
    )
    command = [sys.executable, "-c", program, *arguments.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [name for name in unused if f"kernelrl_core.{name}" in done.stderr.split()] == []
