"""Protocol buffers: requests and results of the SDK, and random bytes."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest
import tinker
import torch
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from tinker import types
from tinker.proto.request_conv import forward_backward_request_to_proto
from tinker.proto.response_conv import deserialize_proto_response

from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.policies import Reply
from kernelrl_tinker_server.scoring import PromptQuery, PromptScores
from kernelrl_tinker_server.store import CheckpointPath, Store
from kernelrl_tinker_server.wire import read_training_request, sampled_body, trained_body

TOKENS = st.lists(st.integers(0, 250), min_size=1, max_size=8)
FLOATS = st.floats(-8, 8, width=32)


def request(prompt: list[int], reply: list[int], rows: dict[str, list[float]], loss: str = "ppo", **config) -> bytes:
    tokens, context = [*prompt, *reply], [0.0] * (len(prompt) - 1)
    inputs = {"target_tokens": types.TensorData.from_numpy(np.array(tokens[1:], np.int64))}
    for name, row in rows.items():
        inputs[name] = types.TensorData.from_numpy(np.array([*context, *row], np.float32))
    data = [types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs)]
    given_ = tinker.types.ForwardBackwardInput(data=data, loss_fn=loss, loss_fn_config=config or None)
    whole = types.ForwardBackwardRequest(forward_backward_input=given_, model_id="s1:train:0", seq_id=3)
    return forward_backward_request_to_proto(whole).SerializeToString()


@given(TOKENS, st.lists(st.tuples(st.integers(0, 250), FLOATS, FLOATS), min_size=1, max_size=8), st.booleans())
def test_a_datum_of_the_sdk_is_parsed(prompt, reply, packed: bool) -> None:
    tokens, logprobs, advantages = ([column[i] for column in reply] for i in range(3))
    body = request(prompt, tokens, {"logprobs": logprobs, "advantages": advantages}, clip_low_threshold=0.7)
    body = zstandard.ZstdCompressor().compress(body) if packed else body
    read = read_training_request(body, "zstd" if packed else "")
    (datum,), (skipped,) = read.data, read.skipped
    assert (read.run, read.number, read.loss, read.bounds) == ("s1:train:0", 3, "ppo", (0.7, 1.2))
    assert [*datum.prompt, *datum.reply] == [*prompt, *tokens]
    # Only reply tokens with log-probability 0 and advantage 0 may be parsed as part of the prompt.
    cut = len(datum.prompt) - len(prompt)
    assert 0 <= cut < len(tokens)
    assert skipped == len(datum.prompt) - 1
    assert not any(logprobs[:cut]) and not any(advantages[:cut])  # noqa: PT018
    assert list(datum.sampled) == logprobs[cut:]
    assert list(datum.advantages) == advantages[cut:]


@given(st.binary(max_size=200), st.sampled_from(["", "zstd"]))
def test_any_bytes_are_parsed_or_refused(body: bytes, encoding: str) -> None:
    with contextlib.suppress(UsageError):
        read_training_request(body, encoding)


def test_invalid_inputs_are_refused_by_name() -> None:
    with pytest.raises(UsageError, match="needs logprobs: one number for each of the 3 tokens"):
        read_training_request(request([1, 2], [3, 4], {"advantages": [1.0, 1.0]}), "")
    rows = {"logprobs": [1.0], "advantages": [1.0]}
    for loss, options, problem in (
        (
            "stable_reinforce",
            {},
            r"'stable_reinforce'.*not contain its formula\nfix: train with loss_fn=importance_sampling",
        ),
        ("dro", {}, "loss dro needs beta"),
        ("ppo", {"beta": 0.1}, "loss ppo has no option 'beta'; it has clip_high_threshold, clip_low"),
        ("gspo", {}, "loss gspo needs sequence_ratio_mask: one number for each of the 1 tokens"),
    ):
        with pytest.raises(UsageError, match=problem):
            read_training_request(request([1], [2], rows, loss, **options), "")
    with pytest.raises(UsageError, match="clip_low_threshold of each token"):
        read_training_request(request([1], [2], rows | {"clip_low_threshold": [0.5]}), "")


def test_the_ratio_mask_of_gspo_marks_the_counted_tokens() -> None:
    rows = {"logprobs": [0.0, -1.0, -2.0], "advantages": [0.0, 1.0, 1.0], "sequence_ratio_mask": [0.0, 1.0, 1.0]}
    read = read_training_request(request([1, 2], [3, 4, 5], rows, "gspo"), "")
    assert (read.loss, read.ratio) == ("ppo", "sequence")
    assert read.data[0].counted == [True, True]
    assert read.data[0].reply == (4, 5)


def test_targets_that_are_not_the_shifted_input_are_kept_apart() -> None:
    targets = np.array([[7, 0], [8, 9], [6, 5]], np.int64)
    for given_ in (types.TensorData.from_numpy(targets), types.TensorData.from_torch_sparse(torch.tensor(targets))):
        inputs = {"target_tokens": given_, "weights": types.TensorData.from_numpy(np.ones((3, 2), np.float32))}
        data = [types.Datum(model_input=types.ModelInput.from_ints([1, 2, 3]), loss_fn_inputs=inputs)]
        whole = types.ForwardBackwardRequest(
            forward_backward_input=types.ForwardBackwardInput(data=data, loss_fn="cross_entropy"),
            model_id="m",
            seq_id=1,
        )
        (datum,) = read_training_request(forward_backward_request_to_proto(whole).SerializeToString(), "").data
        assert (datum.prompt, datum.reply[:-1]) == ((1,), (2, 3))
        assert datum.targets.tolist() == targets.tolist()


def test_the_sdk_decodes_the_scores_of_a_prompt() -> None:
    asked = torch.full((3, 2), -1)
    asked[1] = torch.tensor([2, 3])
    sent = types.TensorData.from_torch_sparse(asked, pad_value=-1)
    body = {
        "prompt_logprobs": True,
        "topk_prompt_logprobs": 2,
        "prompt_logprobs_last_n": 2,
        "target_prompt_logprobs": {
            "data": sent.tolist() if sent.sparse_crow_indices is None else sent._numpy.tolist(),
            "shape": [3, 2],
            "sparse_crow_indices": sent.sparse_crow_indices,
            "sparse_col_indices": sent.sparse_col_indices,
        },
    }
    query = PromptQuery.from_request(body, (0, 1, 2, 3))
    distribution = torch.arange(12, dtype=torch.float32).reshape(3, 4) / -10
    decoded = deserialize_proto_response(sampled_body([], query.scores(distribution), 4), types.SampleResponse)
    assert decoded.prompt_logprobs == pytest.approx([None, None, -0.6, -1.1])
    assert decoded.topk_prompt_logprobs[:2] == [None, None]
    assert decoded.topk_prompt_logprobs[3] == [(0, pytest.approx(-0.8)), (1, pytest.approx(-0.9))]
    expected = torch.zeros(3, 2)
    expected[1] = torch.tensor([-0.6, -0.7])
    assert torch.allclose(decoded.target_prompt_logprobs.to_torch(), expected)


@given(st.lists(st.tuples(st.integers(0, 3), st.lists(FLOATS, max_size=4)), min_size=1, max_size=5))
def test_the_sdk_decodes_the_log_probabilities(rows) -> None:
    body = trained_body([row for _, row in rows], [skipped for skipped, _ in rows], {"loss:sum": 1.5})
    output = deserialize_proto_response(body, types.ForwardBackwardOutput)
    assert output.metrics == {"loss:sum": 1.5}
    for (skipped, row), decoded in zip(rows, output.loss_fn_outputs, strict=True):
        assert decoded["logprobs"].tolist() == [0.0] * skipped + row


@given(st.lists(st.tuples(TOKENS, st.sampled_from(["stop", "length"])), min_size=1, max_size=3), st.integers(0, 3))
def test_the_sdk_decodes_the_replies(given_, scored: int) -> None:
    replies = [Reply("", tuple(tokens), (-1.0,) * len(tokens), reason) for tokens, reason in given_]
    scores = PromptScores(logprobs=np.full(scored, -2.0))
    decoded = deserialize_proto_response(sampled_body(replies, scores, 4), types.SampleResponse)
    assert [(list(s.tokens), s.stop_reason) for s in decoded.sequences] == [(t, r) for t, r in given_]
    assert list(decoded.prompt_logprobs) == [None] * (4 - scored) + [-2.0] * scored


def test_a_prompt_of_one_token_has_no_scores() -> None:
    query = PromptQuery.from_request({"prompt_logprobs": True, "topk_prompt_logprobs": 2}, (3,))
    assert query.positions == 0
    decoded = deserialize_proto_response(sampled_body([], query.scores(torch.zeros(0, 4)), 1), types.SampleResponse)
    assert (decoded.prompt_logprobs, decoded.topk_prompt_logprobs) == ([None], [None])


@given(st.text(max_size=40))
def test_no_checkpoint_name_leaves_the_state_directory(tmp_path_factory, name: str) -> None:
    store = Store(tmp_path_factory.getbasetemp() / "names")
    inside = (store.directory / "checkpoints").resolve()
    for uri in (f"tinker://run/weights/{name}", f"tinker://{name}/weights/x", f"tinker://run/{name}/x"):
        try:
            folder = store.folder(CheckpointPath.parse(uri))
        except UsageError:
            continue
        assert folder.resolve().is_relative_to(inside)
        assert len(Path(folder).relative_to(store.directory / "checkpoints").parts) == 3
