"""The only thread that uses the model. Requests are executed in order of arrival, except that sampling requests with
the same weights are batched, and join a running batch while no other request waits."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import attrs
import torch

from kernelrl_core.api.errors import KernelRLError
from kernelrl_core.api.policies import Reply, SamplingSettings
from kernelrl_plugin_torch.devices import DeviceShare
from kernelrl_plugin_torch.sampler import Request
from kernelrl_tinker_server.engine import Engine, Weights
from kernelrl_tinker_server.scoring import PromptQuery, PromptScores

__all__ = ["Sampling", "Worker"]


@attrs.define(eq=False)
class Sampling:
    """A sampling request: a prompt, and settings for each reply."""

    weights: Weights
    prompt: tuple[int, ...]
    settings: Sequence[SamplingSettings]
    """Settings of each reply; prompt and `max_tokens` fit into the context."""
    stop_tokens: frozenset[int] | None
    """None: the model's own."""
    query: PromptQuery | None
    """Requested log-probabilities of the prompt."""
    done: Future[tuple[list[Reply], PromptScores]] = attrs.field(factory=Future)
    _replies: dict[int, Reply] = attrs.field(factory=dict)

    def requests(self, engine: Engine) -> list[Request]:
        """Requests for the sampler, one for each reply; the last reply completes `done`."""
        scores = PromptScores()
        if self.query is not None:
            distribution = engine.prompt_distribution(self.weights, self.prompt, self.query.positions)
            scores = self.query.scores(distribution)

        def deliver(number: int) -> Callable[[Reply], None]:
            def settle(reply: Reply) -> None:
                self._replies[number] = reply
                if len(self._replies) == len(self.settings) and not self.done.done():
                    self.done.set_result(([self._replies[i] for i in range(len(self.settings))], scores))

            return settle

        return [
            Request(self.prompt, settings, deliver(number), self.fail, lambda: not self.done.done(), self.stop_tokens)
            for number, settings in enumerate(self.settings)
        ]

    def fail(self, error: BaseException) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class Worker:
    """Runs jobs on its own thread."""

    def __init__(self, make: Callable[[], Engine], *, threads: int, device: str) -> None:
        """
        Args:
            make: loads the model; called on the worker's thread.
            threads: CPU threads of PyTorch.
            device: device of the model, shared with judges that time kernels on it.
        """
        self._make, self._threads = make, threads
        self._share = DeviceShare(device, self._check_open)
        self._news = threading.Condition()
        self._jobs: deque[Sampling | tuple[Callable[[Engine], Any], Future[Any]]] = deque()
        self._sampled: Weights | None = None
        """Weights of the running sampling batch."""
        self._closed = False
        self.ready: Future[Engine] = Future()
        self._thread = threading.Thread(target=self._work, name="tinker-engine", daemon=True)
        self._thread.start()

    def do(self, work: Callable[[Engine], Any]) -> Future[Any]:
        """Run `work` with the engine; returns a future of its result."""
        done: Future[Any] = Future()
        self._put((work, done))
        return done

    def sample(self, sampling: Sampling) -> Future[tuple[list[Reply], PromptScores]]:
        with self._news:
            joins = self._sampled is sampling.weights and not self._jobs and sampling.query is None
            if joins:
                for request in sampling.requests(self.ready.result()):
                    self.ready.result().sampler.submit(request)
        if not joins:
            self._put(sampling)
        return sampling.done

    def close(self) -> None:
        with self._news:
            self._closed = True
            for job in self._jobs:
                (job.done if isinstance(job, Sampling) else job[1]).cancel()
            self._jobs.clear()
            self._news.notify()
        self._thread.join(timeout=30)

    def _put(self, job: Sampling | tuple[Callable[[Engine], Any], Future[Any]]) -> None:
        with self._news:
            self._check_open()
            self._jobs.append(job)
            self._news.notify()

    def _check_open(self) -> None:
        if self._closed:
            raise KernelRLError("the server is closing")

    def _work(self) -> None:
        torch.set_num_threads(self._threads)
        try:
            engine = self._make()
            engine.sampler.give_way = self._share.give_way
        except BaseException as error:
            self.ready.set_exception(error)
            return
        self.ready.set_result(engine)
        while True:
            with self._news:
                while not self._jobs and not self._closed:
                    self._news.wait()
                if self._closed:
                    return
                job = self._jobs.popleft()
                batch = self._companions(job) if isinstance(job, Sampling) else []
            if isinstance(job, Sampling):
                self._sample(engine, batch)
            else:
                self._run(engine, *job)

    def _companions(self, first: Sampling) -> list[Sampling]:
        """`first` and the sampling requests directly after it with the same weights, taken from the queue."""
        batch = [first]
        while self._jobs and isinstance(self._jobs[0], Sampling) and self._jobs[0].weights is first.weights:
            following = self._jobs.popleft()
            assert isinstance(following, Sampling)
            batch.append(following)
        self._sampled = first.weights
        return batch

    def _sample(self, engine: Engine, batch: Sequence[Sampling]) -> None:
        requests = []
        for sampling in batch:
            try:
                requests += sampling.requests(engine)
            except Exception as error:
                sampling.fail(error)
        while True:
            try:
                self._share.do(lambda: engine.sample(batch[0].weights, requests))  # noqa: B023
            except Exception as error:
                engine.sampler.abandon(error)
                for sampling in batch:
                    sampling.fail(error)
            requests = []
            with self._news:
                # Another request may have joined after the sampler last checked its queue.
                if not engine.sampler.waiting:
                    self._sampled = None
                    return

    def _run(self, engine: Engine, work: Callable[[Engine], Any], done: Future[Any]) -> None:
        if not done.set_running_or_notify_cancel():
            return
        try:
            done.set_result(self._share.do(lambda: work(engine)))
        except Exception as error:
            done.set_exception(error)
