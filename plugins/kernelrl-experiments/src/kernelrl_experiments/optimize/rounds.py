"""The rounds of a search: sample, evaluate and record replies, until a limit is reached."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Literal

import attrs

from kernelrl_core.environment.one_kernel import why_untimed, with_timing
from kernelrl_core.errors import InfrastructureError, KernelRLError, UsageError
from kernelrl_core.heldout.search import Search
from kernelrl_core.monitoring.console import Console
from kernelrl_core.monitoring.costs import prices_of
from kernelrl_core.monitoring.events import PhaseStarted, TurnFinished
from kernelrl_core.recipe.evaluation_spec import spec_of
from kernelrl_core.recipe.schema import PositiveInt, Recipe
from kernelrl_core.rollout.episode import EpisodeId
from kernelrl_core.rollout.session import Session, open_session
from kernelrl_core.runs.directory import RunDir
from kernelrl_core.runs.rows import sample_id, turn_from_row
from kernelrl_core.runs.run_journal import RunJournal
from kernelrl_core.types import SampleId, Turn, Verdict
from kernelrl_core.types.seeds import request_seed
from kernelrl_experiments.existing_kernels import ExistingKernel, evaluate_one
from kernelrl_experiments.optimize.budget import Budget, Ended
from kernelrl_experiments.optimize.found import Found, Reason, best_of
from kernelrl_experiments.optimize.runs import Job
from kernelrl_experiments.optimize.text import facts, given_line, round_line

__all__ = ["optimize"]

_PLACE = EpisodeId("eval", 0, 0, 0)
_PROGRESS = 1.01
"""Least ratio of two speedups that counts as progress."""


async def optimize(run: RunDir, job: Job, console: Console) -> Found:
    """Continue a search to its end. The caller holds the lock of the run.

    Raises:
        UsageError: the budget is too small for one reply, or a component rejects its options.
        MissingPrerequisite: a component of the recipe cannot be used.
        KernelRLError: the endpoint is away, all replies of a round were lost, or a plugin failed.
    """
    recipe, untimed = _recipe_of(job)
    journal = RunJournal(run)
    reporting = asyncio.create_task(console.keep_reporting())
    try:
        if untimed:
            console.say(f"kernels are not timed here: {untimed}; the search ends with the first correct kernel")
        console.say(f"preparing policy {recipe.policy.use!r} and evaluator {recipe.evaluator.use!r}")
        async with open_session(recipe, job.registry, secret=run.secret(), run_dir=None, say=console.say) as session:
            session.environment.evaluator.package = job.package
            rounds = _Rounds(run, job, session, journal, console, untimed)
            stopped_by, number = await rounds.work()
            best = await rounds.best_measured_again()
        found = attrs.evolve(
            rounds.found(number, stopped_by),
            best=best,
            selected_speedup=rounds.selected_speedup,
        )
        run.set_facts(facts(found, job.loaded.recipe, bool(job.kernel)))
        return found
    finally:
        reporting.cancel()
        journal.close()


def _recipe_of(job: Job) -> tuple[Recipe, str]:
    """The recipe as the search uses it, and the reason why kernels are not timed."""
    recipe, registry = job.loaded.recipe, job.registry
    if job.kernel:
        # The given kernel is a turn of every episode, before those of the rounds.
        turns = PositiveInt(recipe.episode.turns + 1)
        recipe = attrs.evolve(recipe, episode=attrs.evolve(recipe.episode, turns=turns))
    spec = spec_of(recipe)
    untimed = why_untimed(spec, registry.make("evaluators", recipe.evaluator), registry)
    return attrs.evolve(recipe, evaluation=with_timing(spec, not untimed).settings), untimed


class _Recorder:
    """A `rollout.episode.Recorder` that also records the highest price of each reply."""

    def __init__(self, journal: RunJournal, budget: Budget, console: Console) -> None:
        self._journal, self._budget, self._console = journal, budget, console

    def require_budget(self) -> None:
        """The search has reserved the price of the reply."""

    async def begin(self, purpose: Literal["train", "eval"], where: SampleId) -> None:
        await self._journal.begin(purpose, where, usd=self._budget.reserved(where))

    async def record(self, purpose: Literal["train", "eval"], turn: Turn) -> None:
        row = await self._journal.record_eval(turn)
        self._console.handle(TurnFinished(turn, purpose, row))


class _Rounds:
    def __init__(
        self, run: RunDir, job: Job, session: Session, journal: RunJournal, console: Console, untimed: str
    ) -> None:
        self._run, self._job, self._session, self._journal, self._console = run, job, session, journal, console
        self._untimed, self._began = untimed, time.monotonic()
        recipe = session.recipe
        self._width = recipe.eval.samples
        self._count = job.loaded.recipe.episode.turns
        prices = prices_of(recipe)
        self.budget = Budget(
            prices,
            usd=recipe.cost.budget_usd,
            evaluations=job.limits.evaluations,
            gpu_seconds=recipe.evaluation.timeout_s if prices.gpu_hour else 0.0,
        )
        self.budget.restore(run.each_row("begun"), run.each_row("eval_samples"))
        self._recorder = _Recorder(journal, self.budget, console)
        self._search: Search | None = None
        self.selected_speedup: float | None = None
        """See `Found.selected_speedup`."""

    @property
    def turns(self) -> tuple[Turn, ...]:
        return self._search.turns if self._search is not None else ()

    def found(self, rounds: int, stopped_by: Reason | None) -> Found:
        """The search so far, after a number of complete rounds."""
        return Found(
            turns=self.turns,
            best=best_of(self.turns),
            selected_speedup=None,
            stopped_by=stopped_by,
            rounds=rounds,
            untimed=self._untimed,
            evaluations=self.budget.evaluations,
            spent=self.budget.spent,
            usd=self.budget.usd,
            seconds=time.monotonic() - self._began,
        )

    async def work(self) -> tuple[Reason, int]:
        """The rounds. Returns the reason why they end, and the number of complete ones."""
        job, session = self._job, self._session
        finished = self._finished()
        given = await self._given(finished.get(_PLACE.turn(0))) if job.kernel else None
        recorded = next(iter(finished.values()), None)
        settings = session.recipe.eval.search
        assert settings is not None  # required by the command
        self._search = search = Search(
            session,
            job.task,
            settings,
            self._recorder,
            _PLACE,
            examples=await session.environment.examples(job.task, recorded),
            finished=finished,
            given=given,
            budget=self.budget,
        )
        if given is not None and (reason := self._reached(given)) is not None:
            return reason, 0
        without_progress = 0
        for number in range(self._count):
            before = _merit(search.turns)
            self._console.handle(PhaseStarted(f"round {number + 1} of {self._count}", self._width))
            began = time.monotonic()
            try:
                turns = await search.round(self._width)
            except Ended as ended:
                self._console.close()
                self._console.say(ended.message)
                self._require_a_reply(ended)
                return ended.limit, number
            self._console.close()
            self._require_turns(turns, number)
            best = best_of(search.turns)
            seconds = time.monotonic() - began
            self._console.say(round_line(number + 1, self._count, turns, best, self.budget.usd, seconds))
            self._run.set_facts(facts(self.found(number + 1, None), job.loaded.recipe, bool(job.kernel)))
            if best is not None and (reason := self._reached(best)) is not None:
                return reason, number + 1
            without_progress = 0 if _is_progress(before, _merit(search.turns)) else without_progress + 1
            if without_progress >= job.limits.patience and number + 1 < self._count:
                return "no_progress", number + 1
        return "rounds", self._count

    async def best_measured_again(self) -> Turn | None:
        """The best kernel with the times of another evaluation, on other inputs. One that is not correct and clean in
        it is none: the next best takes its place."""
        environment, task = self._session.environment, self._job.task
        left = list(self.turns)
        while (best := best_of(left)) is not None and best.speedup is not None and best.candidate is not None:
            self._console.say("measuring the best kernel again")
            await self._journal.begin("eval", best.id, usd=self.budget.last_usd)
            self.budget.add_last()
            seed = request_seed(self._run.secret(), f"last {task.sha256}", best.candidate.sha256)
            try:
                again = await environment.evaluate_extraction(
                    best.id, task, best.prompt, best.reply, best.extraction, seconds={}, seed=seed
                )
            except InfrastructureError as error:
                self._console.say(f"not measured again: {error.message}")
                return best
            if again.speedup is not None and again.verdict is Verdict.CLEAN:
                self.selected_speedup = best.speedup
                return attrs.evolve(best, evaluation=again.evaluation)
            if again.correct and again.verdict is Verdict.CLEAN:
                return best  # this time it could not be timed
            left.remove(best)
        return best

    def _finished(self) -> Mapping[SampleId, Turn]:
        """The recorded turns that are not repeated. Lost replies of the last round are sampled again, those of earlier
        rounds are not: later kernels do not depend on them."""
        rows = {sample_id(row): row for row in self._run.each_row("eval_samples")}
        first = 1 if self._job.kernel else 0
        last_round = max(((where.turn - first) // self._width for where in rows), default=0)
        turns = {where: turn_from_row(row, self._job.task) for where, row in rows.items()}
        return {
            where: turn
            for where, turn in turns.items()
            if not turn.masked or (where.turn - first) // self._width < last_round
        }

    async def _given(self, recorded: Turn | None) -> Turn:
        """The turn of the given kernel.

        Raises:
            KernelRLError: it could not be evaluated.
        """
        turn = recorded
        if turn is None or turn.masked:
            kernel = ExistingKernel(_PLACE.turn(0), self._job.kernel)
            self._console.say(f"evaluating {self._job.kernel_name}")
            turn = await evaluate_one(kernel, self._job.task, self._session.environment)
            await self._recorder.record("eval", turn)
            self.budget.settle(turn.id, turn)
        if turn.masked:
            raise KernelRLError(f"{self._job.kernel_name} could not be evaluated: {turn.message}", see="infrastructure")
        self._console.say(given_line(self._job.kernel_name, turn))
        return turn

    def _reached(self, best: Turn) -> Reason | None:
        """The reason why a kernel ends the search."""
        if not best.correct or best.verdict is not Verdict.CLEAN:
            return None
        if self._untimed:
            return "untimed"
        target, speedup = self._job.limits.target_speedup, best.speedup
        interval = best.evaluation.speedup_ci if best.evaluation is not None else None
        low = interval[0] if interval is not None else speedup
        return "target" if target is not None and low is not None and low >= target else None

    def _require_a_reply(self, ended: Ended) -> None:
        """
        Raises:
            UsageError: the limit does not suffice for one reply.
        """
        first = 1 if self._job.kernel else 0
        if len(self.turns) > first:
            return
        fix = "raise --evaluations"
        if ended.limit == "budget":
            fix = "raise --budget-usd, or lower sampling.max_tokens"
        raise UsageError(f"not one reply was sampled: {ended.message}", fix=fix, see="budget")

    def _require_turns(self, turns: Sequence[Turn], number: int) -> None:
        """
        Raises:
            KernelRLError: every reply of the round was lost.
        """
        if turns and all(turn.masked for turn in turns):
            message, _, fix = turns[-1].message.partition("\nfix: ")
            raise KernelRLError(
                f"every reply of round {number + 1} was lost; the last error: {message}",
                fix=fix or "fix the cause, then repeat the command",
                see="infrastructure",
            )


def _merit(turns: Sequence[Turn]) -> tuple[float, float]:
    """Speedup of the best kernel, and the highest score: a search without a correct kernel makes progress, too."""
    best = best_of(turns)
    speedup = 0.0 if best is None else best.speedup or 1.0
    return speedup, max((turn.score.total for turn in turns if not turn.masked), default=0.0)


def _is_progress(before: tuple[float, float], after: tuple[float, float]) -> bool:
    return after[0] > before[0] * _PROGRESS if after[0] else after[1] > before[1]
