"""Compare the duration of a step with the best schedule that knows all latencies in advance.

    python benchmarks/pipelining.py --output benchmarks/results/pipelining.json

The core's own loop executes a step of 8 tasks, 16 episodes and 4 turns: episodes, sampling slots, evaluation service,
journals. Policy and evaluator are fakes with random latencies; each has 64 slots. The steps of 20 seeds are executed by
an event loop with a virtual clock, three of them also by the ordinary loop at 1/60 of the time.

Latencies are log-normal, clipped to 30-180 s (sampling) and 2-60 s (evaluation). In `persistent` a task and an episode
are slow or fast throughout, as with tasks that need long replies. In `independent` all latencies are independent, so no
schedule without foreknowledge can serve the long ones first.

Compared with: the clairvoyant list schedule, which always serves the episode with the longest remaining time; the list
schedule in request order; and the batcher of the earlier prototypes: up to 32 evaluations, collected for 0.15 s, one
batch in flight, which takes as long as its slowest evaluation.

A lower bound on the mean of any schedule without foreknowledge is reported as well. Where latencies are independent,
all orders of the samples are equally good for a schedule that cannot distinguish them. The bound is then the mean over
random orders of a relaxed step: no episode waits for its own earlier turns, and evaluation has unlimited slots. Where
latencies persist, the bound is the clairvoyant schedule after a random start: the first 64 slots go to random episodes.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
import math
import random
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from provenance import provenance

from kernelrl_core.algorithms.advantages import dr_grpo
from kernelrl_core.environment.evaluation_service import EvaluationService
from kernelrl_core.interfaces.evaluators import Evaluator
from kernelrl_core.recipe.schema import EpisodeSettings, SamplingOptions, TrainSettings
from kernelrl_core.rollout.session import Session
from kernelrl_core.runs.directory import RunDir
from kernelrl_core.types import (
    Evaluation,
    EvaluationRequest,
    Outcome,
    Prompt,
    Reply,
    SampleId,
    Score,
    Task,
    Turn,
)
from kernelrl_core.types.seeds import sample_seed
from kernelrl_core.types.training import Loss, LossSample, SamplingSettings, Update
from kernelrl_testing.fakes import FakeEnvironment, FakePolicy, FakeTasks, numbered_tasks
from kernelrl_testing.training import make_recipe, train_session
from kernelrl_testing.values import make_reply, make_request

TASKS, ATTEMPTS, TURNS, PLACES = 8, 16, 4, 64
SEEDS = 20
TARGET = 1.1
GRADIENT_S, OPTIMIZER_S = 15.0, 5.0
"""Seconds of forward and backward of a group, and of the rest of a training step, for steps with training."""

Latencies = dict[SampleId, tuple[float, float]]
"""Seconds of sampling and of evaluation."""


def draw(seed: int, step: int, *, persistent: bool) -> Latencies:
    """Latencies of a step. The variance of log seconds is due equally to task, episode and turn, or to turn only."""
    numbers = random.Random(f"{seed} {step}")
    of_task, of_attempt, of_turn = (0.3, 0.3, 0.3) if persistent else (0.0, 0.0, 0.52)
    drawn: Latencies = {}
    for task in range(TASKS):
        task_s, task_e = numbers.gauss(0, of_task), numbers.gauss(0, 2 * of_task)
        for attempt in range(ATTEMPTS):
            attempt_s = numbers.gauss(0, of_attempt)
            for turn in range(TURNS):
                sampling = 70 * math.exp(task_s + attempt_s + numbers.gauss(0, of_turn))
                evaluation = 8 * math.exp(task_e + numbers.gauss(0, 0.9))
                where = SampleId(step, task, attempt, turn)
                drawn[where] = (min(max(sampling, 30.0), 180.0), min(max(evaluation, 2.0), 60.0))
    return drawn


def list_schedule(drawn: Latencies, *, clairvoyant: bool, begin_with: Sequence[tuple[int, int]] = ()) -> float:
    """Seconds of a step whose free slots go to the episode with the longest remaining time, or to the first request.

    The first turns of the episodes in `begin_with` are served before everything else.
    """
    paths = {(w.task_index, w.attempt): [drawn[attrs.evolve(w, turn=t)] for t in range(TURNS)] for w in drawn}
    free = [PLACES, PLACES]
    queues: list[list[tuple[float, int, tuple[int, int], int]]] = [[], []]
    events: list[tuple[float, int, int, tuple[int, int], int]] = []
    now, order, first = 0.0, 0, set(begin_with)

    def ask(stage: int, path: tuple[int, int], turn: int) -> None:
        nonlocal order
        order += 1
        rest = sum(map(sum, paths[path][turn:])) - (paths[path][turn][0] if stage else 0.0)
        urgency = -rest if clairvoyant else 0.0
        if path in first and (stage, turn) == (0, 0):
            urgency = -math.inf
        heapq.heappush(queues[stage], (urgency, order, path, turn))

    def serve() -> None:
        for stage in (0, 1):
            while free[stage] and queues[stage]:
                _, number, path, turn = heapq.heappop(queues[stage])
                free[stage] -= 1
                heapq.heappush(events, (now + paths[path][turn][stage], number, stage, path, turn))

    for path in paths:
        ask(0, path, 0)
    serve()
    while events:
        now, _, stage, path, turn = heapq.heappop(events)
        free[stage] += 1
        if stage == 0:
            ask(1, path, turn)
        elif turn + 1 < TURNS:
            ask(0, path, turn + 1)
        serve()
    return now


def without_foresight(drawn: Latencies, *, persistent: bool, orders: int = 50) -> float:
    """Lower bound, in seconds, on the mean of any schedule without foreknowledge (see above)."""
    numbers = random.Random(0)
    attempts = sorted({(where.task_index, where.attempt) for where in drawn})
    if persistent:
        found = (
            list_schedule(drawn, clairvoyant=True, begin_with=numbers.sample(attempts, PLACES)) for _ in range(orders)
        )
    else:
        found = (_in_any_order(numbers.sample(list(drawn.values()), len(drawn))) for _ in range(orders))
    return statistics.fmean(found)


def _in_any_order(latencies: Sequence[tuple[float, float]]) -> float:
    free, end = [0.0] * PLACES, 0.0
    for sampling_s, evaluation_s in latencies:
        begin = heapq.heappop(free)
        heapq.heappush(free, begin + sampling_s)
        end = max(end, begin + sampling_s + evaluation_s)
    return end


# --- fakes ------------------------------------------------------------------------------------------------------------


class Sampler(FakePolicy):
    """A policy whose replies take the given seconds; samples at most `PLACES` concurrently, in request order."""

    def __init__(self, seconds: Mapping[int, float], scale: float, training: bool) -> None:
        super().__init__()
        self._seconds, self._scale, self._training = seconds, scale, training
        self._places, self._learner = asyncio.Semaphore(PLACES), asyncio.Lock()

    async def sample(self, prompt: Prompt, settings: SamplingSettings) -> Reply:
        async with self._places:
            await asyncio.sleep(self._seconds[settings.seed] * self._scale)
        return make_reply("reply", 1)

    async def backward(self, samples: Sequence[LossSample], loss: Loss) -> None:
        await self._learn(GRADIENT_S * len(samples) / (ATTEMPTS * TURNS))

    async def update(self, update: Update) -> Mapping[str, float]:
        rest = sum(map(len, update.substeps)) - sum(update.accumulated)
        await self._learn(GRADIENT_S * rest / (ATTEMPTS * TURNS) + OPTIMIZER_S)
        return {}

    async def _learn(self, seconds: float) -> None:
        if self._training:
            async with self._learner:
                await asyncio.sleep(seconds * self._scale)


class StandInEvaluator(Evaluator):
    """Takes the seconds of the sample that the candidate names."""

    capacity = PLACES

    def __init__(self, drawn: Latencies, scale: float) -> None:
        self._drawn, self._scale = drawn, scale

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        seconds = self._drawn[SampleId(*map(int, request.source.split(".")))][1]
        await asyncio.sleep(seconds * self._scale)
        return Evaluation(Outcome.CORRECT, seconds={"run": seconds * self._scale})


class Batcher:
    """Evaluates in batches, as the earlier prototypes did: the next batch starts when the last one has ended."""

    def __init__(self, evaluator: Evaluator, scale: float) -> None:
        self._evaluator, self._scale = evaluator, scale
        self._waiting: list[tuple[EvaluationRequest, asyncio.Future[Evaluation]]] = []
        self._in_flight = asyncio.Lock()
        self._flushes: set[asyncio.Task[None]] = set()

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        future: asyncio.Future[Evaluation] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, future))
        flush = asyncio.create_task(self._flush())
        self._flushes.add(flush)
        flush.add_done_callback(self._flushes.discard)
        return await future

    async def _flush(self) -> None:
        await asyncio.sleep(0.15 * self._scale)
        async with self._in_flight:
            batch, self._waiting = self._waiting[:32], self._waiting[32:]
            verdicts = await asyncio.gather(*(self._evaluator.evaluate(request) for request, _ in batch))
            for (_, future), verdict in zip(batch, verdicts, strict=True):
                future.set_result(verdict)


class Environment(FakeEnvironment):
    """Evaluates each reply with an evaluation service."""

    def __init__(self, service: Any) -> None:
        super().__init__(tasks=FakeTasks(numbered_tasks(train=TASKS)))
        self._service = service

    async def evaluate_reply(self, where: SampleId, *arguments: Any, **more: Any) -> Turn:
        await self._service.evaluate(make_request(str(where)))
        return await super().evaluate_reply(where, *arguments, **more)

    def turn(self, where: SampleId, task: Task, reply: Reply) -> Turn:
        # Rewards differ, so that every group has a signal.
        return attrs.evolve(self.turn_that_is(True, where), score=Score(float(where.attempt)))


# --- execution --------------------------------------------------------------------------------------------------------


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer when it would otherwise wait."""

    def __init__(self) -> None:
        self._now, self._threads = 0.0, 0
        super().__init__()

    def time(self) -> float:
        return self._now

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        self._threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._ended)
        return future

    def _ended(self, future: Any) -> None:
        self._threads -= 1

    def _run_once(self) -> None:
        if not self._ready and self._scheduled and not self._threads:  # type: ignore[attr-defined]
            self._now = max(self._now, self._scheduled[0]._when)  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


