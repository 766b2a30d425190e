"""Connection of this process to a Ray cluster. A process has at most one."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from typing import Any

from kernelrl_core.api.errors import InfrastructureError, MissingPrerequisite, UsageError

__all__ = ["connect", "handlers_kept"]

_TCP_TIMEOUT_S = 5.0
_OBJECT_STORE_BYTES = 256 << 20
"""Of a local cluster. Requests, evaluations and builds are small."""
_STARTS = 4
"""Ray gives a local cluster 30 s to start, which may not suffice on a busy machine."""
_STARTED_LATE = "timed out during startup"
_INHERITED = (
    *("PATH", "HOME", "USER", "LANG", "LC_", "LD_", "TZ", "TMPDIR", "VIRTUAL_ENV", "PYTHON", "RAY_"),
    *("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "NVIDIA_", "KERNELRL_"),
)
"""Beginnings of names of variables that the processes of a local cluster inherit."""
_NOT_INHERITED = ("KERNELRL_RUN_SECRET", "KERNELRL_TINKER_SERVER_KEY")


def connect(address: str | None, cores: int) -> tuple[Any, bool]:
    """Connect, or start a local cluster. Blocks for seconds.

    Args:
        cores: of a local cluster.

    Returns:
        The module `ray`, and whether this call made the connection.

    Raises:
        MissingPrerequisite: the cluster does not respond, refuses this client, or has another version of Ray or Python.
        UsageError: this process is connected to another cluster.
    """
    # Read when the module is imported.
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    # What it says of signals and tokens is for programs of their own.
    logging.getLogger("ray").setLevel(logging.ERROR)
    # Its messages about lost workers would be among the results on standard output. There is no public switch.
    ray._private.worker._worker_logs_enabled = False
    if ray.is_initialized():
        # A program that uses Ray itself, such as a trainer that calls an adapter.
        if address not in (None, "auto", ray.get_runtime_context().gcs_address):
            raise UsageError(
                f"evaluator.address={address}, but this process is connected to another Ray cluster",
                fix="evaluator.address=auto",
                see="ray",
            )
        return ray, False
    quiet = {"include_dashboard": False} if address is None else {}
    options = {"log_to_driver": False, "configure_logging": False, "namespace": "kernelrl"}
    try:
        if address is None:
            with _few_variables():
                _start(ray, num_cpus=cores, object_store_memory=_OBJECT_STORE_BYTES, **quiet, **options)
        else:
            _require_listening(address)
            ray.init(address=address, **options)
    except MissingPrerequisite:
        raise
    except Exception as error:
        raise _explained(address, error, ray.__version__) from error
    return ray, True


def _start(ray: Any, **options: Any) -> None:
    """Start a local cluster, several times if the machine is too busy."""
    for start in range(1, _STARTS + 1):
        try:
            ray.init(address="local", **options)
        except Exception as error:
            if start == _STARTS or _STARTED_LATE not in str(error):
                raise
            # The processes of the late cluster end with this process: Ray has no call that ends them before.
            ray.shutdown()
        else:
            return


@contextlib.contextmanager
def handlers_kept() -> Iterator[None]:
    """Keep the signal handlers and the exception hook of this process. Ray's handlers end the process, and its hook
    waits for the cluster. Main thread only."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    hook = sys.excepthook
    try:
        yield
    finally:
        sys.excepthook = hook
        for number, handler in before.items():
            # Not in the main thread, or installed by other code than Python's.
            with contextlib.suppress(ValueError, TypeError):
                signal.signal(number, handler)
                signal.siginterrupt(number, False)


@contextlib.contextmanager
def _few_variables() -> Iterator[None]:
    """No secret of this process reaches the processes of a local cluster, whose descendants execute candidates."""
    before = dict(os.environ)
    for name in before:
        if not name.startswith(_INHERITED) or name in _NOT_INHERITED:
            del os.environ[name]
    try:
        yield
    finally:
        os.environ.update({name: value for name, value in before.items() if name not in os.environ})


def _require_listening(address: str) -> None:
    if address == "auto":
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_TCP_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        # Port of the head, or of the server for drivers elsewhere.
        raise MissingPrerequisite(
            f"no Ray cluster responds at {address}: {error}",
            fix="start it on its head node: ray start --head; correct evaluator.address; or evaluator.address=null for "
            "a cluster on this machine",
            see="ray",
        ) from None


def _explained(address: str | None, error: Exception, version: str) -> MissingPrerequisite | InfrastructureError:
    text = " ".join(str(error).split())
    place = f"the Ray cluster at {address}" if address is not None else "a local Ray cluster"
    if "ersion mismatch" in text:
        return MissingPrerequisite(
            f"{place} has another version of Ray or Python: {text[:400]}",
            fix=f"install Ray {version} and this Python on the cluster, or those of the cluster here",
            see="ray",
        )
    if "uthentication" in type(error).__name__ or "uthentication" in text:
        return MissingPrerequisite(
            f"{place} refuses this client: {text[:300]}",
            fix="export RAY_AUTH_TOKEN=…, the token of the cluster (~/.ray/auth_token on its head node)",
            see="ray",
        )
    if address is not None:
        fix = (
            "ray status on the head node; if the cluster has a token, export RAY_AUTH_TOKEN=… (~/.ray/auth_token there)"
        )
        return MissingPrerequisite(f"{place} does not accept this client: {text[:300]}", fix=fix, see="ray")
    return InfrastructureError(
        f"{place} does not start: {text[:300]}", fix="ray stop, then repeat this; ls /tmp/ray", see="ray"
    )
