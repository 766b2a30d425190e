"""`kernelrl serve` as a process for tests, at a free port of this machine or at a unix socket."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelrl_command_server import Command, CommandServer

from kernelrl_testing.waiting import wait_until

FAKES = Path(__file__).parents[1] / "fakes"


class Service:
    """A running server."""

    def __init__(self, command: Command, address: Mapping[str, str]) -> None:
        self.command = command
        self.url = address.get("base_url") or f"unix:{address['unix']}"

    def pause(self) -> None:
        """Stop the process (SIGSTOP): connections stay open, and nothing responds."""
        self.command.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.command.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the process by SIGKILL, and wait for its end."""
        self.command.send_signal(signal.SIGKILL)
        self.command.communicate()

    def metric(self, line: str) -> float:
        """Value of a metric, such as `kernelrl_running`; 0 where it has none yet."""
        with urllib.request.urlopen(f"{self.url}/metrics") as response:
            text = response.read().decode()
        return sum(float(found.rpartition(" ")[2]) for found in text.splitlines() if found.startswith(line))


class Services:
    """Starts servers in a directory; all of them end with the block.

    Args:
        options: of every server, such as `--evaluator fake`.
        fakes: whether servers have the plugin of the fakes.
    """

    def __init__(self, commands: CommandServer, directory: Path, *options: str, fakes: bool = True) -> None:
        self._commands, self._directory, self._options = commands, directory, options
        self._environment = {**os.environ, **({"PYTHONPATH": str(FAKES)} if fakes else {})}
        self._running: list[Service] = []
        self._n_started = 0

    def __enter__(self) -> Services:
        return self

    def __exit__(self, *_: Any) -> None:
        for service in self._running:
            service.go_on()
            service.command.send_signal(signal.SIGTERM)
        for service in self._running:
            service.command.communicate()

    def start(self, *options: str, listen: str = "127.0.0.1:0", unix: Path | None = None) -> Service:
        """Start a server, and wait until it accepts requests."""
        self._n_started += 1
        where = ["--listen", listen] if unix is None else ["--unix", str(unix)]
        state = [] if "--state" in options else ["--state", str(self._directory / f"state{self._n_started}")]
        words = ("serve", *where, *state, *self._options, *options)
        command = self._commands.start(*words, cwd=self._directory, env=self._environment)
        wait_until(lambda: "\n" in command.so_far()[0], process=command)
        service = Service(command, json.loads(command.so_far()[0].splitlines()[0]))
        self._running.append(service)
        return service
