"""Isolation layers of this machine, for `kernelrl doctor`.

`python -m kernelrl_sandbox.layers SCRATCH` enters the sandbox of a runner and prints the layers that were not possible.
`python -m kernelrl_sandbox.layers judge` does so with the sandbox of a confined judge.
"""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from kernelrl_core.api.config import MachineFact
from kernelrl_sandbox import privileges, sandbox, seclusion

__all__ = ["FIXES", "isolation_facts"]

_NAMESPACES = (
    "sudo sysctl -w user.max_user_namespaces=65536 kernel.unprivileged_userns_clone=1"
    " kernel.apparmor_restrict_unprivileged_userns=0 (those that there are);"
    " in a container: docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
)
FIXES = {
    "limits": "ulimit -H: raise the hard limits below what a recipe grants",
    "user_namespace": _NAMESPACES,
    "pid_namespace": _NAMESPACES,
    "mount_namespace": f"{_NAMESPACES} --security-opt systempaths=unconfined",
    "network_namespace": _NAMESPACES,
    "capabilities": "report it with the kernel's version: uname -r",
    "seccomp": "use a kernel with CONFIG_SECCOMP_FILTER on x86-64 or aarch64: grep Seccomp /proc/self/status",
    "dropped_uid": "run kernelrl as an ordinary user, or let users make namespaces and read Python: chmod -R o+rX VENV",
    "device_nodes": "export CUDA_VISIBLE_DEVICES=$(nvidia-smi --query-gpu=uuid --format=csv,noheader | paste -sd,)",
}
"""Layer -> the command that makes it possible."""


def isolation_facts() -> Iterator[MachineFact]:
    """The isolation level of this machine, and each missing layer with its fix."""
    # A process cannot leave the sandbox, so another one enters it.
    command = [sys.executable, "-P", "-m", "kernelrl_sandbox.layers"]
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run([*command, scratch], capture_output=True, text=True, check=False)
    try:
        missing = json.loads(done.stdout)
    except ValueError:
        last = done.stderr.strip().splitlines()[-1:] or ["no output"]
        yield MachineFact("isolation", last[0], "broken", " ".join([*command[2:], "/tmp"]))
        return
    in_force = ", ".join(layer.replace("_", " ") for layer in privileges.LAYERS if layer not in missing)
    yield MachineFact("isolation", f"level {privileges.isolation_level(missing)} of 4: {in_force or 'nothing'}")
    # These layers need a file system of their own, and become possible together with it.
    with_mounts = ("device_nodes", "dropped_uid") if "mount_namespace" in missing else ()
    for layer in missing:
        fix = _NAMESPACES if layer in with_mounts else FIXES[layer]
        yield MachineFact(f"isolation {layer}", "candidates are not kept apart by it", "weak", fix)


def main() -> None:
    """Enter a sandbox and print the missing layers, as JSON."""
    on_gpu = bool(glob.glob("/dev/nvidia[0-9]*") or os.path.exists("/dev/kfd") or os.path.exists("/dev/dxg"))
    if sys.argv[1] == "judge":
        missing = seclusion.seclude((), on_gpu=on_gpu)
        missing += seclusion.give_up_namespaces(1 << 30, on_gpu=on_gpu)
        print(json.dumps(missing))
        return
    null = os.open(os.devnull, os.O_WRONLY)
    missing = sandbox.enter(memory_mib=1024, on_gpu=on_gpu, cpu_s=60, scratch=sys.argv[1], keep=set(), status=null)
    print(json.dumps(missing))


if __name__ == "__main__":
    main()
