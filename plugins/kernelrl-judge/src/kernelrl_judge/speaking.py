"""What a runner says is signed with a key that it told its judge before its candidate was loaded, and then forgot.

Candidate code that serves the judge's orders in the runner's place has no key. What signs is a generator with an object
of the C library: neither can be changed, but who finds it, through frames or the garbage collector, can have it sign.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import struct
from collections.abc import Callable, Generator
from typing import Any

import attrs

from kernelrl_judge.protocol import HEADER, MAGIC, Frame, FrameKind, ProtocolError

__all__ = ["REPLACED_RUNNER", "Hearing", "speaking"]

REPLACED_RUNNER = "replacing functions of the runner"
"""What stands among operators that computed, where a runner says so of its candidate."""

_KEY_BYTES = 32
_SIGNATURE_BYTES = 16
_FREE = (FrameKind.BUILD, FrameKind.COMPILING, FrameKind.COMPILED, FrameKind.REPLAYED)
"""What candidates ask for by right, and what the native library answers: the judge checks it against its own clock."""
_SIGNED = struct.Struct("<QB?")
"""What is signed before the body: which frame it is, its kind, and whether code of the runner's was found replaced."""


def speaking(stream: socket.socket, look: Callable[[], bool]) -> tuple[bytes, Callable[[Any], None]]:
    """To be called before a candidate is loaded.

    Args:
        look: whether code of the runner's was ever found replaced (`own_code.own_code`).

    Returns:
        A key for the judge; and a function that sends a frame, given its kind, its body, and whether to look first.
    """
    key = os.urandom(_KEY_BYTES)
    signing = hashlib.blake2b(key=key, digest_size=_SIGNATURE_BYTES)
    voice = _speaking(stream.sendall, signing, look, HEADER.pack, _SIGNED.pack)
    next(voice)
    return key, voice.send


def _speaking(
    write: Any, signing: Any, look: Any, header: Any, signed: Any
) -> Generator[None, tuple[FrameKind, bytes, bool], None]:
    magic, number, replaced = MAGIC, 0, False
    while True:
        kind, body, looks = yield
        if looks:
            replaced = look()
        signature = signing.copy()
        signature.update(signed(number, kind, replaced))
        signature.update(body)
        said = bytes([replaced]) + signature.digest() + body
        write(header(magic, kind, len(said)) + said)
        number += 1


class Hearing:
    """What a runner says, as its judge hears it."""

    def __init__(self) -> None:
        self._key = b""
        self._number = 0
        self.replaced = False
        """Whether the runner says that something has replaced code of its own."""

    @property
    def has_key(self) -> bool:
        """Whether the runner has said anything: it does before its candidate is loaded."""
        return bool(self._key)

    def heard(self, frame: Frame) -> Frame:
        """A frame without its signature.

        Raises:
            ProtocolError: the runner's code has not sent it.
        """
        if frame.kind in _FREE:
            return frame
        if not self._key:
            self._key = frame.body[:_KEY_BYTES]
            return attrs.evolve(frame, body=frame.body[_KEY_BYTES:])
        begin = 1 + _SIGNATURE_BYTES
        replaced, signature, body = frame.body[:1] != b"\0", frame.body[1:begin], frame.body[begin:]
        expected = hashlib.blake2b(key=self._key, digest_size=_SIGNATURE_BYTES)
        expected.update(_SIGNED.pack(self._number, frame.kind, replaced) + body)
        if not hmac.compare_digest(expected.digest(), signature):
            raise ProtocolError(f"{frame.kind.name}, which the runner's own code has not sent")
        self._number += 1
        self.replaced |= replaced
        return attrs.evolve(frame, body=body)
