"""Event files of TensorBoard in one directory.

Records are appended with one system call each time, so that a crash leaves all records of a step or none.
"""

from __future__ import annotations

import io
import math
import os
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.plugins.custom_scalar import layout_pb2, metadata
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.summary.writer.record_writer import RecordWriter

__all__ = ["EventFile", "event_files", "histogram", "hyperparameters", "last_step", "layout", "scalars"]

_BINS = 30


class EventFile:
    """A new event file in a directory, which is created. Raises OSError."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        name = f"events.out.tfevents.{time.time():017.6f}.{socket.gethostname()}.{os.getpid()}"
        self._file = (directory / name).open("ab", buffering=0)
        self.append([Event(wall_time=time.time(), file_version="brain.Event:2")])

    def append(self, events: Iterable[Event]) -> None:
        """Write records. Raises OSError."""
        buffer = io.BytesIO()
        writer = RecordWriter(buffer)
        for event in events:
            writer.write(event.SerializeToString())
        self._file.write(buffer.getvalue())

    def close(self) -> None:
        self._file.close()


def event_files(directory: Path) -> list[Path]:
    """The event files in a directory and below, oldest first."""
    return sorted(directory.glob("**/events.out.tfevents.*"), key=lambda path: path.name)


def last_step(directory: Path, tag: str) -> int:
    """The largest step of the records in a directory that have a tag; -1 if there is none."""
    for path in reversed(event_files(directory)):
        events = map(Event.FromString, RawEventFileLoader(str(path)).Load())
        steps = [event.step for event in events if any(value.tag == tag for value in event.summary.value)]
        if steps:
            return max(steps)
    return -1


def scalars(values: Mapping[str, float]) -> list[Summary.Value]:
    """The values as scalars under their tags."""
    return [Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]


def histogram(tag: str, values: Sequence[float]) -> Summary.Value:
    """The distribution of at least one finite value."""
    counts, edges = np.histogram(values, bins=_BINS)
    proto = HistogramProto(
        min=min(values),
        max=max(values),
        num=len(values),
        sum=math.fsum(values),
        sum_squares=math.fsum(value * value for value in values),
        bucket_limit=edges[1:].tolist(),
        bucket=counts.tolist(),
    )
    return Summary.Value(tag=tag, histo=proto)


def hyperparameters(values: Mapping[str, bool | float | str], name: str) -> list[Summary.Value]:
    """The page "HParams" of a run."""
    return list(hparams_pb(dict(values), trial_id=name).value)


def layout(charts: Mapping[str, Sequence[str]]) -> Summary.Value:
    """The page "Custom Scalars": chart -> regular expressions of the tags that it shows."""
    categories: dict[str, list[layout_pb2.Chart]] = {}
    for chart, tags in charts.items():
        lines = layout_pb2.MultilineChartContent(tag=tags)
        categories.setdefault(chart.partition("/")[0], []).append(layout_pb2.Chart(title=chart, multiline=lines))
    page = layout_pb2.Layout(
        category=[layout_pb2.Category(title=title, chart=drawn) for title, drawn in categories.items()]
    )
    tensor = TensorProto(dtype=DT_STRING, string_val=[page.SerializeToString()])
    return Summary.Value(tag=metadata.CONFIG_SUMMARY_TAG, metadata=metadata.create_summary_metadata(), tensor=tensor)
