"""Tinker's protocol buffers: parses training requests and encodes results. All other bodies are JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import zstandard
from google.protobuf.message import DecodeError
from tinker.proto import tinker_public_pb2 as pb

from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.policies import Reply
from kernelrl_plugin_torch.learner import Datum

__all__ = ["LOSSES", "TrainingRequest", "read_training_request", "sampled_body", "trained_body"]

LOSSES = frozenset({"cross_entropy", "importance_sampling", "ppo", "cispo"})
UNSERVED_LOSSES = frozenset({"dro", "gspo", "stable_reinforce"})
"""Losses of the SDK whose formulas the service does not publish."""
_NUMBERS: dict[int, Any] = {pb.DTYPE_FLOAT32: np.float32, pb.DTYPE_INT64: np.int64, pb.DTYPE_INT32: np.int32}
_MAX_BODY_BYTES = 1 << 30


@attrs.frozen
class TrainingRequest:
    """A forward pass, with or without gradients."""

    run: str
    number: int
    """Sequence number of the request within the run."""
    loss: str
    bounds: tuple[float, float]
    """Clipping bounds of the ratio, for clipped losses."""
    ratio: str
    """`token` or `sequence`: the probability ratio of each token, or one ratio for the whole reply."""
    forward_only: bool
    data: tuple[Datum, ...]
    skipped: tuple[int, ...]
    """[datum] number of context tokens; 0 is returned as their log-probability."""


def read_training_request(body: bytes, encoding: str) -> TrainingRequest:
    """Parse a training request of the SDK.

    Raises:
        UsageError: the request is damaged, or has an unsupported option.
    """
    message = pb.ForwardBackwardRequest()
    try:
        if encoding == "zstd":
            body = zstandard.ZstdDecompressor().decompress(body, max_output_size=_MAX_BODY_BYTES)
        message.ParseFromString(body)
    except (DecodeError, zstandard.ZstdError) as error:
        raise UsageError(f"the training request cannot be read: {error}") from error
    if message.loss_fn not in LOSSES:
        known = "does not serve the" if message.loss_fn in UNSERVED_LOSSES else "knows no"
        raise UsageError(f"this server {known} loss {message.loss_fn!r}; it has {', '.join(sorted(LOSSES))}")
    options = dict(message.loss_fn_config) | {k: v.number for k, v in message.loss_fn_config_v2.items()}
    bounds = (options.get("clip_low_threshold", 0.8), options.get("clip_high_threshold", 1.2))
    read = [_read_datum(datum, message.loss_fn, message.forward_only) for datum in message.data]
    return TrainingRequest(
        run=message.model_id,
        number=message.seq_id,
        loss=message.loss_fn,
        bounds=bounds,
        # `sequence_ratio` is an extension of this server.
        ratio="sequence" if options.get("sequence_ratio") else "token",
        forward_only=message.forward_only,
        data=tuple(datum for datum, _ in read),
        skipped=tuple(skipped for _, skipped in read),
    )


def _read_datum(sent: Any, loss: str, forward_only: bool) -> tuple[Datum, int]:
    """A datum as prompt and reply, and its number of skipped tokens; the reply starts at the loss's first token."""
    for chunk in sent.model_input:
        if not chunk.HasField("encoded_text"):
            raise UsageError("this server supports only text; the request has an image or audio")
    given = [np.frombuffer(chunk.encoded_text.tokens, np.int32) for chunk in sent.model_input]
    tokens = np.concatenate(given) if given else np.zeros(0, np.int32)
    inputs = {name: _read_tensor(name, tensor) for name, tensor in sent.loss_fn_inputs.items()}
    targets = inputs.get("target_tokens")
    if targets is None or targets.ndim != 1 or len(targets) != len(tokens) or not len(tokens):
        raise UsageError("target_tokens must be one-dimensional, with as many tokens as model_input and at least 1")
    sampled, advantages = _per_token(inputs, loss, len(tokens))
    counts = np.flatnonzero((sampled != 0) | (advantages != 0))
    # Tokens before the first token of the loss are context; a forward-only pass returns all log-probabilities.
    first = 0 if forward_only else int(counts[0]) if len(counts) else len(tokens) - 1
    if not np.array_equal(tokens[first + 1 :], targets[first:-1]):
        raise UsageError("target_tokens must be model_input shifted by one; this server supports no other targets")
    datum = Datum(
        tuple(tokens[: first + 1].tolist()),
        tuple(targets[first:].tolist()),
        sampled[first:].tolist(),
        advantages[first:].tolist(),
    )
    return datum, first


