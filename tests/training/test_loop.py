"""The training loop with a fake policy and environment: training samples, rows, resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from kernelrl_core.algorithms import advantages
from kernelrl_core.api.errors import InfrastructureError, KernelRLError, LookupFailed, UsageError
from kernelrl_core.api.loggers import Logger
from kernelrl_core.monitoring.loggers import LoggerThreads
from kernelrl_core.recipe.explanations import metric_of
from kernelrl_core.recipe.schema import (
    Advance,
    CurriculumSettings,
    CurriculumStage,
    Difficulty,
    EpisodeSettings,
    EvalSettings,
    Extension,
    Recipe,
    ReturnSettings,
    SamplingOptions,
    TrainSettings,
    VerifySettings,
)
from kernelrl_core.rollout.session import require_learning
from kernelrl_core.runs.checkpoints import choose_checkpoint
from kernelrl_core.runs.directory import RunDir
from kernelrl_core.types import SampleId
from kernelrl_testing.fakes import FakeEnvironment, FakePolicy, FakeTasks, numbered_tasks
from kernelrl_testing.training import make_recipe, train_here


class Policy(FakePolicy):
    """Raises infrastructure errors for the requests `fail_at`, counted from 1."""

    fail_at: frozenset[int] = frozenset()

    async def before(self, method: str, argument: Any) -> None:
        if method == "sample" and self.calls.count("sample") in self.fail_at:
            raise InfrastructureError("the sampler did not reply")
        await super().before(method, argument)


RECIPE = make_recipe(
    seed=3,
    episode=EpisodeSettings(turns=2),
    returns=ReturnSettings(gamma=0.4),
    sampling=SamplingOptions(max_tokens=10),
    train=TrainSettings(tasks_per_step=2, group_size=4, steps=4, learning_rate=0.5, loss="ppo", keep_checkpoints=2),
    eval=EvalSettings(every=2, at_start=True, at_end=True, samples=2),
)

COURSE = attrs.evolve(
    RECIPE,
    train=attrs.evolve(RECIPE.train, steps=6),
    curriculum=CurriculumSettings(
        (
            CurriculumStage(levels=(1,), until=Advance(above=0.2, over=2)),
            CurriculumStage(levels=(1, 2), max_steps=2),
            CurriculumStage(),
        ),
        Difficulty(),
    ),
    eval=EvalSettings(),
)


@attrs.define
class Outcome_:
    run: RunDir
    policy: Policy
    environment: FakeEnvironment
    said: list[str]
    finished: bool

    def rows(self, name: str) -> list[dict[str, Any]]:
        return self.run.rows(name)

    def metrics(self) -> list[dict[str, Any]]:
        return [{k: v for k, v in row.items() if not k.startswith(("time/", "cost/"))} for row in self.rows("metrics")]

    def divided_by(self, step: int, denominator: float) -> bool:
        """Whether the loss denominator of a step is this: token advantages are those of the samples divided by it."""
        whole = {row["sample"]: row["advantage"] for row in self.rows("credits")}
        samples = [sample for substep in self.policy.updates[step].substeps for sample in substep]
        assert samples
        return all(sample.advantages == (whole[sample.id] / denominator,) * len(sample.tokens) for sample in samples)


def begin(path: Path, *, resume: bool = False, recipe: Recipe = RECIPE, stop_after: int = 99, **hooks: Any) -> Outcome_:
    run = RunDir(path) if resume else RunDir.create(path, {"seed": recipe.seed}, {})
    policy, said = Policy(weight=0.3), []
    policy.fail_at = frozenset(hooks.get("fail_at", ()))
    environment = FakeEnvironment(
        tasks=FakeTasks(numbered_tasks(train=5, held_out=3)),
        errors={where: InfrastructureError("lost") for where in hooks.get("lose", ())},
    )
    finished = train_here(
        run,
        recipe,
        environment,
        policy,
        hooks.get("estimator", advantages.grpo),
        *hooks.get("subscribers", ()),
        say=said.append,
        stop_requested=lambda: len(policy.updates) >= stop_after,
    )
    return Outcome_(run, policy, environment, said, finished)


def test_a_run_writes_every_row_once(tmp_path: Path) -> None:
    done = begin(tmp_path / "run")
    assert done.finished
    ids = [row["sample"] for row in done.rows("samples")]
    assert len(ids) == len(set(ids)) == 4 * 2 * 4 * 2
    assert [row["sample"] for row in done.rows("credits")] == sorted(ids, key=lambda s: tuple(map(int, s.split("."))))
    assert [row["step"] for row in done.rows("metrics")] == [0, 1, 2, 3]
    assert done.rows("checkpoints")[-1]["metrics"] == done.rows("metrics")[-1]
    assert sorted(p.name for p in done.run.checkpoints.iterdir()) == ["000003", "000004"]
    assert len({settings.seed for _, settings in done.policy.requests}) == len(done.policy.requests)


def test_the_best_checkpoint_by_a_held_out_metric_is_kept(tmp_path: Path) -> None:
    recipe = attrs.evolve(
        RECIPE,
        train=attrs.evolve(RECIPE.train, steps=8, keep_checkpoints=1, checkpoint_every=3, keep_best="eval/pass@1"),
    )
    done = begin(tmp_path / "run", recipe=recipe)
    rows = done.rows("checkpoints")
    assert [row["name"] for row in rows] == ["000002", "000003", "000004", "000006", "000008"]
    measured = {row["name"]: row["metrics"]["eval/pass@1"] for row in rows if "eval/pass@1" in row["metrics"]}
    best = max(measured, key=lambda name: measured[name])  # the first one with the highest value
    assert [row["name"] for row in rows if row["best"]][-1] == best
    assert sorted(path.name for path in done.run.checkpoints.iterdir()) == sorted({best, "000008"})
    assert choose_checkpoint(done.run, "best")["name"] == best


def test_without_keep_best_no_checkpoint_is_the_best(tmp_path: Path) -> None:
    done = begin(tmp_path / "run")
    with pytest.raises(LookupFailed, match=r"no checkpoint of run .* is marked as the best one"):
        choose_checkpoint(done.run, "best")


REFILL = attrs.evolve(
    RECIPE,
    episode=EpisodeSettings(turns=1),
    train=attrs.evolve(RECIPE.train, refill=2, group_size=2, learning_rate=0.0, keep_checkpoints=None),
    eval=EvalSettings(),
)


def test_uniform_groups_are_replaced_by_groups_of_other_tasks(tmp_path: Path) -> None:
    plain = begin(tmp_path / "plain", recipe=attrs.evolve(REFILL, train=attrs.evolve(REFILL.train, refill=0)))
    done = begin(tmp_path / "run", recipe=REFILL)
    refilled = [row["batch/refilled"] for row in done.rows("metrics")]
    assert sum(refilled) > 0
    for step, extra in enumerate(refilled):
        rows = [row for row in done.rows("credits") if row["step"] == step]
        trained = {row["sample"].split(".")[1] for row in rows if not row["reason"]}
        trained_before = [row for row in plain.rows("credits") if row["step"] == step and not row["reason"]]
        assert [row for row in rows if row in trained_before] == trained_before
        assert len(trained) <= 2
        assert extra == 0 or len(trained_before) < 4
        tasks = [row["task_id"] for row in done.rows("samples") if row["step"] == step]
        assert len(set(tasks)) == 2 + extra
        # Two groups have a signal, or two rounds, or the five tasks, were not enough.
        assert len(trained) == 2 or extra >= 2


def test_the_loss_denominator_of_a_refilled_step_counts_the_groups_with_a_signal(tmp_path: Path) -> None:
    done = begin(tmp_path / "run", recipe=REFILL)
    updates = iter(done.policy.updates)
    for row in done.rows("metrics"):
        if not row["train/skipped"]:
            samples = next(updates).substeps[0]
            whole = {credit["sample"]: credit["advantage"] for credit in done.rows("credits")}
            # Two tokens a reply.
            assert samples[0].advantages[0] == whole[samples[0].id] / (2 * len(samples))


@pytest.mark.parametrize("cut", [1, 3, 5, 8, 11])
def test_a_refilled_step_that_is_cut_off_resumes_to_the_same_rows(tmp_path: Path, cut: int) -> None:
    whole = begin(tmp_path / "whole", recipe=REFILL)
    run = RunDir.create(tmp_path / "run", {"seed": REFILL.seed}, {})
    run.unlock()
    lines = whole.run.journal_path("samples").read_text().splitlines(keepends=True)
    run.journal_path("samples").write_text("".join(lines[:cut]))
    again = begin(tmp_path / "run", resume=True, recipe=REFILL)
    assert again.rows("credits") == whole.rows("credits")
    assert again.metrics() == whole.metrics()


def test_training_consumes_samples_in_canonical_order(tmp_path: Path) -> None:
    for step in begin(tmp_path / "run").policy.updates:
        ids = [tuple(map(int, sample.id.split("."))) for substep in step.substeps for sample in substep]
        assert ids == sorted(ids)


def test_held_out_evaluation_runs_at_start_in_between_and_at_the_end(tmp_path: Path) -> None:
    rows = begin(tmp_path / "run").rows("metrics")
    assert "eval_start/pass@1" in rows[0]
    assert ["eval/pass@1" in row for row in rows] == [False, True, False, True]


@pytest.mark.parametrize(("every", "base"), [(1, RECIPE), (3, RECIPE), (1, COURSE), (3, COURSE)])
def test_run_cut_anywhere_ends_like_an_uninterrupted_one(tmp_path: Path, every: int, base: Recipe) -> None:
    """A crash can leave any prefix of any journal; the resumed run has equal metrics and weights."""
    recipe = attrs.evolve(base, train=attrs.evolve(base.train, checkpoint_every=every, keep_checkpoints=None))
    whole = begin(tmp_path / "whole", recipe=recipe)
    lines = whole.run.journal_path("samples").read_text().splitlines(keepends=True)
    evals = whole.run.journal_path("eval_samples").read_text().splitlines(keepends=True)
    for cut in (0, 1, 7, 16, 17, 33, 50, 63):
        path = tmp_path / f"cut{cut}"
        run = RunDir.create(path, {"seed": 3}, {})
        run.unlock()
        run.journal_path("samples").write_text("".join(lines[:cut]) + lines[cut][: len(lines[cut]) // 2])
        done_steps = cut // 16 // every * every
        run.journal_path("checkpoints").write_text(
            "".join(json.dumps(row) + "\n" for row in whole.rows("checkpoints") if row["step"] < done_steps)
        )
        run.journal_path("eval_samples").write_text("".join(evals[: 6 if cut else 0]))
        for row in whole.rows("checkpoints"):
            if row["step"] < done_steps:
                saved = run.checkpoints / row["name"]
                saved.mkdir()
                (saved / "weight.json").write_text((whole.run.checkpoints / row["name"] / "weight.json").read_text())
        again = begin(path, resume=True, recipe=recipe)
        # Rows are completed from the checkpoint rows: only the row of the last one can be missing.
        committed = {row["step"] for row in whole.rows("checkpoints") if row["step"] < done_steps}
        expected = [row for row in whole.metrics() if row["step"] >= max(committed, default=0)]
        assert again.metrics() == expected
        assert again.policy.weight == whole.policy.weight
        ids = [row["sample"] for row in again.rows("samples")]
        assert len(ids) == len(set(ids))
        assert len(ids) == len(lines)


def test_stopping_after_a_step_saves_and_a_later_resume_finishes(tmp_path: Path) -> None:
    whole = begin(tmp_path / "whole")
    first = begin(tmp_path / "run", stop_after=2)
    assert not first.finished
    assert [row["step"] for row in first.rows("metrics")] == [0, 1]
    rest = begin(tmp_path / "run", resume=True)
    assert rest.finished
    assert rest.metrics() == whole.metrics()
    assert rest.policy.weight == whole.policy.weight
    # The state of the retriever is part of a checkpoint.
    assert rest.environment.observed == whole.environment.observed == len(whole.rows("credits"))


def test_step_without_signal_skips_the_update_and_has_its_row(tmp_path: Path) -> None:
    done = begin(tmp_path / "run", estimator=lambda returns: [[0.0] * len(row) for row in returns])
    assert not done.policy.updates
    assert [row["train/skipped"] for row in done.rows("metrics")] == [1.0] * 4
    assert {row["reason"] for row in done.rows("credits")} == {"uniform"}
    assert done.rows("metrics")[0]["uniform_group_frac"] == 1.0


def test_lost_turn_ends_and_masks_its_episode(tmp_path: Path) -> None:
    lost = SampleId(0, 0, 1, 1)
    done = begin(tmp_path / "run", lose={lost})
    credit = {row["sample"]: row for row in done.rows("credits")}
    assert (credit["0.0.1.1"]["reason"], credit["0.0.1.1"]["advantage"]) == ("infra_error", None)
    assert credit["0.0.1.0"]["reason"] == "incomplete"
    assert done.rows("metrics")[0]["infra_rate"] == 1 / 16
    assert not any(sample.id.startswith("0.0.1.") for part in done.policy.updates[0].substeps for sample in part)


def test_group_with_too_few_valid_episodes_is_masked(tmp_path: Path) -> None:
    done = begin(tmp_path / "run", lose={SampleId(0, 0, attempt, 0) for attempt in range(3)})
    reasons = {row["sample"]: row["reason"] for row in done.rows("credits")}
    assert reasons["0.0.3.0"] == reasons["0.0.3.1"] == "small_group"


def test_sampling_error_is_counted_and_not_fatal(tmp_path: Path) -> None:
    done = begin(tmp_path / "run", fail_at={30})
    assert [row["outcome/infra_error"] > 0 for row in done.rows("metrics")].count(True) == 1


def test_step_without_valid_turns_fails_the_run_and_is_repeated(tmp_path: Path) -> None:
    everything = {SampleId(1, index, attempt, 0) for index in range(2) for attempt in range(4)}
    with pytest.raises(KernelRLError, match="every sample of step 2 was lost"):
        begin(tmp_path / "run", lose=everything)
    whole, again = begin(tmp_path / "whole"), begin(tmp_path / "run", resume=True)
    assert again.metrics() == whole.metrics()


def test_failing_estimator_is_named(tmp_path: Path) -> None:
    def broken(returns: Any) -> Any:
        raise RuntimeError("oops")

    with pytest.raises(KernelRLError, match="advantage 'grpo' failed in estimate: RuntimeError: oops"):
        begin(tmp_path / "run", estimator=broken)


def test_failing_logger_does_not_stop_the_run(tmp_path: Path) -> None:
    class Broken(Logger):
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError("no tracker")

    observers = LoggerThreads({"mine": Broken()})
    assert begin(tmp_path / "run", subscribers=[observers]).finished
    observers.finish("finished")


def test_single_turn_training_uses_the_same_loop(tmp_path: Path) -> None:
    single = attrs.evolve(RECIPE, episode=EpisodeSettings(turns=1))
    row = begin(tmp_path / "run", recipe=single).rows("metrics")[0]
    assert row["multiturn/avg_turns"] == 1
    assert row["multiturn/success_rate"] == row["kernel/correct_rate"] == row["multiturn/turn_0/correct_rate"]
    assert row["reward/discounted_mean"] == row["reward/mean"]


def test_stop_correct_ends_the_episode_at_a_correct_kernel(tmp_path: Path) -> None:
    recipe = attrs.evolve(RECIPE, episode=EpisodeSettings(turns=3, stop="correct"))
    for row in (done := begin(tmp_path / "run", recipe=recipe)).rows("samples"):
        later = {**row, "turn": row["turn"] + 1}
        following = [
            r
            for r in done.rows("samples")
            if r["sample"] == f"{later['step']}.{later['task_index']}.{later['attempt']}.{later['turn']}"
        ]
        assert bool(following) == (row["outcome"] != "correct" and row["turn"] < 2)


def test_reply_limit_rises_at_the_step_of_the_extension(tmp_path: Path) -> None:
    sampling = attrs.evolve(RECIPE.sampling, extend=Extension(2, 20))
    recipe = attrs.evolve(
        RECIPE, sampling=sampling, eval=EvalSettings(), train=attrs.evolve(RECIPE.train, length_norm="max_tokens")
    )
    done = begin(tmp_path / "run", recipe=recipe)
    assert [settings.max_tokens for _, settings in done.policy.requests] == [10] * 32 + [20] * 32
    assert [done.divided_by(step, n) for step, n in enumerate((160, 160, 320, 320))] == [True] * 4


def test_loss_denominator_counts_filtered_samples(tmp_path: Path) -> None:
    done = begin(tmp_path / "run")
    assert len(done.policy.updates) == 4
    assert all(done.divided_by(step, 16 * 2) for step in range(4))


def test_cache_hits_count_kernels_seen_before_in_canonical_order(tmp_path: Path) -> None:
    rows = begin(tmp_path / "run").rows("metrics")
    assert all(0 <= row["cache_hit"] <= 1 for row in rows)
    assert rows[0]["cache_hit"] >= 12 / 16  # two tasks with two kernels each


def test_two_runs_in_one_process_are_independent(tmp_path: Path) -> None:
    assert begin(tmp_path / "a").metrics() == begin(tmp_path / "b").metrics()


def test_correct_turns_are_verified_if_the_recipe_sets_verify(tmp_path: Path) -> None:
    twice = attrs.evolve(RECIPE, verify=VerifySettings(train=1.0))
    rows = begin(tmp_path / "run", recipe=twice).rows("samples")
    assert {row["verified"] for row in rows if row["outcome"] != "correct"} <= {None}
    assert {row["verified"] for row in rows if row["outcome"] == "correct"} == {True, False}
    assert {row["verified"] for row in begin(tmp_path / "once").rows("samples")} == {None}


@pytest.mark.parametrize("every", [1, 3])
def test_resumed_curriculum_draws_the_same_tasks(tmp_path: Path, every: int) -> None:
    """A run stopped after each step and cut within the next ends like an uninterrupted one."""
    recipe = attrs.evolve(COURSE, train=attrs.evolve(COURSE.train, checkpoint_every=every, keep_checkpoints=None))
    whole = begin(tmp_path / "whole", recipe=recipe)
    tasks = [row["task_id"] for row in whole.rows("samples")]
    assert [row["curriculum/stage"] for row in whole.rows("metrics")] == [0, 0, 1, 1, 2, 2]
    for stop in range(1, 6):
        path = tmp_path / f"stop{stop}"
        begin(path, recipe=recipe, stop_after=stop)
        again = begin(path, recipe=recipe, resume=True)
        assert again.metrics() == whole.metrics()
        assert again.policy.weight == whole.policy.weight
        assert sorted(row["task_id"] for row in again.rows("samples")) == sorted(tasks)


def test_curriculum_prints_the_start_of_a_stage(tmp_path: Path) -> None:
    said = [line for line in begin(tmp_path / "run", recipe=COURSE).said if line.startswith("curriculum")]
    assert said == [
        "curriculum: stage 1 of 3, 3 tasks of level 1",
        "curriculum: stage 2 of 3, 5 tasks of levels 1, 2",
        "curriculum: stage 3 of 3, 5 tasks",
    ]


def test_unsupported_ratio_is_a_usage_error() -> None:
    recipe = attrs.evolve(RECIPE, train=attrs.evolve(RECIPE.train, ratio="sequence"))
    policy = FakePolicy()
    require_learning(recipe, policy)
    policy.capabilities = attrs.evolve(policy.capabilities, ratios=frozenset({"token"}))
    with pytest.raises(UsageError, match=r"train\.ratio: policy 'fake' with these options supports only ratio token"):
        require_learning(recipe, policy)


def test_the_ratio_reaches_the_policy(tmp_path: Path) -> None:
    recipe = attrs.evolve(RECIPE, train=attrs.evolve(RECIPE.train, ratio="sequence"))
    assert {step.loss.ratio for step in begin(tmp_path / "run", recipe=recipe).policy.updates} == {"sequence"}


def test_every_metric_of_a_run_is_defined(tmp_path: Path) -> None:
    twice = attrs.evolve(COURSE, verify=VerifySettings(train=1.0), eval=RECIPE.eval)
    runs = {"course": twice, "refill": REFILL}
    rows = [row for name, recipe in runs.items() for row in begin(tmp_path / name, recipe=recipe).rows("metrics")]
    names = {name for row in rows for name in row}
    assert {"verify/hack_gap", "batch/refilled"} <= names
    defined = {name: metric_of(name) for name in names - {"train/weight"}}  # of the fake policy
    general = ("eval/*", "time/*", "cost/*", "train/*")
    assert {name for name, metric in defined.items() if metric is None or metric.name in general} == set()
