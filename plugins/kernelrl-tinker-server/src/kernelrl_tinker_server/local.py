"""A server as a child process that ends with its parent.

    with LocalServer(state=tmp_path) as server:
        client = tinker.ServiceClient(base_url=server.base_url, api_key=server.api_key)

This module imports neither torch nor the SDK.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path
from queue import Empty, Queue
from types import TracebackType

from kernelrl_core.api.config import replace_directory
from kernelrl_core.api.errors import InfrastructureError

__all__ = ["DUMMY_KEY", "LocalServer"]

DUMMY_KEY = "tml-local-dummy-key"
"""A key in the form that the SDK requires; the server does not check it."""


class LocalServer:
    """A Tinker-compatible server on 127.0.0.1 in a child process.

    It can be started again after `stop` or `kill`, and keeps its checkpoints. The child ends when this process ends,
    even when this process is killed.
    """

    api_key = DUMMY_KEY

    def __init__(
        self,
        *,
        state: Path,
        model: str = "tiny",
        arguments: tuple[str, ...] = (),
        port: int = 0,
        timeout_s: float = 300,
    ) -> None:
        """
        Args:
            state: directory of checkpoints and sessions.
            model: `tiny`, a directory, or a Hugging Face hub id.
            arguments: additional options of `kernelrl tinker-server`.
            port: 0: any free port, which a restarted server keeps, so that clients can reconnect.
            timeout_s: time limit for the start; loading torch takes 5 to 15 s.
        """
        self.state, self._model, self._arguments, self._timeout_s = state, model, arguments, timeout_s
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: deque[str] = deque(maxlen=40)
        self.base_url = ""
        self.models: tuple[str, ...] = ()
        """Names of the served model, the preferred one first."""

    def start(self) -> None:
        """Start the process and wait until the server is ready.

        Raises:
            InfrastructureError: the process ended, or was not ready in time.
        """
        command = [sys.executable, "-m", "kernelrl_tinker_server", "--model", self._model, "--state", str(self.state)]
        command += ["--port", str(self._port), "--watch-stdin", *self._arguments]
        # A new session: after Ctrl-C the parent still needs the server to save a checkpoint.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={key: value for key, value in os.environ.items() if key != "KERNELRL_TINKER_SERVER_KEY"},
        )
        first: Queue[bytes] = Queue()
        self._errors.clear()
        for read in (self._read_output, self._read_errors):
            threading.Thread(target=read, args=(self._process, first), daemon=True).start()
        try:
            line = first.get(timeout=self._timeout_s)
        except Empty:
            self.kill()
            raise InfrastructureError(f"the local server was not ready within {self._timeout_s:.0f} s") from None
        if not line:
            self._process.wait()
            reason = "\n".join(self._errors) or f"exit status {self._process.returncode}"
            raise InfrastructureError(f"the local server could not be started: {reason}")
        ready = json.loads(line)
        self.base_url, self.models = ready["base_url"], tuple(ready["models"])
        self._port = int(self.base_url.rpartition(":")[2])

    def stop(self) -> None:
        """End the process after its current request. Safe to call twice."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._clean()

    def kill(self) -> None:
        """Kill the process, to simulate a crash."""
        if self._process is not None:
            self._process.kill()
            self._clean()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def export(self, path: str, directory: Path) -> None:
        """Copy the checkpoint of a `tinker://` path into a directory."""
        shutil.copytree(self._folder(path), directory, dirs_exist_ok=True)

    def adopt(self, path: str, directory: Path) -> None:
        """Restore an exported checkpoint under its path, unless it exists."""
        folder = self._folder(path)
        if not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            growing = folder.with_name(f".{folder.name}.{os.getpid()}")
            shutil.copytree(directory, growing, dirs_exist_ok=True)
            replace_directory(growing, folder, sync=False)

    def _folder(self, path: str) -> Path:
        return self.state / "checkpoints" / path.removeprefix("tinker://")

    def _read_output(self, process: subprocess.Popen[bytes], first: Queue[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            first.put(line)
        first.put(b"")

    def _read_errors(self, process: subprocess.Popen[bytes], first: Queue[bytes]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            self._errors.append(line.decode(errors="replace").rstrip())

    def _clean(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.wait()
            if process.stdin is not None:
                process.stdin.close()

    def __enter__(self) -> LocalServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
