"""Which layers of isolation are in force on this machine: a process is shut in for real and says what was missing.

python -m kernelrl_judge.isolation.layers
"""

from __future__ import annotations

import glob
import json
import os
import tempfile

from kernelrl_judge.isolation import sandbox

__all__ = ["FIXES", "measure"]

_MOUNTS = "mount_namespace"
_NAMESPACES = (
    "sudo sysctl -w user.max_user_namespaces=65536 kernel.unprivileged_userns_clone=1"
    " kernel.apparmor_restrict_unprivileged_userns=0 (those that there are);"
    " in a container: docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
)
FIXES = {
    "limits": "ulimit -H: raise the hard limits below what a recipe grants",
    "user_namespace": _NAMESPACES,
    "pid_namespace": _NAMESPACES,
    _MOUNTS: f"{_NAMESPACES} --security-opt systempaths=unconfined",
    "network_namespace": _NAMESPACES,
    "capabilities": "report it with the kernel's version: uname -r",
    "seccomp": "use a kernel with CONFIG_SECCOMP_FILTER on x86-64 or aarch64: grep Seccomp /proc/self/status",
    "dropped_uid": "run kernelrl as an ordinary user, or let users make namespaces and read Python: chmod -R o+rX VENV",
    "device_nodes": "export CUDA_VISIBLE_DEVICES=$(nvidia-smi --query-gpu=uuid --format=csv,noheader | paste -sd,)",
    "cgroup": "systemd-run --user --scope -p Delegate=yes kernelrl ...",
}
"""The command that brings a layer back, for each."""


def measure() -> list[str]:
    """Layers that runners lack here."""
    on_gpu = bool(glob.glob("/dev/nvidia[0-9]*") or os.path.exists("/dev/kfd") or os.path.exists("/dev/dxg"))
    report, answer = os.pipe()
    with tempfile.TemporaryDirectory() as scratch:
        supervisor = os.fork()
        if supervisor == 0:
            null = os.open(os.devnull, os.O_WRONLY)
            try:
                missing = sandbox.enter(
                    memory_mib=1024, on_gpu=on_gpu, cpu_s=60, scratch=scratch, keep={answer}, status=null
                )
                os.write(answer, json.dumps(missing).encode())
            finally:
                os._exit(0)
        os.close(answer)
        os.waitpid(supervisor, 0)
        with os.fdopen(report, "rb") as said:
            missing = json.loads(said.read() or json.dumps(sandbox.LAYERS))
    return list(missing)


def main() -> None:
    """Print the level, the layers in force, and what would bring the missing ones, as one JSON document."""
    missing = measure()
    # What needs a file system of its own comes back with it.
    fixes = {**FIXES, **({"device_nodes": _NAMESPACES, "dropped_uid": _NAMESPACES} if _MOUNTS in missing else {})}
    print(
        json.dumps(
            {
                "level": sandbox.isolation_level(missing),
                "in_force": [layer for layer in sandbox.LAYERS if layer not in missing],
                "missing": {layer: fixes[layer] for layer in missing},
            }
        )
    )


if __name__ == "__main__":
    main()
