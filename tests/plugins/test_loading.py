"""Plugins are loaded separately; a failure is recorded for its plugin."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelrl_core.plugins.loading import PluginInfo, load_plugins

Install = Callable[..., None]

GOOD = """
    @hookimpl
    def kernelrl_rewards():
        return [Component("brevity", "no_such_module:Brevity", summary="Prefers short kernels")]
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Writes a distribution with one plugin in the layout that pip installs."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)

    def write(name: str, body: str, *, dist: str = "", requires: str = "", entry_points: str | None = None) -> None:
        dist = dist or f"demo-{name}"
        module = dist.replace("-", "_")
        code = "from kernelrl_core.api import Component, hookimpl\n" + textwrap.dedent(body)
        (tmp_path / f"{module}.py").write_text(code)
        info = tmp_path / f"{module}-1.5.dist-info"
        info.mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.5\n"
        (info / "METADATA").write_text(metadata + (f"Requires-Dist: {requires}\n" if requires else ""))
        (info / "entry_points.txt").write_text(entry_points or f"[kernelrl]\n{name} = {module}\n")

    yield write
    for module in set(sys.modules) - before:
        if module.startswith(("demo_", "kernelrl_plugin_fake")):
            del sys.modules[module]


def loaded(**environment: str) -> dict[str, PluginInfo]:
    return {plugin.name: plugin for plugin in load_plugins(environment)}


def test_a_plugin_is_listed_with_its_components_without_importing_them(install: Install) -> None:
    install("sound", GOOD)
    plugin = loaded()["sound"]
    assert (plugin.state, plugin.dist, plugin.version, plugin.error) == ("ok", "demo-sound", "1.5", "")
    assert [component.name for component in plugin.components["rewards"]] == ["brevity"]


@pytest.mark.parametrize(
    ("body", "stage", "error"),
    [
        ("import a_module_that_is_not_there", "import", "ModuleNotFoundError: No module named"),
        ("def broken(:", "import", "SyntaxError"),
        ("raise SystemExit(3)", "import", "SystemExit: 3"),
        (
            GOOD + "\n    @hookimpl\n    def kernelrl_reward():\n        return []",
            "hooks",
            "kernelrl_reward is not a hook of kernelrl 0.1.0; did you mean 'kernelrl_rewards'?",
        ),
        ("@hookimpl\ndef kernelrl_rewards(gpu):\n    return []", "hooks", "gpu"),
        ("def kernelrl_rewards():\n    return []", "hooks", "not marked with @hookimpl"),
        (
            "@hookimpl\ndef kernelrl_rewards():\n    raise RuntimeError('no\\nlicence')",
            "kernelrl_rewards",
            "no licence",
        ),
        (
            "@hookimpl\ndef kernelrl_tasks():\n    yield Component('a', 'b:c')\n    raise OSError('half')",
            "kernelrl_tasks",
            "OSError: half",
        ),
        (
            "@hookimpl\ndef kernelrl_rewards():\n    return ['speedup']",
            "kernelrl_rewards",
            "returned str, not a Component",
        ),
        ("@hookimpl\ndef kernelrl_rewards():\n    return None", "kernelrl_rewards", "TypeError"),
        (
            "@hookimpl\ndef kernelrl_rewards():\n    return [Component('a', 'b:c'), Component('a', 'd:e')]",
            "kernelrl_rewards",
            "two components named 'a'",
        ),
        (
            "@hookimpl\ndef kernelrl_rewards():\n    return [Component('a', 'b.c')]",
            "kernelrl_rewards",
            "module:attribute",
        ),
        ("@hookimpl\ndef kernelrl_rewards():\n    return [Component('a:b', 'b:c')]", "kernelrl_rewards", "not a valid"),
    ],
    ids=lambda value: None,
)
def test_a_faulty_plugin_is_broken_with_a_one_line_error_and_affects_no_other(
    install: Install, body: str, stage: str, error: str
) -> None:
    install("faulty", body)
    install("sound", GOOD)
    plugins = loaded()
    faulty = plugins["faulty"]
    assert (faulty.state, faulty.failed_at) == ("broken", stage)
    assert error in faulty.error
    assert "\n" not in faulty.error
    assert plugins["sound"].state == plugins["core"].state == "ok"


