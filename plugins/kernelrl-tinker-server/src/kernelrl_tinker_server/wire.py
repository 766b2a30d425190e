"""Tinker's protocol buffers: parses training requests and encodes results. All other bodies are JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import zstandard
from google.protobuf.message import DecodeError
from tinker.proto import tinker_public_pb2 as pb

from kernelrl_core.api.errors import UsageError, nearest
from kernelrl_core.api.policies import Reply
from kernelrl_plugin_torch.learner import Datum
from kernelrl_tinker_server.scoring import PromptScores, dense_rows

__all__ = [
    "LOSSES",
    "TrainingRequest",
    "read_training_request",
    "refuse_stability_info",
    "sampled_body",
    "trained_body",
]

_CLIPPED = frozenset({"clip_low_threshold", "clip_high_threshold"})
LOSSES: Mapping[str, frozenset[str]] = {
    "cross_entropy": frozenset(),
    "importance_sampling": frozenset({"sequence_ratio"}),
    "ppo": _CLIPPED | {"sequence_ratio"},
    "cispo": _CLIPPED | {"sequence_ratio"},
    "gspo": _CLIPPED,
    "dro": frozenset({"beta"}),
}
"""Served losses -> their options in `loss_fn_config`. `sequence_ratio` is an extension of this server."""
_UNKNOWN = "stable_reinforce"
"""The loss of Tinker whose formula neither its SDK nor its cookbook contains."""
_LENGTH_OF_TOP_K = 4
"""Number of the field, whose name is `length` since SDK 0.29 and `prompt_length` before."""
_NO_TOP_K = -99999.0
"""Log-probability of a missing entry in Tinker's lists of the most probable tokens."""
_NUMBERS: dict[int, Any] = {pb.DTYPE_FLOAT32: np.float32, pb.DTYPE_INT64: np.int64, pb.DTYPE_INT32: np.int32}
_MAX_BODY_BYTES = 1 << 30


@attrs.frozen
class TrainingRequest:
    """A forward pass, with or without gradients."""

    run: str
    number: int
    """Sequence number of the request within the run."""
    loss: str
    """Name of the loss in `token_loss`."""
    bounds: tuple[float, float]
    """Clipping bounds of the ratio, for clipped losses."""
    ratio: str
    """`token` or `sequence`: the probability ratio of each token, or one ratio for the whole reply."""
    beta: float
    """Weight of the penalty of `dro`."""
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
    name = message.loss_fn
    # SDKs before 0.26 have only the first form.
    later_form = getattr(message, "loss_fn_config_v2", {})
    options = _read_options(
        name, dict(message.loss_fn_config) | {option: value.number for option, value in later_form.items()}
    )
    read = [_read_datum(datum, name, message.forward_only) for datum in message.data]
    if len({() if datum.targets is None else datum.targets.shape[1:] for datum, _ in read}) > 1:
        raise UsageError(
            "the data of a request have different numbers of targets per token", fix="send them in separate requests"
        )
    return TrainingRequest(
        run=message.model_id,
        number=message.seq_id,
        loss="ppo" if name == "gspo" else name,
        bounds=(options.get("clip_low_threshold", 0.8), options.get("clip_high_threshold", 1.2)),
        ratio="sequence" if name == "gspo" or options.get("sequence_ratio") else "token",
        beta=options.get("beta", 0.0),
        forward_only=message.forward_only,
        data=tuple(datum for datum, _ in read),
        skipped=tuple(skipped for _, skipped in read),
    )


def refuse_stability_info() -> UsageError:
    """The error for the loss `stable_reinforce`, and for samples that are recorded for it."""
    served = [name for name in LOSSES if name != "cross_entropy"]
    return UsageError(
        f"this server does not serve the loss {_UNKNOWN!r} (record_stability_info=True): "
        "Tinker's packages do not contain its formula",
        fix=f"train with loss_fn={', '.join(served[:-1])} or {served[-1]}",
    )


