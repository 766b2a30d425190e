"""What a runner says of an exception of its candidate, and its bytes."""

from __future__ import annotations

from enum import IntEnum

import attrs

from kernelrl_judge.protocol.frames import ProtocolError
from kernelrl_judge.protocol.values import decode_tree, encode_tree

__all__ = ["Failure", "Stage", "decode_failure", "encode_failure"]


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
