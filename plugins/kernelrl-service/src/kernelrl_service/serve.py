"""The server process: starts the evaluator, continues accepted work, and serves until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import ipaddress
import json
import os
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import attrs
import uvicorn

from kernelrl_core.api.components import Registry, registry, worker_versions
from kernelrl_core.api.config import FileLock, disk_error
from kernelrl_core.api.episodes import EvaluationService
from kernelrl_core.api.errors import StorageError, UsageError
from kernelrl_core.api.evaluators import Evaluator
from kernelrl_service.app import Application
from kernelrl_service.catalogue import Catalogue, Served, read_served
from kernelrl_service.episodes import Episodes
from kernelrl_service.journal import Journal
from kernelrl_service.metrics import Metrics
from kernelrl_service.options import ServeOptions
from kernelrl_service.protocol import LimitedProtocol
from kernelrl_service.queue import EvaluationQueue, QueuedEvaluator
from kernelrl_service.redaction import Redaction
from kernelrl_service.server import Server, current_client
from kernelrl_service.tokens import LOCAL, Tokens, read_tokens

__all__ = ["open_server", "serve"]

_DISTRIBUTIONS = (
    "kernelrl-build",
    "kernelrl-judge",
    "kernelrl-sandbox",
    "kernelrl-service",
    "kernelrl-sources",
    "torch",
    "triton",
)
_SWEEP_S = 3600.0
_SWITCH_S = 0.00005
_END_S = 5
"""Seconds in which open connections end after SIGTERM."""


def serve(options: ServeOptions, say: Callable[[str], None], evaluator: Evaluator | None = None) -> None:
    """Serve until SIGINT or SIGTERM. When ready, print one line of JSON with `base_url` or `unix` to stdout.

    Args:
        say: prints a line for the user.
        evaluator: in place of the component that the options name.

    Raises:
        UsageError: address, tokens, state, recipe or task cannot be used.
        MissingPrerequisite: the evaluator or a recipe lacks something on this machine.
        StorageError: the state cannot be written.
    """
    tokens = read_tokens(options.tokens) if options.tokens is not None else None
    if options.unix is None and tokens is None and not _is_loopback(options.host):
        raise UsageError(
            f"{options.host} can be reached from other machines, and the server has no tokens",
            fix="add --tokens FILE, which 'kernelrl serve --tokens FILE --add-token NAME' writes, or use 127.0.0.1",
            see="service-tokens",
        )
    # The thread of the journal then waits at most this long for the thread of the event loop, which is often busy.
    sys.setswitchinterval(_SWITCH_S)
    with _state(options.state), _listening(options) as listener:
        served = read_served(options, registry())
        made = evaluator or registry().make("evaluators", served.spec.evaluator)
        asyncio.run(_serve(options, tokens, served, made, listener, say))


@contextlib.contextmanager
def _state(directory: Path) -> Iterator[None]:
    """The state directory, locked."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = FileLock(directory / "lock", wait=False)
    except BlockingIOError as error:
        raise UsageError(
            f"another server uses {directory}", fix="choose another --state", see="service-start"
        ) from error
    except OSError as error:
        raise UsageError(f"{directory}: cannot be used as --state: {error.strerror}", see="service-start") from error
    with lock:
        yield


# --- address ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _listening(options: ServeOptions) -> Iterator[socket.socket]:
    """A socket at the address. Nothing is accepted before the server runs."""
    if options.unix is not None:
        with _listening_unix(options.unix) as listener:
            yield listener
        return
    try:
        family, kind, protocol, *_ = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)[0]
        # Only for a socket with its protocol does asyncio set TCP_NODELAY; without it, a response takes 40 ms more.
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((options.host, options.port))
    except OSError as error:
        where = f"{options.host}:{options.port}"
        if error.errno == errno.EADDRINUSE:
            raise UsageError(f"{where} is in use", fix="choose another --listen, or stop the other program",
                             see="service-start") from error  # fmt: skip
        raise UsageError(f"cannot listen at {where}: {error.strerror or error}", see="service-start") from error
    with listener:
        yield listener


@contextlib.contextmanager
def _listening_unix(path: Path) -> Iterator[socket.socket]:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with listener:
        try:
            if path.is_socket():
                _remove_dead(path)
            former = os.umask(0o177)  # for this user alone, from the beginning
            try:
                listener.bind(str(path))
            finally:
                os.umask(former)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise UsageError(f"{path} exists and is no socket", fix="choose another --unix") from error
            raise UsageError(f"cannot listen at {path}: {error.strerror or error}", see="service-start") from error
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


