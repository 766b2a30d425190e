"""The loop: single-turn and multi-turn training alike, from the first step to the last.

    play all attempts ─> credit ─> train ─> evaluate ─> checkpoint files ─> checkpoint row ─> metrics row ─> loggers

`kernelrl_core.training.gradient_stream` documents what overlaps. The checkpoint row is the commit point. Everything
before it is repeated after a crash, from the journalled samples and with equal results; what comes after it is made up
for.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import attrs

from kernelrl_core.algorithms.credit import Credit, assign_credit, loss_denominator, planned_samples, training_samples
from kernelrl_core.algorithms.loss_shaping import shape_samples, split_evenly
from kernelrl_core.errors import KernelRLError
from kernelrl_core.heldout.scoreboard import scoreboard
from kernelrl_core.heldout.split import rollout_split
from kernelrl_core.interfaces.advantages import AdvantageFunction
from kernelrl_core.interfaces.policies import TrainablePolicy
from kernelrl_core.monitoring.alarms import Alarms
from kernelrl_core.monitoring.costs import CostMeter, prices_of, spent_on_training, spent_on_turn
from kernelrl_core.monitoring.loggers import LoggerThreads
from kernelrl_core.monitoring.metrics import batch_metrics, credit_metrics, rollout_metrics, time_metrics
from kernelrl_core.plugins.boundary import plugin_boundary
from kernelrl_core.recipe.schema import EvalSettings, TrainSettings
from kernelrl_core.rollout.episode import Player, reply_limit
from kernelrl_core.rollout.groups import rollout_groups
from kernelrl_core.rollout.session import Session
from kernelrl_core.runs.checkpoints import checkpoint_name, load_checkpoint, prune_checkpoints, save_checkpoint, sweep
from kernelrl_core.runs.directory import RunDir, now
from kernelrl_core.runs.rows import why_lost
from kernelrl_core.runs.run_journal import RunJournal
from kernelrl_core.tasks.curriculum import TaskSchedule
from kernelrl_core.tasks.schedule import repeats_tasks
from kernelrl_core.tasks.selection import eval_tasks, training_tasks
from kernelrl_core.training.gradient_stream import GradientStream, Rollout, streaming_obstacle
from kernelrl_core.types import Group, Prompt, SampleId, Task, Turn
from kernelrl_core.types.training import Loss, LossSample, OptimizerSettings, TrainingSample, Update

__all__ = ["Display", "Training", "learning_rate"]

_log = logging.getLogger(__name__)


class Display(Protocol):
    """Shows a run to the user."""

    def say(self, text: str) -> None: ...

    def expect(self, what: str, samples: int) -> None:
        """A phase begins that takes at most so many samples."""
        ...

    def sample(self, turn: Turn) -> None: ...

    def step(self, row: Mapping[str, Any], n_steps: int) -> None: ...


@attrs.define(eq=False)
class Training:
    """A run in progress."""

    run: RunDir
    resolved: Mapping[str, Any]
    """The recipe as it is saved, for the loggers."""
    session: Session
    estimator: AdvantageFunction
    ledger: RunJournal
    observers: LoggerThreads
    display: Display
    stopping: Callable[[], bool]
    """Whether the user wants the run to end after the step."""
    _alarms: Alarms = attrs.field(factory=Alarms, init=False)
    _meter: CostMeter = attrs.field(init=False)
    _rollouts: dict[int, Rollout] = attrs.field(factory=dict, init=False)
    """Steps that are being sampled."""
    _updates: int = attrs.field(default=0, init=False)
    """Steps that the policy has learnt from."""
    _since: float = attrs.field(factory=time.monotonic, init=False)
    """When the last step ended."""

    def __attrs_post_init__(self) -> None:
        recipe, ledger = self.session.recipe, self.ledger
        self._meter = CostMeter(prices_of(recipe), recipe.cost.budget_usd, before=ledger.spent, booked=ledger.booked)
        self._updates = ledger.next_step

    async def go_on(self) -> bool:
        """Train from where the run stands. The answer is whether it is finished; if not, the user stopped it."""
        recipe, ledger = self.session.recipe, self.ledger
        tasks, left_out = training_tasks(self.session.environment.tasks, recipe.train)
        if left_out is not None:
            self.display.say(left_out)
        course = TaskSchedule(tasks, recipe)
        if repeats_tasks(len(tasks), recipe.train):
            self.display.say(
                f"only {len(tasks)} tasks for {recipe.train.tasks_per_step} places: tasks repeat in a step"
            )
        await self._restore(course)
        if ledger.lost:
            self.display.say(f"{ledger.lost} replies were under way when the run was interrupted; they are drawn again")
        self.observers.start(self.run.path, self.resolved, ledger.next_step)
        at_start = await self._evaluate(0) if recipe.eval.at_start and ledger.next_step == 0 else {}
        self._since = time.monotonic()
        try:
            for step in range(ledger.next_step, course.n_steps):
                if self.stopping():
                    return False
                if (line := course.stage_line(step)) is not None:
                    self.display.say(line)
                row = await self._step(step, course)
                if step == 0:
                    row |= {key.replace("eval", "eval_start", 1): value for key, value in at_start.items()}
                await self._close_step(step, course, row)
        finally:
            await asyncio.gather(*(rollout.cancel() for rollout in self._rollouts.values()))
        return True

    async def _step(self, step: int, course: TaskSchedule) -> dict[str, Any]:
        recipe, n_steps, begin = self.session.recipe, course.n_steps, time.monotonic()
        rate = learning_rate(recipe.train, step, n_steps)
        if recipe.sampling.concurrency is not None:
            # Later steps take the places that this one leaves free.
            self._sample_ahead(step, course)
        rollout = self._rollout(step, course)
        stream = self._gradient_stream(step, rate, rollout.planned)
        groups = await stream.follow(rollout)
        del self._rollouts[step]
        self._require_samples(step, groups)
        played = time.monotonic()
        self._sample_ahead(step, course)
        batch = sorted(stream.batch, key=lambda credit: credit.turn.id)
        rows = [credit.row() for credit in batch]
        await self.ledger.record_credits(rows)
        self.observers.credits(rows)
        await self.session.environment.observe(rows)
        learnt = await self._learn(step, stream, rate, rollout.planned)
        self._updates = step + 1
        trained = time.monotonic()
        row: dict[str, Any] = {"step": step}
        row |= batch_metrics(step, n_steps, groups, rate) | rollout_metrics(groups) | credit_metrics(batch)
        row |= course.learn(step, groups, row) | self._alarms.measure(groups)
        repeated = self.ledger.seen.share(credit.turn for credit in batch)
        row |= {"cache_hit": repeated} if repeated is not None else {}
        row |= learnt
        if _evaluates_after(recipe.eval, step, n_steps):
            if step + 1 < n_steps and not self.stopping():
                self._rollout(step + 1, course)  # both use the weights of now
            row |= await self._evaluate(step + 1)
        row |= time_metrics(groups)
        row |= {"time/rollout": played - begin, "time/train": trained - played}
        return row

    def _sample_ahead(self, step: int, course: TaskSchedule) -> None:
        """Begin the later steps that may be sampled before `step` is learnt from."""
        ahead = 0 if self.stopping() else self.session.recipe.train.staleness
        for later in range(step + 1, min(step + ahead + 1, course.n_steps)):
            self._rollout(later, course)

    def _rollout(self, step: int, course: TaskSchedule) -> Rollout:
        """The step's rollout, which begins now unless it has begun."""
        if step not in self._rollouts:
            tasks = course.batch(step)
            planned = planned_samples(self.session.recipe, len(tasks))
            self._rollouts[step] = Rollout.start(lambda complete: self._play(step, tasks, complete), planned)
        return self._rollouts[step]

    async def _play(self, step: int, tasks: Sequence[Task], complete: Callable[[int, Group], None]) -> list[Group]:
        recipe, session = self.session.recipe, self.session
        finished = self.ledger.finished_turns(step, tasks)

        async def beginning(where: SampleId, prompt: Prompt) -> None:
            self._meter.check()
            await self.ledger.begin("train", where)

        async def record(turn: Turn) -> None:
            row = await self.ledger.record_sample(turn)
            self._meter.add(spent_on_turn(turn))
            self.observers.turn(row)
            self.display.sample(turn)

        self.display.expect(f"step {step + 1}", len(tasks) * recipe.train.group_size * recipe.episode.turns)
        player = Player(
            recipe,
            session.policy,
            session.environment,
            "train",
            recipe.sampling.temperature,
            finished,
            record,
            beginning,
            lambda: self._updates,
            session.timeline,
            session.slots,
        )
        return await rollout_groups(player, step, tasks, recipe.train.group_size, complete)

    def _require_samples(self, step: int, groups: Sequence[Group]) -> None:
        episodes = [episode for group in groups for episode in group.episodes]
        if all(turn.masked for episode in episodes for turn in episode.turns):
            message, fix = why_lost(episodes)
            raise KernelRLError(
                f"every sample of step {step} was lost to the infrastructure; the last error: {message}",
                fix=f"{fix or 'mend it'}, then kernelrl resume {self.run.path}",
            )

    def _gradient_stream(self, step: int, rate: float, planned: int | None) -> GradientStream:
        recipe, policy = self.session.recipe, self._policy

        async def accumulate(samples: tuple[TrainingSample, ...]) -> None:
            shaped = shape_samples(samples, self._loss_denominator(step, [], planned))
            with self.session.timeline.span("training"), plugin_boundary(self.session.policy_label, "backward"):
                await policy.backward(shaped.samples, self._loss)
            self._meter.add(spent_on_training(_tokens(samples), recipe.train, scored=0))

        return GradientStream(
            lambda group: assign_credit([group], self._estimate, recipe.returns, recipe.train, recipe.seed),
            recipe.train.order,
            recipe.train.substeps,
            None if streaming_obstacle(recipe, policy.capabilities) else accumulate,
        )

    def _estimate(self, returns: Sequence[Sequence[float]]) -> list[list[float]]:
        with plugin_boundary(f"advantage {self.session.recipe.advantage.use!r}", "estimate"):
            return self.estimator(returns)

    async def _learn(self, step: int, stream: GradientStream, rate: float, planned: int | None) -> dict[str, float]:
        samples = training_samples(stream.batch)
        if not samples:
            return {"train/skipped": 1.0}
        self._meter.check()
        train, policy = self.session.recipe.train, self._policy
        with self.session.timeline.span("training"):
            shaped = shape_samples(
                samples,
                self._loss_denominator(step, stream.batch, planned),
                mismatch=train.mismatch,
                current=await self._logprobs(samples, "current") if train.mismatch is not None else None,
                kl=train.kl,
                reference=await self._logprobs(samples, "reference") if train.kl else None,
            )
            self._meter.add(spent_on_training(0, train, scored=_tokens(samples)))
            if not shaped.samples:
                return {"train/skipped": 1.0, **{f"train/{name}": value for name, value in shaped.metrics.items()}}
            update = Update(
                step=step,
                substeps=tuple(map(tuple, split_evenly(shaped.samples, train.substeps))),
                accumulated=tuple(stream.accumulated),
                loss=self._loss,
                optimizer=OptimizerSettings(
                    rate, train.beta1, train.beta2, train.eps, train.weight_decay, train.max_grad_norm
                ),
            )
            with plugin_boundary(self.session.policy_label, "update"):
                said = {**await policy.update(update), **shaped.metrics}
        self._meter.add(spent_on_training(_tokens(shaped.samples[stream.handed :]), train, scored=0))
        own = ("time/", "cost/")
        return {"train/skipped": 0.0} | {k if k.startswith(own) else f"train/{k}": v for k, v in said.items()}

    async def _logprobs(
        self, samples: Sequence[TrainingSample], weights: Literal["current", "reference"]
    ) -> Sequence[Sequence[float]]:
        with plugin_boundary(self.session.policy_label, "logprobs"):
            return await self._policy.logprobs(samples, weights)

    @property
    def _policy(self) -> TrainablePolicy:
        policy = self.session.policy
        assert isinstance(policy, TrainablePolicy), "checked before the run began"
        return policy

    @property
    def _loss(self) -> Loss:
        train = self.session.recipe.train
        return Loss(train.loss, train.clip_low, train.clip_high, train.ratio)

    def _loss_denominator(self, step: int, batch: Sequence[Credit], planned: int | None) -> float:
        recipe = self.session.recipe
        return loss_denominator(batch, recipe.train, reply_limit(recipe, step), planned)

    async def _evaluate(self, update: int) -> dict[str, Any]:
        session, settings, begin = self.session, self.session.recipe.eval, time.monotonic()
        tasks = eval_tasks(session.environment.tasks, settings)

        async def beginning(where: SampleId, prompt: Prompt) -> None:
            self._meter.check()
            await self.ledger.begin("eval", where)

        async def record(turn: Turn) -> None:
            await self.ledger.record_eval(turn)
            self._meter.add(spent_on_turn(turn))
            self.display.sample(turn)

        self.display.expect(
            f"evaluating {settings.split}", len(tasks) * settings.samples * session.recipe.episode.turns
        )
        finished = self.ledger.finished_evals(update, tasks)
        groups = await rollout_split(
            session, settings, update=update, finished=finished, record=record, beginning=beginning
        )
        board = scoreboard(groups, settings)
        numbers = {f"eval/{key}": value for key, value in board.items() if isinstance(value, int | float)}
        self.observers.evaluation({"step": update, **numbers})
        return numbers | {"time/eval": time.monotonic() - begin}

    async def _close_step(self, step: int, course: TaskSchedule, row: dict[str, Any]) -> None:
        recipe, policy, begin = self.session.recipe, self._policy, time.monotonic()
        last = step + 1 == course.n_steps
        if (step + 1) % recipe.train.checkpoint_every == 0 or last or self.stopping():
            name, label = checkpoint_name(step + 1), self.session.policy_label
            with self.session.timeline.span("saving"):
                state = await save_checkpoint(policy, self.run.checkpoints, name, component=label)
            row["time/save_checkpoint"] = time.monotonic() - begin
            row |= self._spent()
            loop = {"next_step": step + 1, **course.state(), **self._alarms.state(), **self.session.environment.state()}
            await self.ledger.commit(
                {"name": name, "step": step, "policy": state, "loop": loop, "metrics": row, "time": now()}
            )
            await asyncio.to_thread(prune_checkpoints, self.run.checkpoints, recipe.train.keep_checkpoints)
        else:
            row |= self._spent()
        await self.ledger.record_metrics(row)
        self.observers.step(row)
        self.display.step(row, course.n_steps)
        for line in self._alarms.after(row):
            self.display.say(f"{line}; {self.run.path}/samples.jsonl holds the evidence")

    def _spent(self) -> dict[str, float]:
        """Time and cost since the last step."""
        begin, self._since = self._since, time.monotonic()
        shares = self.session.timeline.shares(begin, self._since)
        return {f"time/in_{kind}": seconds for kind, seconds in shares.items()} | {
            "time/total": self._since - begin,
            **self._meter.book(),
        }

    async def _restore(self, course: TaskSchedule) -> None:
        sweep(self.run.checkpoints)
        await self.ledger.complete_metrics()
        for earlier in self.run.rows("metrics"):
            # Steps after the last checkpoint come again.
            if earlier["step"] < self.ledger.next_step:
                self._alarms.after(earlier)
        if (row := self.ledger.last_checkpoint) is not None:
            course.restore(row["loop"])
            self._alarms.restore(row["loop"])
            self.session.environment.restore(row["loop"])
            await load_checkpoint(self._policy, self.run.checkpoints, row, component=self.session.policy_label)
            _log.info("continuing at step %d from checkpoint %s", self.ledger.next_step, row["name"])


def _tokens(samples: Sequence[TrainingSample | LossSample]) -> int:
    return sum(len(sample.prompt_tokens) + len(sample.tokens) for sample in samples)


def _evaluates_after(settings: EvalSettings, step: int, n_steps: int) -> bool:
    due = settings.every > 0 and (step + 1) % settings.every == 0
    return due or (settings.at_end and step + 1 == n_steps)


def learning_rate(train: TrainSettings, step: int, n_steps: int) -> float:
    """Learning rate of a step: rises linearly over the first int(warmup_ratio * n_steps) steps."""
    warmup = int(train.warmup_ratio * n_steps)
    return train.learning_rate * min(1.0, (step + 1) / warmup) if warmup else train.learning_rate