def _per_token(inputs: Mapping[str, np.ndarray], loss: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Sampler log-probabilities and advantages, [n] each; for `cross_entropy` the weights are the advantages."""
    if loss == "cross_entropy":
        wanted = {"weights": inputs.get("weights", np.ones(n, np.float32))}
    else:
        wanted = {name: inputs.get(name) for name in ("logprobs", "advantages")}
    for name, values in wanted.items():
        if values is None or values.shape != (n,):
            raise UsageError(f"loss {loss} needs {name}: one number for each of the {n} tokens")
    rows = [np.asarray(values, np.float32) for values in wanted.values()]
    return (np.zeros(n, np.float32), rows[0]) if loss == "cross_entropy" else (rows[0], rows[1])


def _read_tensor(name: str, tensor: Any) -> np.ndarray:
    if tensor.HasField("sparse_csr") or tensor.dtype not in _NUMBERS:
        raise UsageError(f"{name}: this server supports only dense float32 and int64 tensors")
    values = np.frombuffer(tensor.dense, _NUMBERS[tensor.dtype])
    return values.reshape(tuple(tensor.shape)) if len(tensor.shape) > 1 else values


def trained_body(logprobs: Sequence[Sequence[float]], skipped: Sequence[int], metrics: Mapping[str, float]) -> bytes:
    """The encoded result of a training request.

    Args:
        logprobs: [datum][token of the reply] log-probabilities.
        skipped: [datum] number of context tokens, see `TrainingRequest`.
        metrics: name with reduction, such as `loss:sum` -> value.
    """
    message = pb.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord")
    record = message.loss_fn_outputs.add()
    record.num_datums = len(logprobs)
    arrays = [np.asarray([0.0] * n + list(row), np.float32) for n, row in zip(skipped, logprobs, strict=True)]
    tensor = record.fields["logprobs"]
    tensor.dtype = pb.DTYPE_FLOAT32
    tensor.data = b"".join(array.tobytes() for array in arrays)
    # Offsets are in bytes, not in elements.
    tensor.offsets = np.cumsum([0] + [array.nbytes for array in arrays]).astype(np.int64).tobytes()
    for name, value in metrics.items():
        message.metrics[name] = value
    return message.SerializeToString()


def sampled_body(replies: Sequence[Reply], prompt_logprobs: Sequence[float] | None, prompt_tokens: int) -> bytes:
    """The encoded result of a sampling request.

    Args:
        prompt_logprobs: log-probabilities of the last tokens of the prompt; NaN is sent for the others.
        prompt_tokens: number of prompt tokens.
    """
    message = pb.SampleResponse()
    for reply in replies:
        message.sequences.append(
            pb.SampledSequence(
                stop_reason=pb.STOP_REASON_STOP if reply.stop_reason == "stop" else pb.STOP_REASON_LENGTH,
                tokens=np.asarray(reply.tokens, np.int32).tobytes(),
                logprobs=np.asarray(reply.logprobs, np.float32).tobytes(),
            )
        )
    if prompt_logprobs is not None:
        unknown = [float("nan")] * (prompt_tokens - len(prompt_logprobs))
        message.prompt_logprobs = np.asarray([*unknown, *prompt_logprobs], np.float32).tobytes()
    return message.SerializeToString()
