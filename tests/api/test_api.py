"""The public API: what importing it loads, what it exports, and the sample plugins of its documentation."""

from __future__ import annotations

import asyncio
import importlib
import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from value_builders import make_turn

from kernelrl_core import api
from kernelrl_core.api.backends import BackendRunner
from kernelrl_core.api.checkers import Candidate, Severity
from kernelrl_core.api.evaluators import EvaluationRequest, EvaluationSettings, Outcome
from kernelrl_core.api.policies import (
    Loss,
    LossSample,
    Message,
    OptimizerSettings,
    PolicyContext,
    SamplingSettings,
    TrainablePolicy,
    Update,
)
from kernelrl_core.api.tasks import Task
from kernelrl_core.plugins.kinds import KINDS_BY_NAME
from kernelrl_core.plugins.loading import load_plugins
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.plugins.use import Use
from kernelrl_core.types import Extraction

MODULES = ("kernelrl_core.api", *(f"kernelrl_core.api.{path.stem}" for path in Path(api.__path__[0]).glob("[a-z]*.py")))
LIGHT = tuple(name for name in MODULES if name.rpartition(".")[2] not in ("components", "episodes"))
PACKAGES = {"api", "errors", "interfaces", "sources", "storage", "types", "version"}
"""Packages and modules of the core that the light part of the API may load."""
KINDS = tuple(kind for kind in KINDS_BY_NAME if kind != "commands")


def test_the_api_has_a_module_for_each_kind() -> None:
    others = {"kernelrl_core.api", *(f"kernelrl_core.api.{name}" for name in ("components", "config", "episodes"))}
    others |= {f"kernelrl_core.api.{name}" for name in ("errors", "sources")}
    assert set(MODULES) - others == {KINDS_BY_NAME[kind].api for kind in KINDS}


def test_importing_the_api_loads_neither_the_rest_of_the_core_nor_anything_heavy() -> None:
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
def test_a_module_of_the_api_is_documented_and_lists_what_it_exports(name: str) -> None:
    module = importlib.import_module(name)
    assert (module.__doc__ or "").strip()
    exported = list(module.__all__)
    # As the linter sorts: constants, classes, functions.
    assert exported == sorted(exported, key=lambda text: (not text.isupper(), not text[0].isupper(), text))
    assert len(exported) == len(set(exported))
    assert [name for name in exported if not hasattr(module, name)] == []


REQUEST = EvaluationRequest("t", "class Model: ...", "0", "x", "1", "triton", {}, EvaluationSettings(), "00", "0.1")
JUDGE = """#!{python}
import json, sys
request = json.load(sys.stdin)
json.dump({{"outcome": "incorrect", "message": request["task_id"]}}, sys.stdout)
"""


def sample_plugin(kind: str) -> dict[str, str]:
    """Path -> text of the files in the documentation of a kind: blocks indented by 4 that begin with their path."""
    files: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in (importlib.import_module(KINDS_BY_NAME[kind].module).__doc__ or "").splitlines():
        if line.strip() and not line.startswith("    "):
            lines = []
        elif path := re.fullmatch(r"    # (my_plugin/\w+\.py)", line):
            lines = files.setdefault(path[1], [])
        else:
            lines.append(line[4:])
    return {path: "\n".join(text).strip() + "\n" for path, text in files.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_the_guide_for_authors_shows_the_sample_plugin(kind: str) -> None:
    page = (Path(__file__).parents[2] / "docs/plugins.md").read_text()
    for path, text in sample_plugin(kind).items():
        shown = textwrap.indent(f"# {path}\n{text}", "    ")
        # The entry point is shown once.
        assert shown in page or (path == "my_plugin/__init__.py" and kind != "rewards"), path


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Registry]]:
    """Installs the sample plugin of a kind and loads it like any other."""

    def install(kind: str) -> Registry:
        for path, text in sample_plugin(kind).items():
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


