"""Plugins are loaded separately; a failure is recorded for its plugin."""

from __future__ import annotations

import itertools
import sys
import textwrap
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelrl_core.plugins import output
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


HOOK = "@hookimpl\ndef kernelrl_rewards():\n    "
FAULTY = [
    ("import absent_module", "import", "No module named 'absent_module'", "install the package that provides"),
    ("def broken(:", "import", "SyntaxError", ""),
    ("raise SystemExit(3)", "import", "SystemExit: 3", "remove the call of sys.exit"),
    ("@hookimpl\ndef kernelrl_reward():\n    return []", "hooks", "kernelrl_reward is not a hook", "kernelrl_rewards"),
    (
        "def kernelrl_reward():\n    return []",
        "hooks",
        "did you mean 'kernelrl_rewards'?",
        "rename it to kernelrl_rewards",
    ),
    ("@hookimpl\ndef kernelrl_rewards(gpu):\n    return []", "hooks", "gpu", "without arguments"),
    ("def kernelrl_rewards():\n    return []", "hooks", "not marked with @hookimpl", "write @hookimpl above"),
    (f"{HOOK}raise RuntimeError('no\\nlicence')", "kernelrl_rewards", "no licence", ""),
    (
        f"{HOOK}yield Component('a', 'b:c')\n    raise OSError('half')",
        "kernelrl_rewards",
        "OSError: half",
        "",
    ),
    (f"{HOOK}return ['speedup']", "kernelrl_rewards", "returned str, not a Component", "return a list"),
    (f"{HOOK}return 'speedup'", "kernelrl_rewards", "returned one str, not a list", "return a list"),
    (f"{HOOK}return None", "kernelrl_rewards", "returned None, not a list of Component", "return a list"),
    (f"{HOOK}return Component('a', 'b:c')", "kernelrl_rewards", "returned one Component", "return a list"),
    (f"{HOOK}return [Component('a', 'b:c')] * 2", "kernelrl_rewards", "two components named 'a'", "its own name"),
    (
        f"{HOOK}return [Component('a', 'b.c')]",
        "kernelrl_rewards",
        "'b.c' is not of the form",
        "my_plugin.brevity:Brevity",
    ),
    (f"{HOOK}return [Component('a:b', 'b:c')]", "kernelrl_rewards", "not a valid component name", "'brevity'"),
    (
        "from kernelrl_core.api import Requires\n"
        + HOOK
        + "return [Component('a', 'b:c', requires=Requires('torch'))]",
        "kernelrl_rewards",
        "Requires.modules must be a tuple of text, got 'torch'",
        "",
    ),
]
"""Source of a plugin, point of failure, part of the error, part of the fix."""


@pytest.mark.parametrize(("body", "stage", "error", "fix"), FAULTY, ids=[error for _, _, error, _ in FAULTY])
def test_a_faulty_plugin_is_broken_with_one_line_and_a_fix_and_affects_no_other(
    install: Install, body: str, stage: str, error: str, fix: str
) -> None:
    install("faulty", body)
    install("sound", GOOD)
    plugins = loaded()
    faulty = plugins["faulty"]
    assert (faulty.state, faulty.failed_at) == ("broken", stage)
    assert error in faulty.error
    assert fix in faulty.fix
    assert "\n" not in faulty.error + faulty.fix
    assert plugins["sound"].state == plugins["core"].state == "ok"


def test_a_mistyped_entry_point_gets_no_advice_to_install_a_package(install: Install) -> None:
    install("typo", GOOD, entry_points="[kernelrl]\ntypo = demo_tyop\n")
    plugin = loaded()["typo"]
    assert plugin.error == "ModuleNotFoundError: No module named 'demo_tyop'"
    assert (
        plugin.fix == "correct the entry point 'demo_tyop' in pyproject.toml of demo-typo: there is no module demo_tyop"
    )


def test_a_missing_requirement_of_the_plugin_can_be_installed_by_its_name(install: Install) -> None:
    install("half", "import absent_module", requires="absent-module>=2")
    assert loaded()["half"].fix.startswith("pip install absent-module, or ")


def test_a_private_import_that_is_gone_leads_to_the_api(install: Install) -> None:
    install("old", "from kernelrl_core.judging import Turn")
    assert loaded()["old"].fix.startswith("in the plugin, write an import from kernelrl_core.api")


def test_a_hook_may_have_another_function_name(install: Install) -> None:
    body = "@hookimpl(specname='kernelrl_rewards')\ndef offered():\n    return [Component('a', 'b:c')]"
    install("other", body)
    install("sound", GOOD)
    plugins = loaded()
    assert [one.name for one in plugins["other"].components["rewards"]] == ["a"]
    assert [one.name for one in plugins["sound"].components["rewards"]] == ["brevity"]


