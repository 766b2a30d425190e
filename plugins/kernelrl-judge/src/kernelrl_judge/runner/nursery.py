"""The nursery: a fork of the judge with torch loaded, from which zygotes are forked.

The judge's side is `kernelrl_judge.peer.nursery`.
"""

from __future__ import annotations

import json
import os
import random
import socket
import sys
import traceback
from typing import NoReturn

from kernelrl_judge.protocol.forks import name_process, serve
from kernelrl_judge.runner import zygote
from kernelrl_sandbox import privileges

__all__ = ["main"]


def main(judge: socket.socket) -> NoReturn:
    """Be the nursery, until the judge closes the socket. Called in a new fork of the judge."""
    try:
        privileges.die_with_parent()
        name_process("kernelrl_judge.runner.nursery")
        _reseed()
        _close_files_of_judge(judge)
        serve(judge, _begin_zygote)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _begin_zygote(order: bytes, descriptors: list[int]) -> NoReturn:
    zygote.main(socket.socket(fileno=descriptors[0]), **json.loads(order))


def _close_files_of_judge(judge: socket.socket) -> None:
    """Close all descriptors but the socket and standard error."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(null, descriptor)
    privileges.close_others({judge.fileno()})


def _reseed() -> None:
    """Seed the random generators, whose states are copies of the judge's: a task may draw its inputs from these."""
    random.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
