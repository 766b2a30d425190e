"""Clusters that cannot be used: one error with its fix, exit code 3, before anything is sampled."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelrl_core.api.errors import InfrastructureError, MissingPrerequisite
from kernelrl_plugin_ray.connection import _explained, _start
from kernelrl_testing.core import main_module, requirements

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs the command line in an empty directory: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main_module.main(list(arguments))
        out, err = capsys.readouterr()
        assert isinstance(stop.value.code, int)
        return stop.value.code, out, err

    return run


def unused_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def test_a_cluster_that_does_not_respond_ends_a_run_with_3(call: Call) -> None:
    address = f"127.0.0.1:{unused_port()}"
    code, _, err = call("run", "smoke", "evaluator.use=ray", f"evaluator.address={address}", "--name", "one")
    assert code == 3
    assert f"no Ray cluster responds at {address}" in err
    assert "fix: start it on its head node: ray start --head" in err
    assert not Path("runs/one/samples.jsonl").exists() or not Path("runs/one/samples.jsonl").read_text()


class BusyMachine:
    """Replacement for the module `ray` on a machine on which a cluster starts late a few times."""

    def __init__(self, late: int, message: str = "The current node timed out during startup.") -> None:
        self.late = late
        self.message = message
        self.log: list[str] = []

    def init(self, **options: object) -> None:
        self.log.append("init")
        if self.log.count("init") <= self.late:
            raise Exception(self.message)

    def shutdown(self) -> None:
        self.log.append("shutdown")


def test_a_local_cluster_that_starts_late_is_started_again() -> None:
    machine = BusyMachine(late=2)
    _start(machine)
    assert machine.log == ["init", "shutdown", "init", "shutdown", "init"]


@pytest.mark.parametrize(("message", "starts"), [("timed out during startup", 4), ("no space left", 1)])
def test_a_local_cluster_that_does_not_start_ends_with_the_error_of_ray(message: str, starts: int) -> None:
    machine = BusyMachine(late=100, message=message)
    with pytest.raises(Exception, match=message):
        _start(machine)
    assert machine.log.count("init") == starts


def test_a_recipe_is_validated_and_planned_without_its_cluster(call: Call) -> None:
    address = "evaluator.address=no-such-host:6379"
    assert call("validate", "smoke", "evaluator.use=ray", address)[0] == 0
    assert call("run", "smoke", "evaluator.use=ray", address, "--dry-run")[0] == 0


def test_a_recipe_for_a_gpu_needs_none_here_if_a_cluster_is_elsewhere(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirements, "gpu_vendors", lambda: frozenset())
    Path("mine.yaml").write_text(
        "extends: smoke\nbackend: {use: cuda, mode: gpu}\npolicy: {warm_start: null}\n", encoding="utf-8"
    )
    here = call("run", "mine.yaml", "evaluator.use=ray", "--dry-run")
    elsewhere = call("run", "mine.yaml", "evaluator.use=ray", "evaluator.address=gpu-box:6379", "--dry-run")
    found = [(code, "missing: an NVIDIA GPU" in out + err) for code, out, err in (here, elsewhere)]
    assert found == [(0, True), (0, False)], here


def test_a_wrong_address_is_an_invalid_recipe(call: Call) -> None:
    code, _, err = call("validate", "smoke", "evaluator.use=ray", "evaluator.address=http://box")
    assert code == 2
    assert "write HOST:6379, ray://HOST:10001 or auto" in err


def test_doctor_reports_an_unreachable_cluster(call: Call) -> None:
    Path("mine.yaml").write_text(
        f"extends: smoke\nevaluator: {{use: ray, address: '127.0.0.1:{unused_port()}'}}\n", encoding="utf-8"
    )
    code, out, _ = call("doctor", "--recipe", "mine.yaml", "--json")
    row = json.loads(out)["checks"][-1] if code == 3 else {}
    found = [row for row in json.loads(out)["checks"] if row["state"] == "missing"]
    assert code == 3, row
    assert "no Ray cluster responds" in found[0]["detail"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Version mismatch: The cluster was started with: Ray: 2.40.0 Python: 3.12.1",
            "another version of Ray or Python",
        ),
        ("AuthenticationError: Token authentication failed", "refuses this client"),
        ("Failed to connect to GCS", "does not accept this client"),
    ],
)
def test_errors_of_a_connection_have_a_fix(text: str, expected: str) -> None:
    error = _explained("box:6379", RuntimeError(text), "2.60.0")
    assert isinstance(error, MissingPrerequisite)
    assert expected in error.message
    assert error.fix


def test_a_local_cluster_that_does_not_start_is_an_infrastructure_error() -> None:
    assert isinstance(_explained(None, RuntimeError("no space left"), "2.60.0"), InfrastructureError)
