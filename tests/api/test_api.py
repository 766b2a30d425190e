"""The public API: imported modules, exports, and the sample plugins of its documentation."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from kernelrl_core import api
from kernelrl_core.api.checkers import Severity
from kernelrl_core.api.evaluators import Outcome
from kernelrl_core.planning.load import recipe_from_mapping
from kernelrl_core.plugins.kinds import KINDS_BY_NAME
from kernelrl_core.plugins.loading import load_plugins
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.testing.contracts import CONTRACTS, ComponentContract, failures
from kernelrl_core.testing.values import make_candidate, make_request, make_task, make_turn

ROOT = Path(__file__).parents[2]
MODULES = ("kernelrl_core.api", *(f"kernelrl_core.api.{path.stem}" for path in Path(api.__path__[0]).glob("[a-z]*.py")))
LIGHT = tuple(name for name in MODULES if name.rpartition(".")[2] not in ("components", "episodes", "runs"))
PACKAGES = {"api", "errors", "interfaces", "sources", "storage", "types", "version"}
"""Packages and modules of the core that the modules `LIGHT` may load."""
KINDS = tuple(kind for kind in KINDS_BY_NAME if kind != "commands")


def test_the_api_has_a_module_for_each_kind() -> None:
    others = {"kernelrl_core.api", *(f"kernelrl_core.api.{name}" for name in ("components", "config", "episodes"))}
    others |= {f"kernelrl_core.api.{name}" for name in ("errors", "runs", "sources")}
    assert set(MODULES) - others == {KINDS_BY_NAME[kind].api for kind in KINDS}


def test_importing_the_api_loads_no_private_part_of_the_core_and_no_heavy_module() -> None:
    code = (
        "import importlib, json, sys\n"
        f"for name in {sorted(LIGHT)!r}:\n"
        "    importlib.import_module(name)\n"
        "    core = {found.split('.')[1] for found in sys.modules if found.startswith('kernelrl_core.')}\n"
        f"    print(json.dumps([name, sorted(core - {PACKAGES!r}), sorted({{'torch', 'numpy'}} & set(sys.modules))]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [[name, [], []] for name in sorted(LIGHT)]


@pytest.mark.parametrize("name", MODULES)
def test_a_module_of_the_api_has_a_docstring_and_a_sorted_list_of_exports(name: str) -> None:
    module = importlib.import_module(name)
    assert (module.__doc__ or "").strip()
    exported = list(module.__all__)
    # The linter's order: constants, classes, functions.
    assert exported == sorted(exported, key=lambda text: (not text.isupper(), not text[0].isupper(), text))
    assert len(exported) == len(set(exported))
    assert [name for name in exported if not hasattr(module, name)] == []


JUDGE = """#!{python}
import json, sys
request = json.load(sys.stdin)
json.dump({{"outcome": "incorrect", "message": request["task_id"]}}, sys.stdout)
"""


def load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("plugin_pages", ROOT / "scripts/plugin_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGES = load_generator()


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Registry]]:
    """Installs and loads the sample plugin of a kind."""

    def install(kind: str) -> Registry:
        for path, text in PAGES.sample_plugin(kind).items():
            (tmp_path / path).parent.mkdir(exist_ok=True)
            (tmp_path / path).write_text(text)
        info = tmp_path / "my_plugin-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my_plugin\nVersion: 1\n")
        (info / "entry_points.txt").write_text("[kernelrl]\nmy_plugin = my_plugin\n")
        monkeypatch.syspath_prepend(tmp_path)
        return Registry(load_plugins({"KERNELRL_PLUGINS": "my_plugin"}))

    yield install
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_plugin"]:
        del sys.modules[name]


def exercise(kind: str, made: Any, folder: Path) -> None:
    """Check return values of the sample that its contract does not check. No candidate is loaded."""
    task = make_task()
    turn = make_turn(Outcome.COMPILE_ERROR, source=None, message="no such name")
    if kind == "rewards":
        assert made.score(turn) == 0.0
        assert made.score(make_turn(Outcome.CORRECT, source="x" * 1000)) == 0.75
    elif kind == "checkers":
        (finding,) = made.check(make_candidate("import time\ntime.sleep(1)\n"), task, None)
        assert (finding.rule, finding.severity, finding.line) == (made.rules[0].id, Severity.SUSPECT, 2)
    elif kind == "feedback":
        assert made.format(turn) == "compile_error: no such name"
        assert made.format(make_turn(Outcome.CORRECT)) == "Correct."
    elif kind == "retrievers":
        assert [example.name for example in made.search(task, "triton")] == ["relu_sum", "add"]
    elif kind == "tasks":
        tasks = [task for split in made.splits() for task in made.tasks(split)]
        assert [task.id for task in tasks] == ["elementwise/sin", "elementwise/cos", "elementwise/tanh"]
        assert "torch.sin(x)" in tasks[0].reference
    elif kind == "backends":
        facts = made.source_facts("@cuda.jit\ndef add(x):\n    pass\n")
        assert [(kernel.name, kernel.line) for kernel in facts.kernels] == [("add", 1)]
        module, _, attribute = made.runner.partition(":")
        runner = getattr(importlib.import_module(module), attribute)()
        assert [runner.mode({}, has_gpu) for has_gpu in (True, False)] == ["gpu", "compile"]
    elif kind == "loggers":
        made.start(folder, {}, 0)
        made.step({"step": 0, "reward/mean": 0.5})
        made.finish("finished")
        assert (folder / "reward.csv").read_text() == "0,0.5\n"
    elif kind == "advantages":
        assert made([[1.0, 2.0], [0.0], [1.0]]) == [[0.0, 1.0], [-1.0], [0.0]]
    elif kind == "evaluators":
        assert made.identity() == str(folder / "judge")
        (folder / "judge").write_text(JUDGE.format(python=sys.executable))
        (folder / "judge").chmod(0o755)
        found = asyncio.run(made.evaluate(make_request()))
        assert (found.outcome, found.message) == (Outcome.INCORRECT, "task")


@pytest.mark.parametrize("kind", KINDS)
def test_the_sample_plugin_of_a_kind_works(installed: Callable[[str], Registry], tmp_path: Path, kind: str) -> None:
    registry = installed(kind)
    (plugin,) = [plugin for plugin in registry.plugins if plugin.state != "disabled"]
    assert (plugin.state, plugin.error) == ("ok", "")
    ((offered, (component,)),) = plugin.components.items()
    assert offered == kind
    # The sample evaluator starts a program that does not exist, so only the tests of all kinds are run for it.
    base = ComponentContract if kind == "evaluators" else CONTRACTS[kind]
    options = {"command": str(tmp_path / "judge")} if kind == "evaluators" else {}
    named = {"kind": kind, "component": component.name, "options": options, "registry": lambda self: registry}
    contract = type("Sample", (base,), named)()
    (tmp_path / "contract").mkdir()
    assert failures(contract, tmp_path / "contract") == {}
    exercise(kind, contract.make(), tmp_path)


BLOCKS = {
    "tasks": {"use": "starter"},
    "backend": {"use": "triton"},
    "policy": {"use": "torch", "warm_start": None},
    "rewards": {"correct": {"use": "correctness"}},
    "checkers": {"source": {"use": "source_rules"}},
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_sample_recipe_of_a_kind_selects_its_component(installed: Callable[[str], Registry], kind: str) -> None:
    installed(kind)
    blocks = {**BLOCKS, **yaml.safe_load(PAGES.sample_recipe(kind))}
    recipe = recipe_from_mapping(blocks, registry=Registry(load_plugins({})), name="sample").recipe
    name = PAGES.sample_component(kind)
    assert name in str(recipe)
