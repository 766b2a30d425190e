"""The evaluator beside `local`: contract, equal results, and `kernelrl check` with a running service."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pytest
from kernelrl_command_server import CommandServer
from kernelrl_service_process import Service, Services

from kernelrl_core.api.backends import Example
from kernelrl_core.api.components import Use, component_block, registry
from kernelrl_core.api.episodes import load_recipe
from kernelrl_core.api.evaluators import Evaluation
from kernelrl_testing.contracts import EvaluatorContract
from kernelrl_testing.values import make_request

pytest.importorskip("kernelrl_service")
pytest.importorskip("kernelrl_plugin_local")
pytest.importorskip("triton")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A server with one real judge at a unix socket, as a user starts it."""
    directory = tmp_path_factory.mktemp("service")
    with CommandServer() as commands, Services(commands, directory, "evaluator.workers=1", fakes=False) as made:
        service = made.start(unix=directory / "s.sock")
        # All its processes run before a test that counts processes.
        asyncio.run(evaluated({"use": "http", "urls": [service.url]}))
        yield service


def example() -> Example:
    return registry().make("backends", Use("triton")).facts.example


class TestContract(EvaluatorContract):
    component = "http"
    backend = "triton"
    options: ClassVar[Mapping[str, Any]] = {}

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _of_service(cls, service: Service) -> None:
        cls.options = {"urls": [service.url]}


async def evaluated(block: Mapping[str, Any]) -> list[Evaluation]:
    """Evaluations of three kernels by an evaluator."""
    kernel, reference = example().kernel, example().reference
    sources = [kernel, kernel.replace("def ", "deff ", 1), kernel.replace("return ", "return 1 + ")]
    made = registry().make("evaluators", component_block("evaluator", block, registry()))
    await made.start()
    try:
        return [await made.evaluate(make_request(source, reference, "triton")) for source in sources]
    finally:
        await made.aclose()


def without_times(evaluation: Evaluation) -> Evaluation:
    facts = attrs.evolve(evaluation.facts, phases_s={})
    return attrs.evolve(evaluation, seconds={}, provenance={}, facts=facts)


def test_results_equal_those_of_local(service: Service) -> None:
    local = asyncio.run(evaluated({"use": "local", "workers": 1}))
    http = asyncio.run(evaluated({"use": "http", "urls": [service.url]}))
    assert list(map(without_times, http)) == list(map(without_times, local))
    assert [one.outcome.value for one in local] == ["correct", "compile_error", "incorrect"]


@pytest.fixture
def check(service: Service, tmp_path: Path, command_server: CommandServer) -> Callable[..., dict[str, Any]]:
    """`kernelrl check --json` of the example's kernel, by a service that the environment names."""
    (tmp_path / "example.py").write_text(example().reference)
    (tmp_path / "kernel.py").write_text(example().kernel)

    def run(*options: str, **variables: str) -> dict[str, Any]:
        words = ("check", "example.py", "kernel.py", "--json", *options)
        done = command_server.run(*words, cwd=tmp_path, env={**os.environ, **variables})
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return run


def test_check_uses_the_service_that_the_variable_names(service: Service, check: Callable[..., dict[str, Any]]) -> None:
    found = check(KERNELRL_SERVICE=service.url)
    assert (found["evaluator"], found["outcome"]) == ("http", "correct")
    assert found["provenance"]["server"] == service.url
    assert "interpreter" in found["reasons"]["speedup"]


