"""Logger `tensorboard`, read back with TensorBoard's own reader."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorboard")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from kernelrl_plugin_tensorboard.config import TensorboardConfig
from kernelrl_plugin_tensorboard.logger import TensorboardLogger
from kernelrl_plugin_tensorboard.tags import CHARTS, TAGS, tagged
from kernelrl_testing.contracts import LoggerContract


class TestTensorboard(LoggerContract):
    component = "tensorboard"


def written(run: Path) -> EventAccumulator:
    return EventAccumulator(str(run / "tensorboard"), {"scalars": 0, "histograms": 0, "tensors": 0}).Reload()


def log(run: Path, rows: Mapping[int, Mapping[str, Any]], *, credits_: Any = (), every: int = 5) -> int:
    """Log these steps in one process; returns the last step held before."""
    logger = TensorboardLogger(TensorboardConfig(histograms_every=every))
    held = logger.start(run, {"train": {"steps": 3, "loss": "ppo"}, "levels": [1]}, 0)
    for step, row in rows.items():
        logger.credits(credits_)
        logger.step({"step": step, **row})
    logger.finish("finished")
    return held


def points(found: EventAccumulator, tag: str) -> list[tuple[int, float]]:
    return [(point.step, round(point.value, 6)) for point in found.Scalars(tag)]


def test_a_metric_is_under_its_tag_and_another_under_its_name(tmp_path: Path) -> None:
    log(tmp_path, {0: {"reward/mean": 0.25, "tokens/reply": 7}, 1: {"reward/mean": 0.5, "train/kl": None}})
    found = written(tmp_path)
    assert points(found, "Reward/Mean") == [(0, 0.25), (1, 0.5)]
    assert points(found, "tokens/reply") == [(0, 7.0)]
    assert "train/kl" not in found.Tags()["scalars"]


def test_a_level_and_a_reward_component_have_their_own_tags() -> None:
    metrics = {"level_3/correct_rate": 0.5, "reward_part/brief": 0.25, "eval/level_2/pass@1": 0.75}
    expected = {"PerLevel/Level3/CorrectRate": 0.5, "RewardComponents/brief": 0.25, "Eval/Level2/Pass@1": 0.75}
    assert tagged(metrics) == expected


def test_counts_are_those_of_the_valid_samples() -> None:
    metrics = {"kernel/correct_rate": 0.3, "batch/total_steps": 12, "infra_rate": 1 / 6}
    assert tagged(metrics)["Counts/correct"] == 3.0


def test_distributions_are_written_every_n_steps_without_samples_that_lack_the_value(tmp_path: Path) -> None:
    rows = [{"reward": number / 8, "advantage": -1.0, "speedup": None} for number in range(8)]
    rows[0] |= {"speedup": 2.5, "advantage": None}
    log(tmp_path, {step: {} for step in range(5)}, credits_=rows, every=2)
    found = written(tmp_path)
    rewards = found.Histograms("Distributions/Rewards")
    assert [event.step for event in rewards] == [0, 2, 4]
    value = rewards[0].histogram_value
    assert (value.min, value.max, value.num, value.sum, sum(value.bucket)) == (0.0, 0.875, 8.0, 3.5, 8.0)
    assert found.Histograms("Distributions/Speedups")[0].histogram_value.num == 1.0
    assert found.Histograms("Distributions/Advantages")[0].histogram_value.num == 7.0


def test_distributions_can_be_turned_off(tmp_path: Path) -> None:
    log(tmp_path, {0: {}}, credits_=[{"reward": 1.0, "advantage": 0.5, "speedup": 1.5}], every=0)
    assert written(tmp_path).Tags()["histograms"] == []


def test_a_held_out_evaluation_has_the_number_of_steps_before_it(tmp_path: Path) -> None:
    logger = TensorboardLogger(TensorboardConfig())
    logger.start(tmp_path, {}, 0)
    logger.evaluation({"step": 0, "eval/pass@1": 0.25, "eval/fast_2": 0.125})
    logger.evaluation({"step": 1, "eval/pass@1": 0.5})
    logger.step({"step": 0})
    logger.evaluation({"step": 40, "eval/pass@1": 0.75})
    logger.finish("finished")
    found = written(tmp_path)
    assert points(found, "Eval/Pass@1") == [(0, 0.25), (1, 0.5), (40, 0.75)]
    assert points(found, "Eval/Fast2x") == [(0, 0.125)]


def test_the_last_step_is_that_of_a_step_and_of_no_evaluation(tmp_path: Path) -> None:
    assert log(tmp_path, {0: {}, 1: {}}) == -1
    logger = TensorboardLogger(TensorboardConfig())
    assert logger.start(tmp_path, {}, 2) == 1
    logger.evaluation({"step": 40, "eval/pass@1": 0.75})
    logger.finish("finished")
    assert log(tmp_path, {}) == 1


def test_a_step_whose_record_was_cut_off_is_not_held(tmp_path: Path) -> None:
    log(tmp_path, {0: {"reward/mean": 0.5}, 1: {"reward/mean": 0.75}})
    (path,) = (tmp_path / "tensorboard").iterdir()
    path.write_bytes(path.read_bytes()[:-3])
    assert log(tmp_path, {1: {"reward/mean": 0.25}}) == 0
    assert points(written(tmp_path), "Reward/Mean") == [(0, 0.5), (1, 0.25)]


def test_the_settings_are_written_once_under_their_keys(tmp_path: Path) -> None:
    for step in range(2):
        log(tmp_path, {step: {}})
    found = written(tmp_path)
    content = found.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    settings = HParamsPluginData.FromString(content).session_start_info.hparams
    assert {key: value.number_value or value.string_value for key, value in settings.items()} == {
        "train.steps": 3.0,
        "train.loss": "ppo",
    }
    assert len(found.Tensors("custom_scalars__config__")) == 1


def test_charts_of_several_lines_are_laid_out(tmp_path: Path) -> None:
    log(tmp_path, {})
    (event,) = written(tmp_path).Tensors("custom_scalars__config__")
    layout = layout_pb2.Layout.FromString(event.tensor_proto.string_val[0])
    charts = {chart.title: tuple(chart.multiline.tag) for category in layout.category for chart in category.chart}
    assert charts == CHARTS


def test_charts_draw_tags_that_exist() -> None:
    known = {*TAGS.values(), "time/in_core"}
    for tags in CHARTS.values():
        assert all(any(re.fullmatch(tag, one) for one in known) for tag in tags)
