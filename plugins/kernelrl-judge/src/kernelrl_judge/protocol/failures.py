"""A candidate's exception as its runner reports it, and the texts of errors for lack of memory."""

from __future__ import annotations

from enum import IntEnum

import attrs

from kernelrl_judge.protocol.frames import ProtocolError
from kernelrl_judge.protocol.values import decode_tree, encode_tree

__all__ = [
    "NO_DEVICE_MEMORY",
    "Failure",
    "Phase",
    "decode_failure",
    "encode_failure",
    "lacks_device_memory",
    "lacks_memory",
]

NO_DEVICE_MEMORY = 72
"""Exit code of a runner that cannot use the device at its start."""

_DEVICE_SIGNS = (
    "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    # For its message torch queries NVML about the memory in use. Where NVML does not start, torch reports that instead.
    "nvmlInit",
)
_HOST_SIGNS = ("can't allocate memory", "std::bad_alloc", "Cannot allocate memory")


class Phase(IntEnum):
    """The phase in which a candidate failed."""

    LOAD = 1
    CONSTRUCT = 2
    FORWARD = 3
    EXPORT = 4
    OUTSIDE = 5
    """Outside of the candidate's functions, for example while its inputs were copied."""


@attrs.frozen
class Failure:
    """An exception as a runner reports it: evidence that may accuse its candidate and never clears it."""

    phase: Phase
    kind: str
    """`compile`, `memory` or `error`, as `BackendRunner.classify` decided."""
    name: str
    """Name of the exception's class."""
    text: str
    """Traceback and message, shortened in the middle."""


def encode_failure(failure: Failure) -> bytes:
    """Body of a `FAILED` frame."""
    return encode_tree([int(failure.phase), failure.kind, failure.name, failure.text])


def decode_failure(body: bytes) -> Failure:
    """The failure in the body of a `FAILED` frame.

    Raises:
        ProtocolError: the body is no failure.
    """
    match decode_tree(body):
        case [int(phase), str(kind), str(name), str(text)] if phase in Phase.__members__.values():
            return Failure(Phase(phase), kind, name, text)
    raise ProtocolError("a failure is a phase and three texts")


def lacks_device_memory(text: str) -> bool:
    """Whether the text of an error reports a lack of device memory."""
    return any(sign in text for sign in _DEVICE_SIGNS)


def lacks_memory(text: str) -> bool:
    """Whether the text of an error reports a lack of device memory or of host memory."""
    return lacks_device_memory(text) or any(sign in text for sign in _HOST_SIGNS)
