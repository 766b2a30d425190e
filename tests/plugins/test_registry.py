"""Components are found by name and constructed with their options; errors name the plugin."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

from kernelrl_core.errors import ExitCode, LookupFailed, MissingPrerequisite, UsageError
from kernelrl_core.interfaces.component import Component
from kernelrl_core.interfaces.feedback import Feedback
from kernelrl_core.interfaces.requirements import Requires, missing_requirements
from kernelrl_core.interfaces.rewards import Reward, RewardBounds, RewardConfig
from kernelrl_core.plugins import output
from kernelrl_core.plugins.loading import PluginInfo
from kernelrl_core.plugins.registry import PluginFailed, Registry, registry
from kernelrl_core.plugins.use import Use


def plugin(name: str, *components: Component, kind: str = "rewards", **more: Any) -> PluginInfo:
    return PluginInfo(name, f"dist-{name}", "1.0", more.pop("state", "ok"), components={kind: components}, **more)


A = Component("speedup", "kernelrl_core.types:Score", summary="a")
B = Component("speedup", "kernelrl_core.types:Score", summary="b")
OWN = Component("own", "kernelrl_core.types:Score")


def test_a_bare_name_finds_the_only_component_of_that_name() -> None:
    assert Registry((plugin("a", A, OWN),)).find("rewards", "own") is OWN


def test_a_name_of_two_plugins_must_be_qualified() -> None:
    both = Registry((plugin("a", A), plugin("b", B, OWN)))
    with pytest.raises(LookupFailed, match="a:speedup, b:speedup"):
        both.find("rewards", "speedup")
    assert both.find("rewards", "b:speedup") is B
    assert [both.label("rewards", c) for c in both.components("rewards")] == ["a:speedup", "b:speedup", "own"]


def test_the_fix_for_a_clash_serves_for_a_bundled_recipe_too() -> None:
    bundled = attrs.evolve(plugin("rewards", A), dist="kernelrl-plugin-rewards")
    with pytest.raises(LookupFailed) as caught:
        Registry((plugin("mine", A), bundled)).find("rewards", "speedup")
    assert "after the command (KEY.use=rewards:speedup)" in caught.value.fix
    assert caught.value.fix.endswith("KERNELRL_DISABLE_PLUGINS=mine")


def default(name: str) -> Component:
    return Component(name, "kernelrl_core.types:Score", default=True)


@pytest.mark.parametrize(
    ("plugins", "expected"),
    [
        ((), "local"),
        ((plugin("a", default("remote"), kind="evaluators"),), "remote"),
        (
            (plugin("a", default("remote"), kind="evaluators"), plugin("b", default("local"), kind="evaluators")),
            "local",
        ),
        ((plugin("a", default("x"), kind="evaluators"), plugin("b", default("y"), kind="evaluators")), ""),
    ],
    ids=["none installed", "one", "a bundled one of several", "several"],
)
def test_the_default_of_a_kind_is_what_a_plugin_declares(plugins: tuple[PluginInfo, ...], expected: str) -> None:
    assert Registry(plugins).default("evaluators") == expected


def test_the_defaults_of_a_kind_without_default_are_none() -> None:
    assert Registry(()).defaults("policies") == ()
    assert Registry(()).default("policies") == ""


def test_output_of_a_constructor_is_on_standard_error(targets: str, capsys: pytest.CaptureFixture[str]) -> None:
    configured(targets).make("rewards", Use("t", Options(9)))
    assert capsys.readouterr() == ("", "value 9\n")


def test_the_error_about_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(LookupFailed, match="no reward 'sped_up'; did you mean 'speedup'"):
        Registry((plugin("a", A),)).find("rewards", "sped_up")


def test_a_bundled_component_that_is_not_installed_gets_its_install_command() -> None:
    with pytest.raises(MissingPrerequisite) as caught:
        Registry(()).find("policies", "tinker")
    assert caught.value.fix == "pip install kernelrl-plugin-tinker"
    assert caught.value.exit_code is ExitCode.MISSING


@pytest.mark.parametrize(("kind", "name"), [("policies", "torch"), ("loggers", "mine"), ("rewards", "torch:x")])
def test_a_component_of_a_broken_plugin_fails_with_the_error_of_the_plugin(kind: str, name: str) -> None:
    owner = name.partition(":")[0]
    broken = plugin(owner, state="broken", error="ImportError: no libfoo")
    with pytest.raises(MissingPrerequisite, match="ImportError: no libfoo") as caught:
        Registry((broken,)).find(kind, name)
    assert caught.value.fix == f"kernelrl plugins show {owner}"


def test_the_error_about_a_disabled_plugin_names_the_variable() -> None:
    off = plugin("torch", state="disabled", error="named in KERNELRL_DISABLE_PLUGINS")
    with pytest.raises(MissingPrerequisite, match="is disabled: named in KERNELRL_DISABLE_PLUGINS"):
        Registry((off,)).find("policies", "torch")


@attrs.frozen
class Options(RewardConfig):
    """Options of the components below."""

    value: int = 1
    """Any number."""

    def bounds(self) -> RewardBounds:
        return RewardBounds(0.0, 1.0, -1.0)

    def requires(self) -> Requires:
        return Requires(environment=(f"NO_SUCH_VARIABLE_{self.value}",))


class Target(Reward):
    def __init__(self, options: Options | None = None) -> None:
        if options is not None and options.value < 0:
            raise ZeroDivisionError("negative")
        if options is not None and options.value == 0:
            raise UsageError("value: 0 is not allowed")
        if options is not None and options.value == 9:
            print("value 9")
        self.options = options

    def score(self, turn: Any) -> float:
        return 0.0


class Terse(Feedback):
    def format(self, turn: Any) -> str:
        return ""


class Plain:
    """Neither a reward nor its options."""


@pytest.fixture
def targets(monkeypatch: pytest.MonkeyPatch) -> str:
    """Name under which this module's classes can be imported."""
    monkeypatch.setitem(sys.modules, "targets_of_this_test", sys.modules[__name__])
    return "targets_of_this_test"