def test_a_plugin_with_one_failing_hook_has_no_components(install: Install) -> None:
    install("half", GOOD + "\n    @hookimpl\n    def kernelrl_loggers():\n        raise RuntimeError('no')")
    assert loaded()["half"].components == {}


def test_the_traceback_of_a_broken_plugin_is_kept(install: Install) -> None:
    install("faulty", "1 / 0")
    assert "demo_faulty.py" in loaded()["faulty"].trace


def test_an_error_whose_str_raises_is_recorded(install: Install) -> None:
    install("faulty", "class E(Exception):\n    def __str__(self): raise ValueError\nraise E")
    assert loaded()["faulty"].state == "broken"


@pytest.mark.parametrize("requirement", ["kernelrl>=9", "kernelrl<0.1", "Kernelrl==0.0.1"])
def test_an_incompatible_plugin_is_refused_before_its_import(install: Install, requirement: str) -> None:
    install("old", "raise AssertionError('imported')", requires=requirement)
    plugin = loaded()["old"]
    assert (plugin.state, plugin.failed_at) == ("broken", "version")
    assert "this is kernelrl 0.1.0" in plugin.error


def test_a_requirement_with_a_false_marker_is_ignored(install: Install) -> None:
    install("new", GOOD, requires='kernelrl>=9; python_version < "3"')
    assert loaded()["new"].state == "ok"


def test_a_duplicate_plugin_name_is_reported_and_the_distribution_of_that_name_keeps_it(install: Install) -> None:
    install("fake", GOOD, dist="kernelrl-plugin-fake")
    install("fake", GOOD, dist="other-dist")
    both = [plugin for plugin in load_plugins({}) if plugin.name == "fake"]
    assert [(plugin.dist, plugin.state) for plugin in both] == [
        ("kernelrl-plugin-fake", "ok"),
        ("other-dist", "broken"),
    ]
    assert "other-dist" in both[1].error
    assert "kernelrl-plugin-fake" in both[1].error


def test_unreadable_entry_points_break_only_their_distribution(install: Install) -> None:
    install("odd", GOOD, entry_points="[kernelrl]\nthis line says nothing\n")
    plugins = load_plugins({})
    assert [(plugin.name, plugin.failed_at) for plugin in plugins if plugin.state == "broken"] == [
        ("demo-odd", "metadata")
    ]


def test_a_disabled_plugin_is_not_imported(install: Install) -> None:
    install("faulty", "raise AssertionError('imported')")
    assert loaded(KERNELRL_DISABLE_PLUGINS="other, faulty")["faulty"].state == "disabled"


def test_only_the_named_plugins_are_loaded(install: Install) -> None:
    install("sound", GOOD)
    states = {name: plugin.state for name, plugin in loaded(KERNELRL_PLUGINS="core,sound").items()}
    assert {name for name, state in states.items() if state == "ok"} == {"core", "sound"}


def test_tracing_writes_each_hook_call_to_stderr(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("sound", GOOD)
    loaded(KERNELRL_TRACE_PLUGINS="1")
    assert "kernelrl: sound.kernelrl_rewards" in capsys.readouterr().err


def test_output_of_a_plugin_during_import_does_not_reach_stdout(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("chatty", "print('hello')\n" + textwrap.dedent(GOOD))
    assert loaded()["chatty"].state == "ok"
    assert capsys.readouterr().out == ""


def test_plugins_are_sorted_by_name(install: Install) -> None:
    install("zulu", GOOD)
    install("alpha", GOOD)
    names = [plugin.name for plugin in load_plugins({})]
    assert names == sorted(names)
