"""The server process: loads the model and serves until it is stopped."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import attrs
from aiohttp import web

from kernelrl_core.api.config import FileLock
from kernelrl_core.api.errors import MissingPrerequisite, UsageError
from kernelrl_plugin_torch.config import TorchConfig
from kernelrl_tinker_server.app import make_app
from kernelrl_tinker_server.engine import Engine
from kernelrl_tinker_server.models import TINY, ServedModel, load_served_model
from kernelrl_tinker_server.store import Store
from kernelrl_tinker_server.worker import Worker

__all__ = ["ServeOptions", "serve"]


@attrs.frozen
class ServeOptions:
    """Options of a server."""

    model: str
    state: Path
    """Directory of checkpoints and sessions, which survive a restart."""
    host: str = "127.0.0.1"
    port: int = 0
    """0: any free port."""
    torch: TorchConfig = TorchConfig(warm_start=None)
    api_key: str | None = None
    """Key that clients must send. None: keys are not checked."""
    watch_stdin: bool = False
    """Exit when standard input is closed, so that the server ends with its parent."""


def serve(options: ServeOptions, say: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM. When ready, print one line of JSON with `base_url` and `models` to stdout.

    Raises:
        UsageError: the model, the state directory or the address cannot be used.
    """
    if options.api_key is None and not _is_loopback(options.host):
        raise UsageError(
            f"a server at {options.host} is reachable from other machines and needs a key",
            fix="set KERNELRL_TINKER_SERVER_KEY to a key that begins with tml-, or serve at 127.0.0.1",
            see="tinker-key",
        )
    options.state.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(options.state / "lock", wait=False)
    except BlockingIOError as error:
        # Two servers on one state would overwrite each other's checkpoints.
        raise UsageError(
            f"another server uses {options.state}", fix="choose another --state", see="tinker-server"
        ) from error
    with lock:
        asyncio.run(_serve(options, say))


async def _serve(options: ServeOptions, say: Callable[[str], None]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if options.watch_stdin:
        # The parent has ended. An immediate exit is safe: files are renamed into place only when they are complete.
        loop.add_reader(sys.stdin.fileno(), lambda: None if sys.stdin.buffer.read1(4096) else os._exit(0))
    store = Store(options.state)
    store.sweep()
    hub = "" if options.model == TINY or Path(options.model).is_dir() else ", from the hub unless it is cached"
    say(f"loading {options.model}{hub}")
    served: list[ServedModel] = []

    def make() -> Engine:
        try:
            model, described = load_served_model(options.model, options.torch, options.state)
        except (UsageError, MissingPrerequisite) as error:
            raise type(error)(_in_options(error.message), fix=_in_options(error.fix), see=error.see) from error
        served.append(described)
        rows = options.torch.sample_rows or (64 if described.kind == "kernelrl-scratch" else 16)
        return Engine(model, rows=rows, train_tokens=options.torch.train_tokens)

    worker = Worker(make, threads=options.torch.threads, device=options.torch.device)
    runner: web.AppRunner | None = None
    try:
        await asyncio.wrap_future(worker.ready)
        runner = web.AppRunner(
            make_app(worker, store, served[0], api_key=options.api_key), access_log=None, shutdown_timeout=1.0
        )
        await runner.setup()
        try:
            await web.TCPSite(runner, options.host, options.port).start()
        except OSError as error:
            raise UsageError(f"cannot serve at {options.host}:{options.port}: {error.strerror}") from error
        host, port = runner.addresses[0][:2]
        print(json.dumps({"base_url": f"http://{host}:{port}", "models": served[0].names}), flush=True)
        say(f"serving {served[0].names[-1]} at http://{host}:{port}")
        await stop.wait()
    finally:
        worker.close()
        if runner is not None:
            await runner.cleanup()


def _in_options(text: str) -> str:
    """`text` with the command's options in place of recipe keys: `policy.lora_rank` becomes `--lora-rank`."""
    return re.sub(r"\bpolicy\.(\w+)", lambda found: "--" + found[1].replace("_", "-"), text)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
