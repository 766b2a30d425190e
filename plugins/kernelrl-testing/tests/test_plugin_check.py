"""`kernelrl plugins check`: contracts of all components of a plugin, one line with the fix per breach."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kernelrl_core.errors import UsageError
from kernelrl_core.plugins import registry as registries
from kernelrl_core.plugins.loading import load_plugins
from kernelrl_core.plugins.registry import Registry
from kernelrl_testing.check_command import command
from kernelrl_testing.contracts import RewardContract, base

GUIDE = Path(__file__).parents[3] / "docs/plugins.md"
HOOKS = "from kernelrl_core.api import Component, Requires, hookimpl\n"
HASTY = {
    "__init__.py": """
        @hookimpl
        def kernelrl_rewards():
            return [Component("fast", "demo_hasty.parts:Fast", config="demo_hasty.parts:FastConfig")]

        @hookimpl
        def kernelrl_checkers():
            return [Component("loops", "demo_hasty.parts:Loops")]

        @hookimpl
        def kernelrl_feedback():
            return [Component("log", "demo_hasty.parts:Log")]

        @hookimpl
        def kernelrl_advantages():
            return [Component("centred", "demo_hasty.parts:centred")]

        @hookimpl
        def kernelrl_loggers():
            return [Component("remote", "demo_hasty.parts:Remote")]
    """,
    "parts.py": """
        import time

        import attrs

        from kernelrl_core.api.checkers import Checker, Finding, Rule, Severity
        from kernelrl_core.api.feedback import Feedback
        from kernelrl_core.api.loggers import Logger
        from kernelrl_core.api.rewards import Reward, RewardBounds, RewardConfig

        @attrs.frozen
        class FastConfig(RewardConfig):
            def bounds(self):
                return RewardBounds(low=0.0, high=10.0, gap=0.0)

            def needs_timing(self):
                return True

        class Fast(Reward):
            def __init__(self, config):
                pass

            def score(self, turn):
                return turn.speedup or 0.0

        class Loops(Checker):
            rules = (Rule("loop", Severity.NOTE, "Do not loop in Python."),)

            def check(self, candidate, task, evaluation):
                return [Finding("loops", Severity.NOTE, "a loop")] if "long" in candidate.source else []

        class Log(Feedback):
            def format(self, turn):
                return turn.evaluation.detail[:500] if turn.evaluation is not None else turn.message[:500]

        def centred():
            def estimate(returns):
                values = [value for episode in returns for value in episode]
                mean = sum(values) / len(values)
                scale = float(min(values) < max(values))
                return [[scale * (mean - value) for value in episode] for episode in returns]
            return estimate

        class Remote(Logger):
            def step(self, metrics):
                time.sleep(0.25)
    """,
}
"""A plugin with five faults: a score above its bounds, an undeclared rule, the log of the judge in the feedback, the
wrong sign of an advantage, and a logger that waits."""

Check = Callable[..., Result]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Check]:
    """Writes a plugin in the layout that pip installs, and checks it."""
    monkeypatch.syspath_prepend(tmp_path)

    def run(
        name: str, files: dict[str, str], *arguments: str, depends: str = "kernelrl>=0.1,<0.2", others: str = ""
    ) -> Result:
        for path, text in files.items():
            target = tmp_path / f"demo_{name}" / path
            target.parent.mkdir(exist_ok=True)
            target.write_text((HOOKS if path == "__init__.py" else "") + textwrap.dedent(text))
        info = tmp_path / f"demo_{name}-1.5.dist-info"
        info.mkdir()
        requires = f"Requires-Dist: {depends}\n" if depends else ""
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: demo-{name}\nVersion: 1.5\n{requires}")
        (info / "entry_points.txt").write_text(f"[kernelrl]\n{name} = demo_{name}\n")
        found = Registry(load_plugins({"KERNELRL_PLUGINS": f"{name},{others}"}))
        monkeypatch.setattr(registries, "registry", lambda: found)
        return CliRunner().invoke(command, [name, *arguments])

    yield run
    for module in [module for module in sys.modules if module.startswith("demo_")]:
        del sys.modules[module]


def test_the_guide_shows_the_breaches_of_a_plugin_with_five_faults(check: Check) -> None:
    done = check("hasty", HASTY)
    assert done.exit_code == 1
    shown = re.search(r"\$ kernelrl plugins check hasty\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert shown is not None
    assert without_times(done.stdout) == without_times(shown[1])
    lines = done.stdout.splitlines()
    assert [line.partition(": FAILS")[0] for line in lines] == [
        "rewards: fast", "checkers: loops", "feedback: log", "advantages: centred", "loggers: remote",
    ]  # fmt: skip
    assert all("; fix: " in line for line in lines)
    assert done.stderr == ""


def without_times(text: str) -> str:
    return re.sub(r"\d+ ms", "N ms", text)


def reward(body: str = "return 0.5", config: str = "") -> dict[str, str]:
    parts = f"""
        import attrs
        from kernelrl_core.api.rewards import Reward, RewardBounds, RewardConfig

        @attrs.frozen
        class Config(RewardConfig):
            {config or "limit: int = 3"}
            def bounds(self):
                return RewardBounds(low=0.0, high=1.0, gap=-1.0)

        class Half(Reward):
            def __init__(self, config):
                self.config = config

            def score(self, turn):
                {body}
    """
    hook = """
        @hookimpl
        def kernelrl_rewards():
            return [Component("half", "demo_{0}.parts:Half", config="demo_{0}.parts:Config")]
    """
    return {"__init__.py": hook, "parts.py": parts}


def named(name: str, files: dict[str, str]) -> dict[str, str]:
    return {path: text.replace("{0}", name) for path, text in files.items()}


def test_a_component_that_fulfils_its_contract_passes(check: Check) -> None:
    done = check("sound", named("sound", reward()))
    assert (done.exit_code, done.output) == (0, "rewards: half: passes\n")


@pytest.mark.parametrize(
    "body",
    ["import time; time.sleep(60)", "import re; return float(bool(re.match('(a|a)*$', 'a' * 60 + 'b')))"],
    ids=["sleep", "pattern"],
)
def test_a_test_that_does_not_end_is_named_with_the_line(
    check: Check, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RewardContract, "limit_s", 0.2)
    monkeypatch.setattr(base, "_tests", lambda cls: ["test_scores_are_finite_and_within_bounds"])
    done = check("endless", named("endless", reward(body)))
    assert done.exit_code == 1
    assert "FAILS: test_scores_are_finite_and_within_bounds does not end within 0.2 s" in done.output


def test_output_of_a_component_is_not_in_the_result(check: Check) -> None:
    done = check("chatty", named("chatty", reward("print('hello'); return 0.5")))
    assert done.stdout == "rewards: half: passes\n"


def test_an_exit_of_a_component_is_a_breach(check: Check) -> None:
    done = check("exits", named("exits", reward("raise SystemExit(3)")))
    assert done.exit_code == 1
    assert "SystemExit: 3 (demo_exits/parts.py:" in done.output


def test_an_option_without_default_is_named(check: Check) -> None:
    done = check("wants", named("wants", reward("return float(self.config.limit)", config="limit: int")))
    assert done.exit_code == 0
    assert done.output.splitlines() == [
        "rewards: half: passes",
        "rewards: half: not tested: the tests of its behaviour need options: no value for limit; "
        "fix: kernelrl plugins check wants half.limit=VALUE",
    ]


def test_given_options_reach_the_component(check: Check) -> None:
    files = named("given", reward("return float(self.config.limit)", config="limit: int"))
    done = check("given", files, "half.limit=2")
    assert "is 2.0, outside of bounds() from 0 to 1; fix: " in done.output


def test_check_options_are_the_options_of_the_check(check: Check) -> None:
    config = 'check_options = {"limit": 2}\n            limit: int'
    done = check("own", named("own", reward("return float(self.config.limit)", config=config)))
    assert "is 2.0, outside of bounds()" in done.output


@pytest.mark.parametrize(("given", "message"), [("haf.limit=2", "did you mean 'half'?"), ("half=2", "names no option")])
def test_options_of_nothing_are_refused(check: Check, given: str, message: str) -> None:
    done = check("sound", named("sound", reward()), given)
    assert isinstance(done.exception, UsageError)
    assert message in str(done.exception)


def test_only_the_cause_is_reported(check: Check) -> None:
    files = named("misspelt", reward())
    files["parts.py"] = files["parts.py"].replace("def score(", "def scores(")
    done = check("misspelt", files)
    assert done.stdout == (
        "rewards: half: FAILS: Half.scores is not a method of Reward; did you mean 'score'?; "
        "fix: rename it, or begin its name with '_'\n"
    )


def test_a_name_in_use_is_a_breach_of_the_newcomer(check: Check) -> None:
    files = {path: text.replace('"half"', '"speedup"') for path, text in named("late", reward()).items()}
    done = check("late", files, others="rewards")
    assert done.stdout == (
        "rewards: speedup: FAILS: the name is in use: plugin rewards has a reward 'speedup', too; "
        "fix: rename it; until then recipes must write late:speedup\n"
    )


def test_a_command_with_the_name_of_one_of_the_core_is_a_breach(check: Check) -> None:
    hook = "@hookimpl\ndef kernelrl_commands():\n    return [Component('run', 'demo_runs.parts:run', summary='Run.')]\n"
    parts = "import click\n\n@click.command('run')\ndef run():\n    '''Run.'''\n"
    done = check("runs", {"__init__.py": hook, "parts.py": parts})
    assert done.stdout == (
        "commands: run: FAILS: the name is in use: kernelrl has a command 'run'; "
        "fix: rename it; until then it is called with: kernelrl runs:run\n"
    )


def test_a_plugin_without_component_or_pin_is_a_breach(check: Check) -> None:
    done = check("bare", {"__init__.py": ""}, depends="")
    assert done.exit_code == 1
    assert done.stdout.splitlines() == [
        "plugin bare: FAILS: the plugin has no component; fix: define a hook such as "
        "`@hookimpl def kernelrl_rewards()`, which returns a list of Component",
        "plugin bare: FAILS: demo-bare does not depend on kernelrl; fix: "
        'add dependencies = ["kernelrl>=0.1,<0.2"] to pyproject.toml, and install it again',
    ]


def test_a_broken_plugin_is_a_breach_with_its_fix(check: Check) -> None:
    done = check("old", {"__init__.py": ""}, depends="kernelrl<0.1")
    assert done.stdout == (
        "plugin old: FAILS: broken: demo-old 1.5 needs kernelrl<0.1; this is kernelrl 0.1.0; "
        "fix: pip install --upgrade demo-old\n"
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("print('hello')", "importing demo_odd and demo_odd.parts prints 'hello'; fix: remove the output"),
        (
            "raise SystemExit(4)",
            "cannot import the reward 'half': SystemExit: 4; fix: in the plugin, remove",
        ),
        ("import numpy", "importing demo_odd or demo_odd.parts loads numpy; fix: import numpy where it is used"),
        (
            "import no_such_module",
            "No module named 'no_such_module'; fix: install the package that provides the module ",
        ),
    ],
)
def test_an_odd_import_is_a_breach(check: Check, line: str, message: str) -> None:
    files = named("odd", reward())
    files["parts.py"] = f"{line}\n{textwrap.dedent(files['parts.py'])}"
    done = check("odd", files)
    assert done.exit_code == 1
    assert message in done.output
