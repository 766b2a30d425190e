"""The protocol between judge and runner: exact for what it allows, and unmoved by anything else."""

from __future__ import annotations

import contextlib
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_judge.protocol import frames
from kernelrl_judge.protocol.failures import Failure, Phase, decode_failure, encode_failure
from kernelrl_judge.protocol.frames import FrameKind, ProtocolError
from kernelrl_judge.protocol.orders import AttachOrder, LoadOrder, Order, RecordOrder, WindowOrder
from kernelrl_judge.protocol.values import DTYPES, ObjectLeaf, TensorLeaf, decode_tree, encode_tree

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
leaves = st.builds(
    TensorLeaf,
    dtype=st.sampled_from(DTYPES),
    shape=st.lists(st.integers(0, 2**40), max_size=5).map(tuple),
    device=st.sampled_from(["cpu", "cuda"]),
    offset=st.integers(-1, 2**40),
) | st.just(TensorLeaf("bool", (2, 3), "cuda", 7, (0, 5)))
keys = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | texts | st.tuples(texts, st.integers(0, 9))
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | texts | leaves
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(texts, inner, max_size=4)
        | st.dictionaries(keys, inner, max_size=4)
        | st.builds(ObjectLeaf, st.sampled_from(["device", "namespace", "named_tuple"]), inner)
    ),
    max_leaves=20,
)


@given(trees)
def test_a_tree_comes_back_as_it_was(tree: object) -> None:
    back = decode_tree(encode_tree(tree))
    assert back == tree
    assert type(back) is type(tree)


@given(st.binary(max_size=200) | st.text(st.sampled_from('[]{}",:0-eTtuple dictensor'), max_size=60).map(str.encode))
def test_arbitrary_bytes_are_refused_or_understood_and_nothing_else(body: bytes) -> None:
    for decode in (decode_tree, decode_failure, WindowOrder.decoded):
        with contextlib.suppress(ProtocolError):
            decode(body)


@given(st.sampled_from(Phase), texts, texts, texts)
def test_a_failure_comes_back_as_it_was(phase: Phase, kind: str, name: str, text: str) -> None:
    failure = Failure(phase, kind, name, text)
    assert decode_failure(encode_failure(failure)) == failure


@pytest.mark.parametrize(
    "order",
    [
        LoadOrder(source_offset=0, source_bytes=7, package_bytes=0, options="{}", disabled=False, builds=True),
        AttachOrder(inputs=1 << 21, outputs=2 << 21),
        WindowOrder(count=3),
        RecordOrder(
            slots=[[TensorLeaf("float32", (4,), "cuda", 0)]],
            warm=[TensorLeaf("float32", (4,), "cuda", 256)],
            outputs=[TensorLeaf("float32", (4,), "cuda", 0)],
            left={"average": TensorLeaf("float32", (), "cuda", 256)},
            imposed={"average": TensorLeaf("float32", (), "cuda", 512)},
            counts=[1],
        ),
    ],
)
def test_an_order_comes_back_as_it_was(order: Order) -> None:
    assert type(order).decoded(order.encoded()) == order


@pytest.mark.parametrize(
    "tree",
    [[3], 3, {}, {"count": 3, "other": 1}, {"inputs": 1, "outputs": 2}],
    ids=["a list", "a number", "a field is missing", "an unknown field", "another order"],
)
def test_a_malformed_order_is_refused(tree: object) -> None:
    with pytest.raises(ProtocolError, match="malformed WindowOrder"):
        WindowOrder.decoded(encode_tree(tree))


def test_deep_nesting_is_refused_on_both_sides() -> None:
    tree: list[object] = []
    for _ in range(40):
        tree = [tree]
    with pytest.raises(TypeError, match="deep"):
        encode_tree(tree)
    for depth in (40, 100_000):
        with pytest.raises(ProtocolError):
            decode_tree(b"[" * depth + b"]" * depth)


@pytest.mark.parametrize(
    "body",
    [
        b"9223372036854775808",
        b"1" * 5000,
        b'{"tensor":["float32",[-1],"cpu",0,null]}',
        b'{"tensor":["float32",[true],"cpu",0,null]}',
        b'{"tensor":["float32",[4,4],"cpu",0,[1]]}',
        b'{"tensor":["object",[4],"cpu",0,null]}',
        b'{"tuple":3}',
        b"[" + b"0," * 70_000 + b"0]",
        b'{"pairs":[[[1],2]]}',
        b'{"pairs":[[1]]}',
        b'{"object":["function",3]}',
    ],
)
def test_a_malformed_value_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_tree(body)


def test_a_text_that_cannot_be_written_does_not_reach_the_judge() -> None:
    assert decode_tree(b'{"dict":{"\\ud800":"\\udfff"}}') == {"?": "?"}


def test_a_subclass_does_not_travel() -> None:
    class Sly(int):
        pass

    with pytest.raises(TypeError, match="Sly"):
        encode_tree(Sly(3))


@given(st.binary(min_size=1, max_size=64))
def test_a_stream_of_garbage_is_no_frame(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(ProtocolError):
            frames.receive(ours)


def test_a_frame_comes_back_as_it_was() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        frames.send(theirs, FrameKind.RESULT, b"body")
        assert frames.receive(ours) == frames.Frame(FrameKind.RESULT, b"body")
        theirs.close()
        assert frames.receive(ours) is None