def test_check_uses_the_socket_of_the_same_user(
    service: Service, check: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KERNELRL_SERVICE")
    own = tmp_path / f"kernelrl-{os.getuid()}"
    own.mkdir(mode=0o700)
    (own / "service.sock").hardlink_to(service.url.removeprefix("unix:"))
    assert check(TMPDIR=str(tmp_path))["evaluator"] == "http"


SERVED = """
import sys
from kernelrl_core.cli.served_check import served_check
code = served_check(sys.argv[1:])
heavy = [name for name in ("asyncio", "attrs", "click", "logging", "tempfile") if name in sys.modules]
print(heavy, file=sys.stderr)
sys.exit(9 if code is None else code)
"""


def served(service: Service, directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`kernelrl check` by the service alone; exit code 9: it leaves the check to the command."""
    environment = {**os.environ, "KERNELRL_SERVICE": service.url}
    return subprocess.run(
        [sys.executable, "-S", "-c", SERVED, "check", *words],
        cwd=directory,
        env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(("old", "new"), [("", ""), ("def ", "deff "), ("return ", "return 1 + "), ("triton", "torch")])
def test_the_service_alone_prints_what_the_command_prints(
    service: Service, command_server: CommandServer, tmp_path: Path, old: str, new: str
) -> None:
    (tmp_path / "example.py").write_text(example().reference)
    (tmp_path / "kernel.py").write_text(example().kernel.replace(old, new, 1))
    environment = {**os.environ, "KERNELRL_SERVICE": service.url}
    for options in (("--seed", "7"), ("--json", "--seed", "7")):
        words = ("example.py", "kernel.py", *options)
        whole = command_server.run("check", *words, cwd=tmp_path, env=environment)
        alone = served(service, tmp_path, *words)
        assert alone.returncode == whole.returncode, alone.stderr
        assert _comparable(alone.stdout) == _comparable(whole.stdout)
        # It imports little, which is its purpose.
        assert alone.stderr.endswith("[]\n")


def _comparable(printed: str) -> Any:
    """Printed text; an object without its durations."""
    if not printed.startswith("{"):
        return printed
    row = json.loads(printed)
    assert row.pop("seconds")
    return row


@pytest.mark.parametrize(
    "words",
    [
        ("example.py", "none.py"), ("example.py", "kernel.py", "-e", "local"), ("example.py", "kernel.py", "--watch"),
        ("example.py", "kernel.py", "kernel.py"), ("example.py", "kernel.py", "evaluation.trials=3"),
        ("none/1/none", "kernel.py"), ("example.py", "kernel.py", "-b", "none"), ("kernel.py",),
        ("empty.py", "kernel.py"), ("example.py", "own.py"), ("example.py", "kernel.cu"),
    ],
)  # fmt: skip
def test_whatever_the_service_does_not_do_is_left_to_the_command(
    service: Service, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "example.py").write_text(example().reference)
    (tmp_path / "kernel.py").write_text(example().kernel)
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "kernel.cu").write_text("")
    (tmp_path / "own.py").write_text(f"import mine\n{example().kernel}")
    done = served(service, tmp_path, *words)
    assert (done.returncode, done.stdout) == (9, "")


def test_a_task_of_others_is_confined_by_the_service_too(
    service: Service, check: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    spy = f"import os\nassert not os.path.exists({str(tmp_path)!r}), 'sees files'\n"
    task = tmp_path / "example.py"
    task.write_text(spy + task.read_text())
    assert check("--confine", KERNELRL_SERVICE=service.url)["outcome"] == "correct"


def test_an_evaluator_on_the_command_line_takes_precedence_over_the_service(
    service: Service, check: Callable[..., dict[str, Any]]
) -> None:
    assert check("-e", "local", KERNELRL_SERVICE=service.url)["evaluator"] == "local"


def test_a_named_service_that_does_not_respond_is_an_error_with_the_fix(
    tmp_path: Path, command_server: CommandServer
) -> None:
    (tmp_path / "example.py").write_text(example().reference)
    (tmp_path / "kernel.py").write_text(example().kernel)
    environment = {**os.environ, "KERNELRL_SERVICE": "unix:/nowhere"}
    done = command_server.run("check", "example.py", "kernel.py", cwd=tmp_path, env=environment)
    assert done.returncode == 3
    assert "no server of kernelrl serve responds: unix:/nowhere" in done.stderr
    assert "fix: start it with kernelrl serve" in done.stderr


def test_a_recipe_moves_from_local_to_http_by_one_line(service: Service, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"extends: quickstart\nevaluator: {{use: http, urls: [{service.url}]}}\n")
    loaded = load_recipe(str(recipe), registry=registry())
    assert loaded.recipe.evaluator.use == "http"
