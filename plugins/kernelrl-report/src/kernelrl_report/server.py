"""The live view: a server on the loopback address that sends the page, and the data of runs when the page needs it."""

from __future__ import annotations

import errno
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from kernelrl_core.api.errors import KernelRLError, LookupFailed, UsageError, suggestion
from kernelrl_core.api.runs import RunDir, list_runs
from kernelrl_report.episodes import episode
from kernelrl_report.index import RunIndex
from kernelrl_report.page import live_page, packed, policy

__all__ = ["Server", "open_server"]

_HOST = "127.0.0.1"
_IDLE_S = 15


class Server(ThreadingHTTPServer):
    """Serves the runs below ./runs, and one more that may be elsewhere."""

    daemon_threads = True

    def __init__(self, run: RunDir | None, port: int) -> None:
        super().__init__((_HOST, port), _Handler)
        self._run = run
        self._lock = threading.Lock()
        self._indices: dict[str, tuple[int, RunIndex]] = {}
        self.hosts = {f"{name}:{self.server_port}" for name in (_HOST, "localhost")}
        """Values of the header Host that are served. Another one is a page elsewhere whose name leads here."""

    def address(self, run: RunDir | None) -> str:
        """Address of the page of a run, or of the list of runs."""
        page = "" if run is None else f"run/{quote(self._name(run), safe='')}"
        return f"http://{_HOST}:{self.server_port}/{page}"

    def runs(self) -> list[dict[str, Any]]:
        """Name and state of each run, the latest first."""
        return [{"name": name, "state": run.state()[0]} for name, run in reversed(self._found().items())]

    def document(self, name: str, identity: int, after: int, metrics_after: int) -> dict[str, Any]:
        """The index of a run, or its changes for a page that has an earlier one.

        Args:
            identity: that of the earlier document; the page gets a complete one if it differs.

        Raises:
            KernelRLError: there is no such run, or it cannot be read.
        """
        with self._lock:
            index, current = self._index(name)
            index.refresh()
            known = identity == current
            document = index.document(after, metrics_after) if known else index.document()
            return {**document, "identity": current, "complete": not known}

    def read(self, run: RunDir) -> None:
        """Read a run, so that its first page need not wait for that."""
        self.document(self._name(run), 0, 0, 0)

    def episode(self, name: str, place: str) -> dict[str, Any]:
        """An episode of a run with its texts.

        Raises:
            KernelRLError: there is no such run or episode, or it cannot be read.
        """
        with self._lock:
            index, _ = self._index(name)
            try:
                held_out, step, task_index, attempt = map(int, place.split("."))
                rows = index.rows((held_out, step, task_index, attempt))
            except (KeyError, ValueError):
                raise LookupFailed(f"run {name} has no episode {place}") from None
        return episode(rows)

    def recipe(self, name: str) -> str:
        """The recipe of a run."""
        return (self._find(name).path / "recipe.yaml").read_text(encoding="utf-8", errors="replace")

    def _index(self, name: str) -> tuple[RunIndex, int]:
        run = self._find(name)
        # A run that was deleted and started again has other files under the same name.
        samples = run.journal_path("samples")
        identity = samples.stat().st_ino if samples.exists() else 1
        if name not in self._indices or self._indices[name][0] != identity:
            self._indices[name] = identity, RunIndex(run)
        return self._indices[name][1], identity

    def _find(self, name: str) -> RunDir:
        runs = self._found()
        if name not in runs:
            raise LookupFailed(f"no run {name!r}; {suggestion(name, runs)}")
        return runs[name]

    def _found(self) -> dict[str, RunDir]:
        found = {run.name: run for run in list_runs()}
        return found if self._run is None else {**found, self._name(self._run): self._run}

    @staticmethod
    def _name(run: RunDir) -> str:
        return run.path.resolve().name


def open_server(run: RunDir | None, port: int) -> Server:
    """A server that is bound to a port and has read the run.

    Raises:
        UsageError: another process uses the port.
        KernelRLError: the run cannot be read.
    """
    try:
        server = Server(run, port)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        reason = "is used by another process" if error.errno == errno.EADDRINUSE else "is reserved"
        raise UsageError(f"port {port} {reason}", fix="--port 0 selects a free one", see="port") from None
    if run is not None:
        try:
            server.read(run)
        except KernelRLError:
            server.server_close()
            raise
    return server


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_S

    def do_GET(self) -> None:
        if self.headers.get("Host", "") not in self.server.hosts:
            self._send(HTTPStatus.FORBIDDEN, "text/plain", b"this host name is not served\n")
            return
        url = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        parts = [unquote(part) for part in url.path.strip("/").split("/")]
        try:
            document = self._document(parts, query)
        except (KernelRLError, OSError, ValueError) as error:
            # The page shows the message in place of data.
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, "application/json", packed({"error": str(error)}, level=1))
            return
        if document is not None:
            self._send(HTTPStatus.OK, "application/json", packed(document, level=1))
        elif parts == [""] or (len(parts) == 2 and parts[0] == "run"):
            self._send(HTTPStatus.OK, "text/html; charset=utf-8", live_page())
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", b"not found\n")

    def _document(self, parts: list[str], query: dict[str, str]) -> Any:
        match parts:
            case ["api", "runs"]:
                return self.server.runs()
            case ["api", "run", name]:
                numbers = (int(query.get(key, 0)) for key in ("identity", "after", "metrics"))
                return self.server.document(name, *numbers)
            case ["api", "run", name, "recipe"]:
                return self.server.recipe(name)
            case ["api", "run", name, place]:
                return self.server.episode(name, place)
        return None

    def _send(self, status: HTTPStatus, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        if kind == "application/json":
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Security-Policy", policy("view") + "; frame-ancestors 'none'")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass
