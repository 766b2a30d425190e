"""Every failure of a command is a line and an exit code, never a traceback."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import pytest
from kernelrl_command_server import CommandServer

from kernelrl_core.cli import main as main_module
from kernelrl_core.cli.doctor import _lines
from kernelrl_core.errors import KernelRLError, MissingPrerequisite, UsageError
from kernelrl_core.plugins.registry import registry

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


def failing_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def main(arguments: Sequence[str], **_: object) -> None:
        raise error

    monkeypatch.setattr(main_module.cli, "main", main)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["valdate"], "no command 'valdate'; did you mean 'validate'?"),
        (["plugins", "list", "--jsn"], "--json"),
        (["validate"], "RECIPE"),
        (["validate", "quikstart"], "did you mean 'quickstart'?"),
        (["plugins", "show", "torhc"], "did you mean 'torch'?"),
        (["validate", "quickstart", "train.group_sise=3"], "did you mean 'group_size'?"),
        (["recipes", "show", "quickstart", "seed=1"], "--resolved"),
    ],
)
def test_a_mistake_in_the_arguments_gets_the_nearest_right_word_and_exit_code_2(
    call: Call, arguments: list[str], message: str
) -> None:
    code, out, err = call(*arguments)
    assert code == 2
    assert message in err
    assert all(line.startswith("kernelrl: ") for line in err.splitlines())
    assert out == ""


MORE = "kernelrl: more: kernelrl explain"


@pytest.mark.parametrize(
    ("arguments", "distribution"),
    [
        (["modal", "status"], "kernelrl-plugin-modal"),
        (["lab"], "kernelrl-lab"),
        (["plugins", "show", "hip"], "kernelrl-plugin-hip"),
        (["plugins", "check", "kernelrl-report"], "kernelrl-testing"),
    ],
)
def test_a_command_or_plugin_that_is_not_installed_gets_its_install_command(
    call: Call, monkeypatch: pytest.MonkeyPatch, arguments: list[str], distribution: str
) -> None:
    monkeypatch.setattr("kernelrl_core.plugins.registry.load_plugins", lambda: ())
    registry.cache_clear()
    try:
        code, out, err = call(*arguments)
    finally:
        registry.cache_clear()
    assert (code, out) == (3, "")
    assert f"{distribution} is not installed\nkernelrl: fix: pip install {distribution}\n" in err


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (
            UsageError("no such file", fix="write it"),
            2,
            f"kernelrl: no such file\nkernelrl: fix: write it\n{MORE} arguments\n",
        ),
        (MissingPrerequisite("no GPU"), 3, "kernelrl: no GPU\n"),
        (KernelRLError("the run failed"), 1, "kernelrl: the run failed\n"),
        (KeyboardInterrupt(), 130, "kernelrl: interrupted\n"),
        (click.Abort(), 130, "kernelrl: interrupted\n"),
        (
            ValueError("a\nb"),
            1,
            f"kernelrl: ValueError: a b\nkernelrl: fix: rerun with --debug for the traceback\n{MORE} internal-error\n",
        ),
    ],
)
def test_each_sort_of_failure_has_its_exit_code_and_no_traceback(
    call: Call, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, message: str
) -> None:
    failing_with(error, monkeypatch)
    assert call("status") == (code, "", message)


@pytest.mark.parametrize(
    ("error", "expected"), [(ValueError("x"), 1), (UsageError("x"), 2), (MissingPrerequisite("x"), 3)]
)
def test_debug_anywhere_shows_the_traceback_and_keeps_the_exit_code(
    call: Call, monkeypatch: pytest.MonkeyPatch, error: BaseException, expected: int
) -> None:
    failing_with(error, monkeypatch)
    code, out, err = call("status", "--debug")
    assert (code, out) == (expected, "")
    assert "Traceback (most recent call last)" in err


def test_a_kernel_of_another_backend_gets_a_hint() -> None:
    from kernelrl_core.environment.turn_text import backend_note
    from kernelrl_core.recipe.evaluation_spec import read_evaluation_spec
    from kernelrl_core.types import Candidate, Extraction, Outcome
    from kernelrl_testing.values import make_turn

    source = "import triton\n\n\n@triton.jit\ndef k(x):\n    pass\n\n\nclass ModelNew:\n    pass\n"
    turn = make_turn(Outcome.REJECTED, extraction=Extraction(Candidate(source, "cuda")))
    spec = read_evaluation_spec({"backend": {"use": "cuda"}}, registry=registry())
    assert backend_note(turn, spec, registry()).endswith("try -b triton")
    spec = read_evaluation_spec({"backend": {"use": "triton"}}, registry=registry())
    assert backend_note(turn, spec, registry()) == ""


def test_doctor_and_run_report_a_missing_clone(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBENCH_ROOT", "/nonexistent")
    code, out, _ = call("doctor", "--recipe", "kevin")
    assert code == 3
    assert "kernelbench: no clone of KernelBench at /nonexistent" in out
    code, _, err = call("run", "kevin")
    assert code == 3
    assert "missing: kernelbench: no clone of KernelBench at /nonexistent" in err
    assert call("run", "kevin", "--dry-run")[1].count("no clone of KernelBench") == 1


def test_help_lists_every_command_and_imports_none(call: Call) -> None:
    code, out, _ = call("-h")
    assert code == 0
    assert all(f"  {name} " in out for name in main_module.COMMANDS)


@pytest.mark.parametrize("name", sorted(main_module.COMMANDS))
def test_every_command_has_help(call: Call, name: str) -> None:
    code, out, _ = call(name, "--help")
    assert code == 0
    assert out.startswith(f"Usage: kernelrl {name}")


def test_dotenv_is_read_and_never_overrides(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(".env").write_text("KERNELRL_TEST_A=file\nKERNELRL_TEST_B=file\n")
    monkeypatch.setenv("KERNELRL_TEST_A", "shell")
    monkeypatch.setenv("KERNELRL_TEST_B", "")
    monkeypatch.delenv("KERNELRL_TEST_B")
    call("--version")
    assert (os.environ["KERNELRL_TEST_A"], os.environ["KERNELRL_TEST_B"]) == ("shell", "file")
    monkeypatch.delenv("KERNELRL_TEST_B")


def test_a_binary_dotenv_is_named(call: Call) -> None:
    Path(".env").write_bytes(b"\xff\xfe\x00A=1")
    code, _, err = call("--version")
    assert code == 2
    assert ".env cannot be read" in err


@pytest.mark.parametrize("more", ["'--json'", ""], ids=["json", "table"])
def test_starting_imports_nothing_heavy(more: str) -> None:
    code = (
        "import sys, contextlib, io\n"
        "from kernelrl_core.cli.main import main\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n"
        f"    main(['plugins', 'list', {more}])\n"
        "print(sorted({'torch', 'numpy', 'triton', 'cattrs', 'jinja2', 'asyncio', 'rich'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_closed_output_pipe_is_no_failure(unbuffered: str) -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    command = [sys.executable, "-c", "from kernelrl_core.cli.main import main; main()", "schema"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, bufsize=0, env=environment) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1) == b"{"
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()
        assert process.wait() == 0


def test_an_interrupt_ends_with_130() -> None:
    code = (
        "import os, signal\n"
        # A background process of a shell ignores SIGINT.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from kernelrl_core.cli import main as m\n"
        f"m.cli.main = lambda *a, **k: os.kill(os.getpid(), {int(signal.SIGINT)}) or __import__('time').sleep(9)\n"
        "m.main(['status'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "kernelrl: interrupted\n")


# --- plugins, recipes, validate, schema, doctor ---


def test_plugins_list_as_json_has_the_agreed_shape(call: Call) -> None:
    code, out, _ = call("plugins", "list", "--json")
    rows = json.loads(out)["plugins"]
    assert code == 0
    assert all(list(row) == ["name", "dist", "version", "state", "error", "components"] for row in rows)
    core = next(row for row in rows if row["name"] == "core")
    assert core["components"][0] == {
        "kind": "advantages",
        "name": "grpo",
        "summary": "Return minus group mean, divided by the group's standard deviation",
    }


def test_plugins_show_describes_options_with_their_sentences(call: Call) -> None:
    _, out, _ = call("plugins", "show", "core", "--json")
    option = json.loads(out)["components"][0]["options"][0]
    assert (option["name"], option["default"]) == ("std", "population")
    assert option["help"].startswith("Divisor of R - mean")
    assert "Divisor of R - mean" in call("plugins", "show", "core")[1]


def test_a_broken_plugin_is_listed_shown_with_its_traceback_and_harmless(
    tmp_path: Path, command_server: CommandServer
) -> None:
    (tmp_path / "demo_broken.py").write_text("import a_module_that_is_not_there\n")
    info = tmp_path / "demo_broken-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: demo-broken\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[kernelrl]\nfaulty = demo_broken\n")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return command_server.run(*arguments, cwd=Path.cwd(), env={**os.environ, "PYTHONPATH": str(tmp_path)})

    listed = run("plugins", "list")
    assert listed.returncode == 0
    assert "BROKEN: ModuleNotFoundError: No module named 'a_module_that_is_not_there'" in listed.stdout
    assert "demo_broken.py" in run("plugins", "show", "faulty").stdout
    assert run("validate", "quickstart").stdout == "quickstart: ok\n"
    used = run("validate", "quickstart", "policy={use: 'faulty:x'}")
    assert used.returncode == 3
    assert "No module named 'a_module_that_is_not_there'" in used.stderr
    assert "kernelrl plugins show faulty" in used.stderr
    assert "Traceback" not in used.stderr


def test_recipes_are_listed_with_their_summaries(call: Call) -> None:
    rows = json.loads(call("recipes", "list", "--json")[1])["recipes"]
    assert {"quickstart", "smoke", "stage1"} <= {row["name"] for row in rows}
    assert all(row["summary"] for row in rows)


def test_a_resolved_recipe_can_be_used_as_it_is(call: Call) -> None:
    Path("saved.yaml").write_text(call("recipes", "show", "stage1", "--resolved", "train.steps=5")[1])
    assert call("validate", "saved.yaml")[:2] == (0, "saved: ok\n")
    shown = json.loads(call("recipes", "show", "saved.yaml", "--json")[1])
    assert shown["train"]["steps"] == 5
    assert shown == json.loads(call("recipes", "show", "stage1", "--json", "train.steps=5")[1])


def test_a_copied_recipe_works_and_nothing_is_overwritten(call: Call) -> None:
    assert call("recipes", "copy", "quickstart", "mine.yaml")[:2] == (0, "mine.yaml\n")
    assert call("validate", "mine.yaml")[0] == 0
    Path("mine.yaml").write_text("kept")
    code, _, err = call("recipes", "copy", "quickstart", "mine.yaml")
    assert code == 2
    assert "mine.yaml already exists" in err
    assert Path("mine.yaml").read_text() == "kept"


def test_a_copy_that_a_full_disk_ends_leaves_no_file(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    code, _, err = call("recipes", "copy", "quickstart", "mine.yaml")
    assert code == 1
    assert "mine.yaml: No space left on device\nkernelrl: fix: free disk space" in err
    assert list(Path().glob("*mine*")) == []


def test_validate_as_json_lists_the_problems(call: Call) -> None:
    code, out, err = call("validate", "quickstart", "seed=-1", "sampling.top_q=1", "--json")
    found = json.loads(out)
    assert (code, err, found["valid"]) == (2, "", False)
    assert [problem["path"] for problem in found["problems"]] == ["seed", "sampling.top_q"]
    assert found["problems"][1]["hint"] == "did you mean 'top_p'?"


def test_schema_prints_one_json_document(call: Call) -> None:
    assert json.loads(call("schema")[1])["title"] == "kernelrl recipe"


def test_doctor_never_prints_a_secret(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-very-secret")
    code, out, err = call("doctor", "--json")
    checks = json.loads(out)["checks"]
    assert code == 0
    assert {"python", "plugins", "torch", "gpu", "cache"} <= {row["check"] for row in checks}
    assert [row["check"] for row in checks if row["detail"].startswith("isolation: level ")] == ["local:local"]
    assert all(row["fix"] for row in checks if row["state"] == "missing")
    assert "very-secret" not in out + err


def test_doctor_prints_each_fix_once_and_equal_checks_in_one_line() -> None:
    def row(check: str, detail: str, fix: str = "") -> dict[str, str]:
        return {"check": check, "state": "missing" if fix else "ok", "detail": detail, "fix": fix}

    rows = [
        row("torch", "installed"),
        row("triton", "installed"),
        row("cpp:cpp", "needs program g++", "install g++"),
        row("cuda:cuda", "needs program g++", "install g++; install CUDA"),
        row("cuda:cuda", "needs program nvcc", "install g++; install CUDA"),
        row("checkers:kernelguard", "needs Python module kernelguard", "pip install it"),
    ]
    assert _lines(rows) == [
        "ok       torch, triton         installed",
        "missing  cpp                   needs program g++; fix: install g++",
        "missing  cuda                  needs program g++; needs program nvcc; fix: install CUDA",
        "missing  checkers:kernelguard  needs Python module kernelguard; fix: pip install it",
    ]


def test_doctor_prints_path_and_size_of_the_cache(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cache/builds").mkdir(parents=True)
    (tmp_path / "cache/builds/header").write_bytes(b"x" * 300_000_000)
    monkeypatch.setenv("KERNELRL_CACHE_DIR", str(tmp_path / "cache"))
    _, out, _ = call("doctor")
    assert f"{tmp_path / 'cache'}, 0.3 GB" in out
    assert not any(line.rstrip().endswith((";", ":")) or "; fix: ;" in line for line in out.splitlines())


def test_doctor_for_a_recipe_exits_with_3_if_a_prerequisite_is_missing(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("mine.yaml").write_text("extends: smoke\npolicy: {use: openai, model: m, base_url: 'http://127.0.0.1:9'}\n")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    code, out, _ = call("doctor", "--recipe", "mine.yaml")
    assert code == 3
    assert re.search(r"^missing +environment variable OPENAI_API_KEY +required by the recipe; fix: ", out, re.MULTILINE)
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    code, out, _ = call("doctor", "--recipe", "mine.yaml")
    assert (code, "missing" in out) == (0, False)


def test_recipes_are_listed_with_needs_and_costs(call: Call) -> None:
    found = {row["name"]: row for row in json.loads(call("recipes", "list", "--json")[1])["recipes"]}
    assert found["quickstart"]["needs"] == "A CPU with 2 cores."
    assert found["quickstart"]["costs"] == "A few minutes and less than 3 GiB of memory, warm start included."
    assert all(row["needs"] and row["costs"] for row in found.values())
    assert "    costs: About 30 seconds." in call("recipes", "list")[1]


def test_a_warning_without_a_handler_has_no_traceback(call: Call) -> None:
    import logging

    assert call("recipes", "list")[0] == 0
    assert logging.lastResort is not None
    with pytest.MonkeyPatch.context() as patch:
        lines: list[str] = []
        patch.setattr("click.echo", lambda line, err: lines.append(line))
        try:
            raise RuntimeError("planted")
        except RuntimeError as error:
            found = (type(error), error, error.__traceback__)
            record = {"levelno": 40, "levelname": "ERROR", "msg": "it failed", "exc_info": found}
            logging.lastResort.handle(logging.makeLogRecord(record))
    assert lines == ["kernelrl: error: it failed"]


def test_plugins_show_lists_the_rules_of_checkers(call: Call) -> None:
    pytest.importorskip("kernelrl_plugin_checkers")
    assert re.search(
        r"^  rule no_kernel \(suspect\): Launch at least one kernel", call("plugins", "show", "checkers")[1], re.M
    )
    components = json.loads(call("plugins", "show", "checkers", "--json")[1])["components"]
    assert {rule["id"] for rule in components[0]["rules"]} >= {"no_kernel", "library_compute"}
