"""Limits and options of a server."""

from __future__ import annotations

from pathlib import Path

import attrs

__all__ = ["Limits", "ServeOptions"]


@attrs.frozen
class Limits:
    """Limits that every client meets. Those of settings hold for requests that send their own settings."""

    head_bytes: int = 65_536
    """Size of the head of a request."""
    body_bytes: int = 16 * 2**20
    """Size of a body."""
    source_bytes: int = 2**20
    """Size of a kernel, a reply or the source of a task, in UTF-8."""
    batch: int = 256
    """Evaluations of one batch."""
    queue: int = 10_000
    """Unfinished evaluations of all clients."""
    unfinished_per_client: int = 2_000
    """Unfinished evaluations of one client."""
    requests_per_client: int = 1_000
    """HTTP requests of one client at a time."""
    episodes_per_client: int = 10_000
    """Open episodes of one client."""
    body_s: float = 30.0
    """Seconds in which the head of a request must arrive, and then its body."""
    wait_s: float = 300.0
    """Longest wait for a result in one request."""
    timeout_s: float = 600.0
    """Largest `settings.timeout_s`."""
    build_timeout_s: float = 1200.0
    """Largest `settings.build_timeout_s`."""
    memory_mib: int = 65_536
    """Largest `settings.memory_mib`."""
    build_memory_mib: int = 65_536
    """Largest `settings.build_memory_mib`."""
    trials: int = 100
    """Largest `settings.trials`."""
    timing_trials: int = 10_000
    """Largest `settings.timing_trials`."""
    stored_evaluations: int = 100_000
    """Finished evaluations that the journal keeps."""
    episode_s: float = 86_400.0
    """Seconds after which an episode without a turn is removed."""


@attrs.frozen
class ServeOptions:
    """Everything that `kernelrl serve` is started with."""

    state: Path
    """Directory of the journal and of the secret key of the input seeds."""
    host: str = "127.0.0.1"
    port: int = 8790
    """0: any free port."""
    unix: Path | None = None
    """Path of a socket, in place of host and port."""
    evaluator: str | None = None
    """Evaluator component; None: the default one."""
    recipes: tuple[str, ...] = ()
    """Names or paths of the served recipes."""
    tasks: tuple[str, ...] = ()
    """Task sources and task files that are served beside the tasks of the recipes."""
    overrides: tuple[str, ...] = ()
    """Evaluation keys `KEY=VALUE`, such as `evaluator.workers=4`."""
    tokens: Path | None = None
    """File of tokens; None: no client needs one."""
    inline_tasks: bool = False
    """Whether clients of a server without tokens may send sources of tasks. Those of a socket always may."""
    limits: Limits = Limits()
    watch_stdin: bool = False
    """End when standard input is closed."""