def _read_options(loss: str, options: Mapping[str, float]) -> Mapping[str, float]:
    """The options of a loss, if the server has the loss and all its options are known."""
    if loss == _UNKNOWN:
        raise refuse_stability_info()
    if loss not in LOSSES:
        close = nearest(loss, LOSSES)
        meant = f"; did you mean {close!r}?" if close else ""
        raise UsageError(f"this server has no loss {loss!r}; it has {', '.join(sorted(LOSSES))}{meant}")
    for name in options:
        if name not in LOSSES[loss]:
            listed = ", ".join(sorted(LOSSES[loss])) or "none"
            raise UsageError(f"loss_fn_config: loss {loss} has no option {name!r}; it has {listed}")
    if loss == "dro" and "beta" not in options:
        raise UsageError("loss dro needs beta, the weight of its penalty", fix='pass loss_fn_config={"beta": 0.05}')
    return options


def _read_datum(sent: Any, loss: str, forward_only: bool) -> tuple[Datum, int]:
    """A datum as prompt and reply, and its number of skipped tokens; the reply starts at the loss's first token."""
    for chunk in sent.model_input:
        if not chunk.HasField("encoded_text"):
            raise UsageError("this server supports only text; the request has an image or audio")
    given = [np.frombuffer(chunk.encoded_text.tokens, np.int32) for chunk in sent.model_input]
    tokens = np.concatenate(given) if given else np.zeros(0, np.int32)
    inputs = {name: _read_tensor(name, tensor) for name, tensor in sent.loss_fn_inputs.items()}
    targets = inputs.get("target_tokens")
    if targets is None or targets.ndim not in (1, 2) or len(targets) != len(tokens) or not len(tokens):
        raise UsageError("target_tokens must have one row for each token of model_input, and at least 1")
    if targets.ndim == 2 and loss != "cross_entropy":
        raise UsageError(
            f"target_tokens of loss {loss} must be one-dimensional; only cross_entropy takes several targets per token"
        )
    sampled, advantages = _per_token(inputs, loss, targets.shape)
    used = ((sampled != 0) | (advantages != 0)).reshape(len(tokens), -1).any(axis=1)
    counted = _read_ratio_mask(inputs, len(tokens)) if loss == "gspo" else None
    if counted is not None:
        used |= counted
    # Tokens before the first token of the loss are context; a forward-only pass returns all log-probabilities.
    counts = np.flatnonzero(used)
    first = int(counts[0]) if len(counts) else len(tokens) - 1
    if forward_only:
        first = 0
    following, wanted = tokens[first + 1 :], targets[first:]
    shifted = targets.ndim == 1 and np.array_equal(following, wanted[:-1])
    datum = Datum(
        tuple(tokens[: first + 1].tolist()),
        tuple(wanted.tolist()) if shifted else (*following.tolist(), 0),  # nothing depends on the last token
        sampled[first:].tolist(),
        advantages[first:].tolist(),
        counted=None if counted is None else counted[first:].tolist(),
        targets=None if shifted else wanted.astype(np.int64),
    )
    return datum, first


