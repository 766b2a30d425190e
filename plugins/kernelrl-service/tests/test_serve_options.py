"""Options of `kernelrl serve` that cannot be used: one clear line and exit code 2, before anything is started."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelrl_core.api.errors import UsageError
from kernelrl_service.options import ServeOptions
from kernelrl_service.serve import serve
from kernelrl_service.tokens import Client, add_token, read_tokens
from kernelrl_testing.core import main_module

Call = Callable[..., tuple[int, str, str]]
HASH = "a" * 64


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs `kernelrl serve` in an empty directory: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main_module.main(["serve", *arguments])
        out, err = capsys.readouterr()
        assert isinstance(stop.value.code, int)
        return stop.value.code, out, err

    return run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--listen", "0.0.0.0:0"], "0.0.0.0 can be reached from other machines, and the server has no tokens"),
        (["--listen", "127.0.0.1"], "expected HOST:PORT"),
        (["--listen", "127.0.0.1:99999"], "expected HOST:PORT"),
        (["--listen", "127.0.0.1:0", "--tokens", "none.yaml"], "none.yaml: the file of tokens cannot be read"),
        (["--listen", "127.0.0.1:0", "--recipe", "quickstrt"], "did you mean 'quickstart'?"),
        (["--listen", "127.0.0.1:0", "--tasks", "startr"], "no file and no task 'startr'"),
        (["--listen", "127.0.0.1:0", "--tasks", "none.py"], "none.py: no such file"),
        (["--listen", "127.0.0.1:0", "--evaluator", "locl"], "did you mean 'local'?"),
        (["--listen", "127.0.0.1:0", "evaluator.wrkers=2"], "did you mean 'workers'?"),
        (["--listen", "127.0.0.1:0", "--state", "/proc/none"], "/proc/none: cannot be used as --state"),
        (["--listen", "192.0.2.1:0", "--tokens", "tokens.yaml"], "cannot listen at 192.0.2.1:0"),
        (["--unix", "missing/s.sock"], "cannot listen at missing/s.sock: No such file or directory"),
        (["--add-token", "a"], "--add-token needs --tokens FILE"),
        (["--tokens", "tokens.yaml", "--add-token", "a b"], "'a b' is not a name"),
        (["--tokens", "tokens.yaml", "--add-token", "known"], "already has a token 'known'"),
        (["--tokens", "tokens.yaml", "--inline-tasks"], "--inline-tasks with --tokens is a permission of each token"),
    ],
)
def test_an_option_that_cannot_be_used_is_one_clear_error(
    call: Call, tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "tokens.yaml").write_text(f"known: {{sha256: {HASH}}}\n")
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no tokens"),
        ("[]", "no tokens"),
        ("a: b: c", "tokens.yaml:1"),
        (f"a: {HASH}", "expected {sha256: HASH}"),
        ("a: {sha256: short}", "sha256 must be 64 hexadecimal digits"),
        (f"a: {{sha256: {HASH}, inline_task: true}}", "did you mean 'inline_tasks'?"),
        (f"a: {{sha256: {HASH}, inline_tasks: 1}}", "inline_tasks must be true or false"),
        (f"'a b': {{sha256: {HASH}}}", "the name must have letters"),
        (f"a: {{sha256: {HASH}}}\na: {{sha256: {HASH}}}", "tokens.yaml:2"),
    ],
)
def test_a_file_of_tokens_with_a_mistake_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "tokens.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        read_tokens(path)
    assert message in refused.value.message


def test_a_new_token_is_known_and_only_its_hash_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "tokens.yaml"
    first = add_token(path, "alice", inline_tasks=False)
    second = add_token(path, "bob", inline_tasks=True)
    tokens = read_tokens(path)
    assert tokens.client(first) == Client("alice")
    assert tokens.client(second) == Client("bob", inline_tasks=True)
    assert tokens.client(hashlib.sha256(first.encode()).hexdigest()) is None
    assert first not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_damaged_journal_is_refused(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "journal.sqlite3").write_bytes(b"no journal " * 1000)
    with pytest.raises(UsageError, match="not a journal of this version"):
        serve(ServeOptions(state=state, port=0), print)
