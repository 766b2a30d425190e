"""`kernelrl check` by the service of the same user, without the rest of the command line.

The service listens at a unix socket and has everything loaded; this side reads two files and prints the response. It
imports little, because that is most of the time that the result of a small kernel takes. Whatever the service does not
do in the same way (other options, several kernels, every refusal) is left to the command, which reports mistakes.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import stat
import sys
import time
from collections.abc import Sequence
from typing import Any

from kernelrl_core.cli.colours import colour_of
from kernelrl_core.service_address import SERVICE_SOCKET, SERVICE_VARIABLE, UNIX
from kernelrl_core.version import API_VERSION

__all__ = ["served_check"]

_SUFFIXES = (".py", ".txt", ".md")
_CODES = {"green": 32, "yellow": 33, "red": 31}
"""Codes of the colours in a terminal (ECMA-48)."""
_LARGEST_SEED = 2**62
_MAX_FILE_BYTES = 2**20
_CONNECT_S = 0.5
_INTERRUPTED = 130


def served_check(arguments: Sequence[str]) -> int | None:
    """Check a kernel by the service of this user, and print the result.

    Args:
        arguments: of `kernelrl`.

    Returns:
        The exit code; None: nothing was printed, and the command must do it.
    """
    began = time.monotonic()
    options = _options(arguments)
    path = _socket_path() if options is not None else None
    if options is None or path is None:
        return None
    body = _body(options)
    if body is None:
        return None
    try:
        row = _posted(path, body)
    except (OSError, ValueError):
        return None
    except KeyboardInterrupt:
        print("kernelrl: interrupted", file=sys.stderr)
        return _INTERRUPTED
    # A kernel that this machine cannot execute has an exit code of its own.
    if row is None or row.get("outcome") == "infra_error":
        return None
    return _shown(row, options, path, time.monotonic() - began)


class _Options:
    """Arguments that the service knows."""

    def __init__(self) -> None:
        self.backend: str | None = None
        self.seed: int | None = None
        self.lenient = False
        self.as_json = False
        self.task = ""
        self.kernel = ""


def _options(arguments: Sequence[str]) -> _Options | None:
    """The options of a check of one kernel file; None where there are others."""
    if arguments[:1] != ["check"]:
        return None
    options, words, rest = _Options(), [], list(arguments[1:])
    while rest:
        word = rest.pop(0)
        if word == "--json":
            options.as_json = True
        elif word == "--lenient":
            options.lenient = True
        elif word in ("-b", "--backend") and rest:
            options.backend = rest.pop(0)
        elif word == "--seed" and rest and rest[0].isdecimal() and len(rest[0]) < len(str(_LARGEST_SEED)):
            options.seed = int(rest.pop(0))
        elif word.startswith("-") or "=" in word:
            return None
        else:
            words.append(word)
    if len(words) != 2:
        return None
    options.task, options.kernel = words
    # The command makes a source in Python of other kernels.
    return options if options.kernel.endswith(_SUFFIXES) else None


def _socket_path() -> str | None:
    """The socket of a service of this user; None where there is none, or the variable names another one."""
    if "KERNELRL_DISABLE_PLUGINS" in os.environ or _is_in_dotenv("KERNELRL_"):
        return None
    given = os.environ.get(SERVICE_VARIABLE)
    if given is None:
        temporary = next(filter(None, map(os.environ.get, ("TMPDIR", "TEMP", "TMP"))), "/tmp")
        path = f"{temporary}/kernelrl-{os.getuid()}/{SERVICE_SOCKET}"
    elif given.startswith(UNIX) and "," not in given:
        path = given.removeprefix(UNIX)
    else:
        return None
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return path if stat.S_ISSOCK(found.st_mode) and found.st_uid == os.getuid() else None


def _is_in_dotenv(text: str) -> bool:
    """Whether the file `.env` that the command would read contains a text."""
    folder = os.getcwd()
    while True:
        try:
            with open(os.path.join(folder, ".env"), "rb") as file:
                return text.encode() in file.read()
        except OSError:
            parent = os.path.dirname(folder)
        if parent == folder:
            return False
        folder = parent


def _body(options: _Options) -> dict[str, Any] | None:
    """The body of the request; None where a file cannot be read."""
    kernel = _text(options.kernel)
    body = {
        "task": options.task,
        "kernel": kernel,
        # The service removes directories of its machine, which is this one.
        "name": os.path.basename(options.kernel) if os.path.isabs(options.kernel) else options.kernel,
        "backend": options.backend,
        "seed": secrets.randbelow(_LARGEST_SEED) if options.seed is None else options.seed,
        "as_command": True,
    }
    if os.path.exists(options.task):
        name, _ = os.path.splitext(os.path.basename(options.task))
        body |= {"task": name, "task_source": _text(options.task)}
    return None if None in (kernel, body.get("task_source", "")) else body


def _text(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
        return content.decode() if len(content) <= _MAX_FILE_BYTES else None
    except (OSError, UnicodeDecodeError):
        return None


def _posted(path: str, body: dict[str, Any]) -> dict[str, Any] | None:
    """The response of the service; None if it refuses.

    Raises:
        OSError: there is no connection.
        ValueError: the response is not from `kernelrl serve`.
    """
    content = json.dumps(body).encode()
    lines = ("POST /v1/check HTTP/1.1", "Host: localhost", "Connection: close", "Content-Type: application/json",
             f"Kernelrl-Api-Version: {API_VERSION}", f"Content-Length: {len(content)}")  # fmt: skip
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_CONNECT_S)
        client.connect(path)
        client.settimeout(None)
        client.sendall("\r\n".join((*lines, "", "")).encode() + content)
        received = b""
        while part := client.recv(1 << 16):
            received += part
    head, separator, content = received.partition(b"\r\n\r\n")
    if not separator or not head.startswith(b"HTTP/1.1 200 "):
        return None
    row = json.loads(content)
    return row if isinstance(row, dict) and "lines" in row else None


def _shown(row: dict[str, Any], options: _Options, path: str, wall_s: float) -> int:
    """Print the result, and return the exit code."""
    lines, note = row.pop("lines"), row.pop("note")
    row["kernel"] = options.kernel
    if row["provenance"]:  # it was executed
        row["provenance"]["server"] = f"{UNIX}{path}"
    spent_s = sum(seconds for phase, seconds in row["seconds"].items() if phase != "wait")
    row["seconds"]["wait"] = round(max(0.0, wall_s - spent_s), 4)
    if sys.stdout.isatty() and lines:
        lines[0] = f"\x1b[{_CODES[colour_of(lines[0])]}m{lines[0]}\x1b[0m"
    try:
        print(json.dumps(row) if options.as_json else "\n".join(lines), flush=True)
    except BrokenPipeError:
        # The reader closed the pipe. Avoids Python's message at shutdown.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if note:
        print(note, file=sys.stderr)
    is_good = row["correct"] and (options.lenient or row["verdict"] == "clean")
    return 0 if is_good else 1