def _per_token(inputs: Mapping[str, np.ndarray], loss: str, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Sampler log-probabilities and advantages, of the targets' shape; for `cross_entropy` the weights are the
    advantages."""
    if loss == "cross_entropy":
        wanted = {"weights": inputs.get("weights", np.ones(shape, np.float32))}
    else:
        wanted = {name: inputs.get(name) for name in ("logprobs", "advantages")}
    for name, values in wanted.items():
        if values is None or values.shape != shape:
            each = f"the {shape[0]} tokens" if len(shape) == 1 else f"the {shape[1]} targets of the {shape[0]} tokens"
            raise UsageError(f"loss {loss} needs {name}: one number for each of {each}")
    for name in sorted(_CLIPPED & inputs.keys()):
        raise UsageError(
            f"this server does not support {name} of each token", fix="pass it for all tokens, in loss_fn_config"
        )
    rows = [np.asarray(values, np.float32) for values in wanted.values()]
    return (np.zeros(shape, np.float32), rows[0]) if loss == "cross_entropy" else (rows[0], rows[1])


def _read_ratio_mask(inputs: Mapping[str, np.ndarray], n: int) -> np.ndarray:
    """[n] True for the tokens whose mean log-ratio is the ratio of the sequence."""
    mask = inputs.get("sequence_ratio_mask")
    if mask is None or mask.shape != (n,) or not mask.any():
        raise UsageError(
            f"loss gspo needs sequence_ratio_mask: one number for each of the {n} tokens, 1 for those that were sampled"
        )
    return np.asarray(mask != 0)


def _read_tensor(name: str, tensor: Any) -> np.ndarray:
    """A dense tensor; the unlisted entries of a sparse one are 0."""
    if tensor.dtype not in _NUMBERS:
        raise UsageError(f"{name}: this server supports only float32 and int64 tensors")
    shape = tuple(tensor.shape)
    if not tensor.HasField("sparse_csr"):
        values = np.frombuffer(tensor.dense, _NUMBERS[tensor.dtype])
        return values.reshape(shape) if len(shape) > 1 else values
    sparse = tensor.sparse_csr
    ends, columns = (np.frombuffer(part, np.int64) for part in (sparse.crow_indices, sparse.col_indices))
    return dense_rows(name, np.frombuffer(sparse.values, _NUMBERS[tensor.dtype]), ends, columns, shape, 0)


def trained_body(logprobs: Sequence[Any], skipped: Sequence[int], metrics: Mapping[str, float]) -> bytes:
    """The encoded result of a training request.

    Args:
        logprobs: [datum] log-probabilities [token of the reply], or [token of the reply, target].
        skipped: [datum] number of context tokens, see `TrainingRequest`.
        metrics: name with reduction, such as `loss:sum` -> value.
    """
    message = pb.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord")
    record = message.loss_fn_outputs.add()
    record.num_datums = len(logprobs)
    rows = [np.asarray(row, np.float32) for row in logprobs]
    arrays = [
        np.concatenate([np.zeros((n, *row.shape[1:]), np.float32), row]) for n, row in zip(skipped, rows, strict=True)
    ]
    tensor = record.fields["logprobs"]
    tensor.trailing_shape.extend(max((row.shape[1:] for row in rows), default=()))
    tensor.dtype = pb.DTYPE_FLOAT32
    tensor.data = b"".join(array.tobytes() for array in arrays)
    # Offsets are in bytes, not in elements.
    tensor.offsets = np.cumsum([0] + [array.nbytes for array in arrays]).astype(np.int64).tobytes()
    for name, value in metrics.items():
        message.metrics[name] = value
    return message.SerializeToString()


def sampled_body(replies: Sequence[Reply], scores: PromptScores, prompt_tokens: int) -> bytes:
    """The encoded result of a sampling request.

    Args:
        scores: log-probabilities of the prompt's tokens.
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
    if scores.logprobs is not None:
        unknown = np.full(prompt_tokens - len(scores.logprobs), np.nan, np.float32)
        message.prompt_logprobs = np.concatenate([unknown, scores.logprobs]).astype(np.float32).tobytes()
    if scores.top is not None:
        tokens, logprobs = scores.top
        unknown_rows = ((prompt_tokens - len(tokens), 0), (0, 0))
        top = message.topk_prompt_logprobs
        length = top.DESCRIPTOR.fields_by_number[_LENGTH_OF_TOP_K].name
        setattr(top, length, prompt_tokens)
        top.k = tokens.shape[1]
        top.token_ids = np.pad(tokens, unknown_rows).astype(np.int32).tobytes()
        top.logprobs = np.pad(logprobs, unknown_rows, constant_values=_NO_TOP_K).astype(np.float32).tobytes()
    if scores.targets is not None:
        sent, values = message.target_prompt_logprobs, scores.targets.values.astype(np.float32)
        sent.dtype = pb.DTYPE_FLOAT32
        sent.shape.extend(scores.targets.cells.shape)
        if scores.targets.listed is None:
            sent.dense = values.tobytes()
        else:
            ends, columns = scores.targets.listed
            sent.sparse_csr.values = values.tobytes()
            sent.sparse_csr.crow_indices, sent.sparse_csr.col_indices = ends.tobytes(), columns.tobytes()
    return message.SerializeToString()