@attrs.frozen
class Way:
    """Settings of the steps that are executed."""

    places: int | None = PLACES
    batcher: bool = False
    training: bool = False
    stream: bool = True
    staleness: int = 0
    steps: int = 1


async def play(drawn: Latencies, way: Way, directory: Path, scale: float = 1.0) -> list[dict[str, Any]]:
    """Rows of metrics."""
    recipe = make_recipe(
        episode=EpisodeSettings(turns=TURNS),
        sampling=SamplingOptions(concurrency=way.places),
        train=TrainSettings(
            tasks_per_step=TASKS, group_size=ATTEMPTS, steps=way.steps, shuffle=False, loss="ppo",
            length_norm="max_tokens", stream=way.stream, staleness=way.staleness, exact_resume=not way.staleness,
            checkpoint_every=way.steps,
        ),
    )  # fmt: skip
    tasks = numbered_tasks(train=TASKS)
    seconds = {
        sample_seed(recipe.seed, "train", where, tasks[where.task_index].id): latency[0]
        for where, latency in drawn.items()
    }
    evaluator = StandInEvaluator(drawn, scale)
    service = Batcher(evaluator, scale) if way.batcher else EvaluationService(evaluator, cache_dir=None)
    environment: Any = Environment(service)
    environment.recipe = recipe
    run = RunDir.create(directory, {}, {})
    await train_session(run, Session(environment, Sampler(seconds, scale, way.training)), dr_grpo)
    return run.rows("metrics")