def test_a_module_that_two_entry_points_name_is_loaded_once(install: Install) -> None:
    install("twin", GOOD, entry_points="[kernelrl]\nfirst = demo_twin\nsecond = demo_twin\n")
    plugins = loaded()
    assert (plugins["first"].state, plugins["second"].state) == ("ok", "broken")


def test_a_helper_that_resembles_no_hook_is_allowed(install: Install) -> None:
    install("sound", GOOD + "\n    def kernelrl_version_of_this():\n        return 1")
    assert loaded()["sound"].state == "ok"


def test_a_plugin_with_one_failing_hook_has_no_components(install: Install) -> None:
    install("half", GOOD + "\n    @hookimpl\n    def kernelrl_loggers():\n        raise RuntimeError('no')")
    assert loaded()["half"].components == {}


def test_the_traceback_of_a_broken_plugin_is_kept(install: Install) -> None:
    install("faulty", "1 / 0")
    assert "demo_faulty.py" in loaded()["faulty"].trace


def test_an_error_whose_str_raises_is_recorded(install: Install) -> None:
    install("faulty", "class E(Exception):\n    def __str__(self): raise ValueError\nraise E")
    assert loaded()["faulty"].state == "broken"


@pytest.mark.parametrize(
    ("requirement", "upgraded"),
    [("kernelrl>=9", "kernelrl"), ("kernelrl<0.1", "demo-old"), ("Kernelrl==0.0.1", "demo-old")],
)
def test_an_incompatible_plugin_is_refused_before_its_import(install: Install, requirement: str, upgraded: str) -> None:
    install("old", "raise AssertionError('imported')", requires=requirement)
    plugin = loaded()["old"]
    assert (plugin.state, plugin.failed_at) == ("broken", "version")
    assert "this is kernelrl 0.1.0" in plugin.error
    assert plugin.fix == f"pip install --upgrade {upgraded}"


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
    assert both[1].error == "kernelrl-plugin-fake and other-dist both provide a plugin 'fake'"
    assert both[1].fix == "pip uninstall other-dist"


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


def test_output_of_a_plugin_during_import_becomes_a_line_on_stderr(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("chatty", "print('hello')\nprint('again')\n" + textwrap.dedent(GOOD))
    assert loaded()["chatty"].state == "ok"
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        "kernelrl: plugin chatty prints while it is imported: 'hello'; fix: remove the print in the plugin\n"
    )


def test_two_threads_that_load_plugins_leave_standard_output_to_the_process(
    install: Install, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, leave = ([threading.Event(), threading.Event()] for _ in range(2))
    events = types.ModuleType("demo_events")
    vars(events).update(numbers=itertools.count(), entered=entered, leave=leave)
    monkeypatch.setitem(sys.modules, "demo_events", events)
    body = """
        import demo_events

        @hookimpl
        def kernelrl_rewards():
            number = next(demo_events.numbers)
            demo_events.entered[number].set()
            demo_events.leave[number].wait()
            return []
    """
    install("waiting", body)
    threads = [threading.Thread(target=loaded, kwargs={"KERNELRL_PLUGINS": "waiting"}) for _ in entered]
    for thread, event in zip(threads, entered, strict=True):
        thread.start()
        event.wait()
    for thread, event in zip(threads, leave, strict=True):
        event.set()
        thread.join()
    print("a result")
    assert capsys.readouterr().out == "a result\n"


def test_a_slow_import_is_named_while_it_takes_place(
    install: Install, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_SLOW_S", 0.02)
    monkeypatch.setattr(output, "_LOOK_EVERY_S", 0.01)
    install("sound", GOOD)
    # Ends when the line is there: a line after the import would come too late for the user.
    install("slow", "import sys, time\nwhile 'plugin slow' not in sys.stderr.getvalue():\n    time.sleep(0.01)\n")
    assert loaded()["slow"].state == "ok"
    # On a busy machine the imports of other plugins are named too.
    (said,) = (line for line in capsys.readouterr().err.splitlines() if "plugin slow" in line)
    assert said.startswith("kernelrl: the import of plugin slow has taken 0.02 s so far; fix: ")
    assert said.endswith("KERNELRL_DISABLE_PLUGINS=slow")


def test_plugins_are_sorted_by_name(install: Install) -> None:
    install("zulu", GOOD)
    install("alpha", GOOD)
    names = [plugin.name for plugin in load_plugins({})]
    assert names == sorted(names)
