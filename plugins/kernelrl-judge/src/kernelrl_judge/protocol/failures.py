"""What a runner reports of an exception of its candidate, and how errors say that memory did not suffice."""

from __future__ import annotations

from enum import IntEnum

import attrs

from kernelrl_judge.protocol.frames import ProtocolError
from kernelrl_judge.protocol.values import decode_tree, encode_tree

__all__ = [
    "NO_DEVICE_MEMORY",
    "Failure",
    "Stage",
    "decode_failure",
    "encode_failure",
    "lacks_device_memory",
    "lacks_memory",
]

NO_DEVICE_MEMORY = 72
"""Exit code of a runner that cannot use the device at its start."""

_DEVICE_SIGNS = (
    *("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED"),
    # torch asks NVML who has the memory, and where NVML does not start, that is what it reports in its place.
    "nvmlInit",
)
_HOST_SIGNS = ("can't allocate memory", "std::bad_alloc", "Cannot allocate memory")


class Stage(IntEnum):
    """Where a failure happened."""

    LOAD = 1
    CONSTRUCT = 2
    FORWARD = 3
    EXPORT = 4


@attrs.frozen
class Failure:
    """What a runner says of an exception: evidence against its own candidate, and no more."""

    stage: Stage
    kind: str
    """`compile`, `memory` or `error`, as the backend's runner half classified it."""
    name: str
    """Name of the exception's class."""
    text: str
    """Traceback and message, shortened in the middle."""


def encode_failure(failure: Failure) -> bytes:
    """Body of a `FAILED` frame."""
    return encode_tree([int(failure.stage), failure.kind, failure.name, failure.text])


def decode_failure(body: bytes) -> Failure:
    """The failure in the body of a `FAILED` frame.

    Raises:
        ProtocolError: it is none.
    """
    match decode_tree(body):
        case [int(stage), str(kind), str(name), str(text)] if stage in Stage.__members__.values():
            return Failure(Stage(stage), kind, name, text)
    raise ProtocolError("a failure is a stage and three texts")


def lacks_device_memory(text: str) -> bool:
    """Whether the text of an error says that a device's memory did not suffice."""
    return any(sign in text for sign in _DEVICE_SIGNS)


def lacks_memory(text: str) -> bool:
    """As `lacks_device_memory`, of a device or of the host."""
    return lacks_device_memory(text) or any(sign in text for sign in _HOST_SIGNS)
