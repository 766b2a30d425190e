"""Fast `kernelrl` processes for tests: a server with the command line imported forks one process for each command.

A command has its own process, with exit code, signals, environment, working directory and output files. Only the
start of the interpreter and the imports, about half a second of CPU time, are saved. A forked command cannot show a
missing import: start a real process for that.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kernelrl_testing.waiting import DEADLINE_S, wait_until


class Command:
    """A forked command, with the part of `subprocess.Popen` that the tests use."""

    def __init__(self, server: CommandServer, pid: int, outputs: tuple[Path, Path]) -> None:
        self._server, self._outputs = server, outputs
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, or the negative signal number; None while the command runs."""
        if self.returncode is None:
            self.returncode = self._server.request({"poll": self.pid})
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def communicate(self, timeout: float = DEADLINE_S) -> tuple[str, str]:
        """Wait for the end; standard output and standard error.

        Raises:
            subprocess.TimeoutExpired: the command still runs after `timeout` seconds; it is killed.
        """
        try:
            wait_until(lambda: self.poll() is not None, deadline_s=timeout)
        except AssertionError:
            self.send_signal(signal.SIGKILL)
            raise subprocess.TimeoutExpired("kernelrl", timeout) from None
        return self.so_far()

    def result(self, code: int | None = None) -> subprocess.CompletedProcess[str]:
        """Wait for the end, which no traceback may precede.

        Args:
            code: the exit code that it must have; None: any.
        """
        out, err = self.communicate()
        assert "Traceback" not in err, err
        assert self.returncode is not None
        assert code is None or self.returncode == code, err
        return subprocess.CompletedProcess((), self.returncode, out, err)

    def so_far(self) -> tuple[str, str]:
        """Standard output and standard error up to now."""
        out, err = (path.read_text() if path.exists() else "" for path in self._outputs)
        return out, err


class CommandServer:
    """Starts the server process at the first command.

    Args:
        modules: imported too, so that commands find them imported.
    """

    def __init__(self, *modules: str) -> None:
        self._modules = modules
        self._process: subprocess.Popen[str] | None = None
        self._directory = tempfile.TemporaryDirectory(prefix="kernelrl-commands-")
        self._started = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()
        self._directory.cleanup()

    def start(self, *arguments: str, cwd: Path, env: Mapping[str, str]) -> Command:
        """Start `kernelrl` with arguments. `env` is the whole environment; its `PYTHONPATH` is respected."""
        self._started += 1
        out, err = (Path(self._directory.name, f"{self._started}.{name}") for name in ("out", "err"))
        request = {"arguments": arguments, "cwd": str(cwd), "env": dict(env), "out": str(out), "err": str(err)}
        return Command(self, self.request(request), (out, err))

    def run(self, *arguments: str, cwd: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        command = self.start(*arguments, cwd=cwd, env=env)
        out, err = command.communicate()
        assert command.returncode is not None
        return subprocess.CompletedProcess(arguments, command.returncode, out, err)

    def request(self, request: dict[str, Any]) -> Any:
        if self._process is None:
            pipe = subprocess.PIPE
            # In a session of its own: Ctrl-C in the terminal is for pytest alone.
            self._process = subprocess.Popen(
                [sys.executable, __file__, *self._modules], stdin=pipe, stdout=pipe, text=True, start_new_session=True
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def _import_everything() -> None:
    """Import the modules of the core and of the plugins, with what they import on use, and construct nothing."""
    import importlib
    import pkgutil
    from importlib.metadata import entry_points

    import kernelrl_core

    for name in ("jinja2", "packaging.requirements", *sys.argv[1:]):
        importlib.import_module(name)
    for module in pkgutil.walk_packages(kernelrl_core.__path__, "kernelrl_core."):
        if not module.name.startswith("kernelrl_testing"):
            importlib.import_module(module.name)
    for entry_point in entry_points(group="kernelrl"):
        entry_point.load()


def _serve() -> dict[str, Any] | None:
    """Fork for each request. Returns the request in the forked process, None in the server at its end."""
    # Not through buffers, of which a forked process would have a copy.
    reader, writer = os.dup(0), os.dup(1)
    running: set[int] = set()
    with os.fdopen(reader) as requests:
        for line in requests:
            request = json.loads(line)
            if "poll" in request:
                reply = _exit_code(request["poll"])
                if reply is not None:
                    running.discard(request["poll"])
            else:
                reply = os.fork()
                if reply == 0:
                    os.close(writer)
                    return request
                running.add(reply)
            os.write(writer, json.dumps(reply).encode() + b"\n")
    for pid in running:
        os.kill(pid, signal.SIGKILL)
    return None


def _exit_code(pid: int) -> int | None:
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def _become(request: dict[str, Any]) -> None:
    """Give this process what a new process would have."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    sys.path[0] = ""
    sys.path[1:1] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.argv = ["kernelrl", *request["arguments"]]


def _exit(code: Any) -> None:
    """End this process with its threads and exit handlers, without taking the interpreter apart."""
    import atexit
    import threading

    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _import_everything()
    gc.freeze()
    _request = _serve()
    if _request is not None:
        _become(_request)
        from kernelrl_core.cli.main import main

        try:
            main()
        except SystemExit as _stop:
            _exit(_stop.code)