def virtually(drawn: Latencies, way: Way) -> list[dict[str, Any]]:
    real = time.monotonic
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=VirtualLoop) as runner:
        time.monotonic = runner.get_loop().time
        try:
            return runner.run(play(drawn, way, Path(folder) / "run"))
        finally:
            time.monotonic = real


def measure_virtual(*, persistent: bool, seeds: int) -> dict[str, Any]:
    ratios: dict[str, list[float]] = {"kernelrl": [], "kernelrl_without_limit": [], "batcher_of_the_seeds": []}
    over_order: list[float] = []
    bound: list[float] = []
    best_s: list[float] = []
    ways = (Way(), Way(places=None), Way(places=None, batcher=True))
    for seed in range(seeds):
        drawn = draw(seed, 0, persistent=persistent)
        best = list_schedule(drawn, clairvoyant=True)
        best_s.append(best)
        bound.append(without_foresight(drawn, persistent=persistent) / best)
        for name, way in zip(ratios, ways, strict=True):
            took = virtually(drawn, way)[0]["time/total"]
            ratios[name].append(took / best)
            if name == "kernelrl":
                over_order.append(took / list_schedule(drawn, clairvoyant=False))
    return {
        "clairvoyant_s_mean": round(statistics.fmean(best_s), 1),
        "over_clairvoyant": {name: spread(values) for name, values in ratios.items()},
        "no_schedule_without_foreknowledge_under": {"mean": round(statistics.fmean(bound), 3)},
        "kernelrl_over_list_schedule_in_order_of_asking": spread(over_order),
        "seeds_within_target": sum(ratio <= TARGET for ratio in ratios["kernelrl"]),
    }


def measure_training(seeds: int) -> dict[str, Any]:
    """Mean seconds per step with training: gradients at the end, streamed, and with the next step sampled ahead."""
    ways = {
        "gradients_at_the_end": Way(training=True, stream=False, steps=4),
        "gradients_streamed": Way(training=True, steps=4),
        "next_step_sampled_ahead": Way(training=True, staleness=1, steps=4),
    }
    found: dict[str, Any] = {"gradient_s_per_group": GRADIENT_S, "optimizer_s": OPTIMIZER_S}
    best: list[float] = []
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for seed in range(seeds):
        steps = [draw(seed, step, persistent=True) for step in range(4)]
        best.append(statistics.fmean(list_schedule(drawn, clairvoyant=True) for drawn in steps))
        together = {where: latency for drawn in steps for where, latency in drawn.items()}
        for name, way in ways.items():
            seconds[name].append(statistics.fmean(row["time/total"] for row in virtually(together, way)))
    found["clairvoyant_sampling_and_judging_s"] = round(statistics.fmean(best), 1)
    return found | {f"{name}_s": round(statistics.fmean(values), 1) for name, values in seconds.items()}


def measure_real(scale: float) -> dict[str, Any]:
    """Three seeds on the ordinary event loop; `virtually` is the same seed with the virtual clock."""
    found: dict[str, Any] = {"scale": f"1/{round(1 / scale)}"}
    ways = {"kernelrl": Way(), "batcher_of_the_seeds": Way(places=None, batcher=True)}
    for seed in range(3):
        drawn = draw(seed, 0, persistent=True)
        best = list_schedule(drawn, clairvoyant=True)
        found[f"seed_{seed}"] = {"clairvoyant_s": round(best * scale, 2)}
        for name, way in ways.items():
            with tempfile.TemporaryDirectory() as folder:
                row = asyncio.run(play(drawn, way, Path(folder) / "run", scale))[0]
            found[f"seed_{seed}"][name] = {
                "seconds": round(row["time/total"], 2),
                "over_clairvoyant": round(row["time/total"] / (best * scale), 3),
                "virtually": round(virtually(drawn, way)[0]["time/total"] / best, 3),
                "spent_on": {key.removeprefix("time/in_"): round(row[key], 2) for key in row if "time/in_" in key},
            }
    return found


def spread(values: Sequence[float]) -> dict[str, float]:
    return {"mean": round(statistics.fmean(values), 3), "min": round(min(values), 3), "max": round(max(values), 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--scale", type=float, default=1 / 60)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    result = {
        "provenance": provenance(),
        "tasks": TASKS,
        "attempts": ATTEMPTS,
        "turns": TURNS,
        "places": PLACES,
        "seeds": arguments.seeds,
        "target_over_clairvoyant": TARGET,
        "persistent": measure_virtual(persistent=True, seeds=arguments.seeds),
        "independent": measure_virtual(persistent=False, seeds=arguments.seeds),
        "with_training": measure_training(min(arguments.seeds, 5)),
        "real_time": measure_real(arguments.scale),
    }
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.output:
        arguments.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