async def use_policy(policy: TrainablePolicy, folder: Path) -> None:
    said: list[str] = []

    async def demonstrations() -> tuple[()]:
        return ()

    await policy.start(PolicyContext(0, folder, None, demonstrations, "", said.append))
    prompt = policy.render([Message("user", "write")])
    assert prompt.tokens
    assert len(prompt.tokens) < policy.context_tokens
    settings = SamplingSettings(max_tokens=5, temperature=1.0, top_p=1.0, top_k=-1, stop=(), seed=1)
    reply = await policy.sample(prompt, settings)
    assert reply == await policy.sample(prompt, settings)
    assert 0 < len(reply.tokens) == len(reply.logprobs) <= 5
    assert reply.text
    sample = LossSample("0.0.0.0", prompt.tokens, reply.tokens, reply.logprobs, (0.5,) * len(reply.tokens))
    loss, optimizer = Loss("ppo", 0.2, 0.2), OptimizerSettings(1e-3, 0.9, 0.95, 1e-8, 0.0, None)
    assert loss.name in policy.capabilities.losses
    assert await policy.update(Update(0, ((sample,),), (), loss, optimizer)) == {"loss": -0.5 * len(reply.tokens)}
    await policy.load(await policy.save(folder), folder)
    await policy.aclose()


def exercise(kind: str, made: Any, folder: Path) -> None:
    """Call every method that the sample implements. Nothing loads a candidate."""
    task = Task("t", "class Model: ...")
    turn = make_turn(Outcome.COMPILE_ERROR, message="no such name")
    if kind == "rewards":
        assert made.score(turn) == 0.0
        short = Extraction(Candidate("x" * 1000, "triton"))
        assert made.score(make_turn(Outcome.CORRECT, extraction=short)) == 0.75
    elif kind == "checkers":
        (finding,) = made.check(Candidate("import time\ntime.sleep(1)\n", "triton"), task, None)
        assert (finding.rule, finding.severity, finding.line) == (made.rules[0].id, Severity.SUSPECT, 2)
    elif kind == "feedback":
        assert made.format(turn) == "compile_error: no such name"
        assert made.format(make_turn(Outcome.CORRECT)) == "Correct."
    elif kind == "retrievers":
        assert [example.name for example in made.search(task, "triton")] == ["relu_sum", "add"]
        assert not made.state()
    elif kind == "tasks":
        tasks = [task for split in made.splits() for task in made.tasks(split)]
        assert [task.id for task in tasks] == ["elementwise/sin", "elementwise/cos", "elementwise/tanh"]
        assert "torch.sin(x)" in tasks[0].reference
        assert json.loads(json.dumps(made.manifest()))
        assert made.demonstrations(tasks[0]) == ()
    elif kind == "backends":
        facts = made.source_facts("@cuda.jit\ndef add(x):\n    pass\n")
        assert [(kernel.name, kernel.line) for kernel in facts.kernels] == [("add", 1)]
        assert made.facts.example.kernel.startswith("class ModelNew")
        module, _, attribute = made.runner.partition(":")
        runner = getattr(importlib.import_module(module), attribute)()
        assert isinstance(runner, BackendRunner)
        assert [runner.mode({}, has_gpu) for has_gpu in (True, False)] == ["gpu", "compile"]
    elif kind == "policies":
        asyncio.run(use_policy(made, folder))
    elif kind == "loggers":
        made.start(folder, {}, 0)
        made.step({"step": 0, "reward/mean": 0.5})
        made.finish("finished")
        assert (folder / "reward.csv").read_text() == "0,0.5\n"
    elif kind == "advantages":
        assert made([[1.0, 2.0], [0.0], [1.0]]) == [[0.0, 1.0], [-1.0], [0.0]]
    else:
        assert kind == "evaluators"
        assert made.capacity >= 1
        assert made.identity() == str(folder / "judge")
        (folder / "judge").write_text(JUDGE.format(python=sys.executable))
        (folder / "judge").chmod(0o755)
        found = asyncio.run(made.evaluate(REQUEST))
        assert (found.outcome, found.message) == (Outcome.INCORRECT, "t")


@pytest.mark.parametrize("kind", KINDS)
def test_the_sample_plugin_of_a_kind_works(installed: Callable[[str], Registry], tmp_path: Path, kind: str) -> None:
    registry = installed(kind)
    (plugin,) = [plugin for plugin in registry.plugins if plugin.state != "disabled"]
    assert (plugin.state, plugin.error) == ("ok", "")
    ((offered, (component,)),) = plugin.components.items()
    assert offered == kind
    assert registry.unknown_methods(kind, component.name) == ()
    config = registry.config_class(kind, component.name)
    options = config(command=str(tmp_path / "judge")) if kind == "evaluators" else config()
    assert list(options.problems()) == []
    if kind == "rewards":
        assert options.bounds().low <= 0.0 < options.bounds().high
    exercise(kind, registry.make(kind, Use(component.name, options)), tmp_path)