def _remove_dead(path: Path) -> None:
    """Remove the socket of a server that has ended.

    Raises:
        UsageError: a server listens.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
    raise UsageError(f"another program listens at {path}", fix="choose another --unix, or stop it", see="service-start")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# --- server -----------------------------------------------------------------------------------------------------------


class _Uvicorn(uvicorn.Server):
    """Tells the application at the first signal that it ends, so that waiting requests get a response.

    Signals are handled by the event loop: uvicorn's own handlers would end the process by the signal in the end.
    """

    def __init__(self, config: uvicorn.Config, on_exit: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_exit = on_exit

    def handle_signals(self) -> None:
        """Handle SIGINT and SIGTERM from now on."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def handle_exit(self, sig: int, frame: Any) -> None:
        self._on_exit()
        super().handle_exit(sig, frame)


async def _serve(
    options: ServeOptions,
    tokens: Tokens | None,
    served: Served,
    evaluator: Evaluator,
    listener: socket.socket,
    say: Callable[[str], None],
) -> None:
    async with open_server(options, tokens, served, evaluator, registry(), say) as server:
        config = uvicorn.Config(
            Application(server).asgi,
            http=cast(Any, functools.partial(LimitedProtocol, options.limits)),
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=_END_S,
        )
        program = _Uvicorn(config, server.queue.closing.set)
        if options.watch_stdin:
            asyncio.get_running_loop().add_reader(sys.stdin.fileno(), lambda: _end_with_parent(program))
        address = {"unix": str(options.unix)} if options.unix is not None else {"base_url": _base_url(listener)}
        program.handle_signals()
        listener.listen(2048)
        print(json.dumps(address), flush=True)
        say(f"serving {len(served.tasks)} tasks at {next(iter(address.values()))}")
        await program.serve(sockets=[listener])


def _base_url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _end_with_parent(program: _Uvicorn) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        program.handle_exit(signal.SIGTERM, None)


@contextlib.asynccontextmanager
async def open_server(
    options: ServeOptions,
    tokens: Tokens | None,
    served: Served,
    evaluator: Evaluator,
    registry: Registry,
    say: Callable[[str], None],
) -> AsyncIterator[Server]:
    """Start the evaluator and continue the accepted work of a former process; close everything at the end.

    Args:
        evaluator: not started.

    Raises:
        UsageError, MissingPrerequisite: the evaluator or a recipe cannot be used, or the evaluator cannot confine the
            judges of tasks that clients send.
        StorageError: the journal cannot be read or written.
    """
    limits = options.limits
    is_same_user = options.unix is not None
    redact = Redaction([options.state, Path.cwd()])
    journal = Journal(
        options.state / "journal.sqlite3", max_evaluations=limits.stored_evaluations, episode_s=limits.episode_s
    )
    versions = worker_versions(registry, *_DISTRIBUTIONS)
    service = EvaluationService(evaluator, cache_dir=None)
    metrics = Metrics()
    queue = EvaluationQueue(service, journal, limits, redact, metrics.evaluation)
    catalogue: Catalogue | None = None
    sweeping: asyncio.Task[None] | None = None
    try:
        await service.start(served.spec.backend.use)
        if options.inline_tasks or (tokens is not None and tokens.inline_tasks):
            await evaluator.require_confinement()
        evaluator_identity = evaluator.identity()
        identity = f"{served.spec.evaluator.use} {sorted(versions.items())} {evaluator_identity}"
        queued = QueuedEvaluator(queue, limits, identity, current_client.get)
        catalogue = Catalogue(
            served, registry, limits, evaluator=evaluator, queued=queued, secret=_secret(options.state)
        )
        await journal.sweep()
        if restored := await queue.restore():
            say(f"continuing {restored} accepted evaluations")
        sweeping = asyncio.create_task(_sweep(journal, say))
        yield Server(
            queue=queue,
            catalogue=catalogue,
            episodes=Episodes(catalogue, journal, queue, limits),
            metrics=metrics,
            redact=redact,
            limits=limits,
            identity=identity,
            evaluator=served.spec.evaluator.use,
            evaluator_identity=redact.text(evaluator_identity),
            gpu_model=service.gpu_model,
            versions=versions,
            tokens=tokens,
            local=attrs.evolve(LOCAL, inline_tasks=options.inline_tasks or is_same_user, is_same_user=is_same_user),
            is_loopback=options.unix is None,
        )
    finally:
        if sweeping is not None:
            sweeping.cancel()
        await queue.aclose()
        if catalogue is not None:
            await catalogue.aclose()
        await service.aclose()
        await journal.aclose()


async def _sweep(journal: Journal, say: Callable[[str], None]) -> None:
    while True:
        await asyncio.sleep(_SWEEP_S)
        try:
            await journal.sweep()
        except StorageError as error:
            say(f"kernelrl: {error}")


def _secret(directory: Path) -> bytes:
    """The key of the hidden input seeds; made once, with mode 0600."""
    path = directory / "secret.key"
    try:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            secret = path.read_bytes()
        else:
            secret = secrets.token_bytes(32)
            with os.fdopen(descriptor, "wb") as file:
                file.write(secret)
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        raise disk_error(path, error) from error
    if len(secret) != 32:
        raise UsageError(f"{path}: not a secret key", fix="remove the file; results of former requests are made anew")
    return secret