def configured(targets: str) -> Registry:
    return Registry((plugin("a", Component("t", f"{targets}:Target", config=f"{targets}:Options")),))


def test_make_calls_the_implementation_with_its_options_or_without_arguments(targets: str) -> None:
    made = [configured(targets).make("rewards", use) for use in (Use("t", Options(3)), Use("t"))]
    assert [reward.options for reward in made if isinstance(reward, Target)] == [Options(3), Options()]
    bare = plugin("a", Component("t", f"{targets}:Terse"), kind="feedback")
    assert isinstance(Registry((bare,)).make("feedback", Use("t")), Terse)


def test_an_error_in_a_constructor_names_the_plugin(targets: str) -> None:
    with pytest.raises(PluginFailed, match=r"plugin a \(dist-a 1.0\): cannot make the reward 't': ZeroDivisionError"):
        configured(targets).make("rewards", Use("t", Options(-1)))


def test_a_usage_error_of_a_constructor_passes_unchanged(targets: str) -> None:
    with pytest.raises(UsageError, match="value: 0 is not allowed"):
        configured(targets).make("rewards", Use("t", Options(0)))


def test_an_import_error_names_the_plugin() -> None:
    plugins = Registry((plugin("a", Component("t", "kernelrl_core.types:NoSuchThing")),))
    with pytest.raises(PluginFailed, match=r"plugin a .*cannot import the reward 't': AttributeError"):
        plugins.make("rewards", Use("t"))


def test_a_declared_module_that_is_missing_is_a_prerequisite() -> None:
    component = Component("t", "no_such_module_at_all:T", requires=Requires(modules=("no_such_module_at_all",)))
    with pytest.raises(MissingPrerequisite) as caught:
        Registry((plugin("a", component),)).make("rewards", Use("t"))
    assert caught.value.fix == "install the package that provides no_such_module_at_all"


class Undecorated(Options):
    """Options whose own field would be ignored."""

    limit: int = 3


@attrs.frozen
class NoBounds(RewardConfig):
    """A reward component must declare its bounds."""

    value: int = 1
    """Any number."""


class Misnamed(Target):
    def scores(self, turn: Any) -> float:
        return 0.0

    score = Reward.score  # type: ignore[assignment]


class NoArgument(Target):
    def __init__(self) -> None:
        super().__init__()


class Exits(Target):
    def __init__(self, options: Options) -> None:
        raise SystemExit(2)


FAULTY = [
    ({"config": "json:JSONDecoder"}, "are not an attrs class", "derive a class from RewardConfig of"),
    ({"config": "{0}:Undecorated"}, "the field limit would be ignored", "write @attrs.frozen above Undecorated"),
    (
        {"config": "{0}:NoBounds"},
        "NoBounds does not define bounds()",
        "return RewardBounds(low=0.0, high=1.0, gap=1.0)",
    ),
    (
        {"target": "{0}:Targt"},
        "has no attribute 'Targt'",
        "correct target='{0}:Targt' of Component('t', …); did you mean 'Target'?",
    ),
    ({"target": "kernelrl_core.absent:T"}, "No module named 'kernelrl_core.absent'", "from kernelrl_core.api"),
    ({"target": "json.absent:T"}, "No module named 'json.absent'", "correct target='json.absent:T'"),
    ({"target": "{0}:__name__"}, "is a str, not a class", "name a class or a function"),
    ({"target": "{0}:Misnamed"}, "lacks the method score", "define score in Misnamed, where scores may be misspelt"),
    ({"target": "{0}:NoArgument"}, "TypeError", "let NoArgument take one argument, the options"),
    ({"target": "{0}:Exits"}, "SystemExit: 2", "remove the call of sys.exit"),
]


@pytest.mark.parametrize(("parts", "message", "fix"), FAULTY, ids=[message for _, message, _ in FAULTY])
def test_a_faulty_component_names_the_plugin_and_the_fix(
    targets: str, parts: dict[str, Any], message: str, fix: str
) -> None:
    filled: dict[str, Any] = {key: text.format(targets) for key, text in parts.items()}
    component = Component(**{"name": "t", "target": f"{targets}:Target", "config": f"{targets}:Options", **filled})
    with pytest.raises(PluginFailed) as caught:
        Registry((plugin("mine", component),)).make("rewards", Use("t"))
    assert message in caught.value.message
    assert "plugin mine" in caught.value.message
    assert fix.format(targets) in caught.value.fix
    assert "\n" not in caught.value.message + caught.value.fix


def test_the_error_about_a_wrong_base_class_names_the_right_one(targets: str) -> None:
    other = Registry((plugin("a", Component("t", f"{targets}:Plain")),))
    with pytest.raises(PluginFailed, match=r"reward 't' .* does not derive from Reward") as caught:
        other.make("rewards", Use("t"))
    assert caught.value.fix == "from kernelrl_core.api.rewards import Reward, and derive Plain from it"
    options = Component("t", f"{targets}:Target", config="kernelrl_core.types:Task")
    with pytest.raises(PluginFailed, match=r"options of reward 't' .* do not derive from RewardConfig") as caught:
        Registry((plugin("a", options),)).make("rewards", Use("t"))
    assert caught.value.fix == "from kernelrl_core.api.rewards import RewardConfig, and derive Task from it"


@attrs.frozen
class Misspelt(Options):
    def need_timing(self) -> bool:
        return True


class MisspeltTarget(Target):
    def _helper(self) -> None: ...

    def aclose(self) -> None: ...


def test_an_unknown_method_is_reported_with_the_nearest_known_name(targets: str) -> None:
    component = Component("t", f"{targets}:MisspeltTarget", config=f"{targets}:Misspelt")
    assert Registry((plugin("a", component),)).unknown_methods("rewards", "t") == (
        "Misspelt.need_timing is not a method of RewardConfig; did you mean 'needs_timing'?",
        "MisspeltTarget.aclose is not a method of Reward; known: score",
    )
    assert configured(targets).unknown_methods("rewards", "t") == ()


def test_no_installed_component_has_an_unknown_method() -> None:
    unknown = []
    for plugin in registry().plugins:
        assert plugin.state == "ok", plugin.error
        for kind, components in plugin.components.items():
            for component in components:
                with contextlib.suppress(MissingPrerequisite):
                    unknown += registry().unknown_methods(kind, f"{plugin.name}:{component.name}")
    assert unknown == []


def test_missing_includes_requirements_of_the_declaration_and_of_the_options(targets: str) -> None:
    component = Component("t", f"{targets}:Target", requires=Requires(executables=("no-such-program",)))
    missing = Registry(()).missing(component, Options(7))
    assert [item.what for item in missing] == ["program no-such-program", "environment variable NO_SUCH_VARIABLE_7"]
    assert all(item.fix for item in missing)


def test_satisfied_requirements_are_not_listed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("A_KEY", "secret")
    program = tmp_path / "a-program"
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    needs = Requires(modules=("json", "os.path"), executables=("a-program",), environment=("A_KEY",))
    assert missing_requirements(needs) == ()


def test_an_empty_variable_counts_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "")
    assert missing_requirements(Requires(environment=("A_KEY",)))


def test_the_check_for_a_module_does_not_import_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "explosive_module.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert missing_requirements(Requires(modules=("explosive_module",))) == ()


def test_an_unreachable_server_is_missing_and_the_given_fix_is_shown() -> None:
    (missing,) = missing_requirements(Requires(url="http://127.0.0.1:9/", fix="kernelrl tinker-server"))
    assert missing.fix == "kernelrl tinker-server"


def test_a_file_that_does_not_exist_is_missing(tmp_path: Path) -> None:
    (missing,) = missing_requirements(Requires(files=(str(tmp_path), str(tmp_path / "index")), fix="build it"))
    assert (missing.what, missing.fix) == (f"file {tmp_path / 'index'}", "build it")


def test_a_slow_import_of_an_implementation_is_named_while_it_takes_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "_SLOW_IMPLEMENTATION_S", 0.02)
    monkeypatch.setattr(output, "_LOOK_EVERY_S", 0.01)
    # Ends when the line is there.
    code = "import sys, time\nwhile 'slow' not in sys.stderr.getvalue():\n    time.sleep(0.01)\nclass T: ...\n"
    (tmp_path / "crawling_module.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    Registry((plugin("a", Component("t", "crawling_module:T")),)).load("rewards", "t")
    assert "kernelrl: the import of reward 't' of plugin a has taken 0.02 s so far; " in capsys.readouterr().err


def test_the_registry_of_this_process_is_loaded_once() -> None:
    assert registry() is registry()
