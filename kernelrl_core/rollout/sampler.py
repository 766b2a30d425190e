"""Sampling from a policy, limited by sampling slots; each reply with its duration and staleness."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import attrs

from kernelrl_core.errors import SamplingError
from kernelrl_core.interfaces.policies import Policy
from kernelrl_core.monitoring.timeline import Timeline
from kernelrl_core.plugins.boundary import plugin_boundary, returned
from kernelrl_core.rollout.sampling_slots import SamplingSlots
from kernelrl_core.types import Prompt, Reply, SampleId
from kernelrl_core.types.training import SamplingSettings

__all__ = ["SampleRequest", "Sampled", "Sampler", "SamplingSlot"]


@attrs.frozen
class SampleRequest:
    """A prompt with the settings for sampling its reply."""

    id: SampleId
    """Position of the turn in the run."""
    prompt: Prompt
    """Prompt of the turn."""
    settings: SamplingSettings
    """Reply limit, temperature, seed, …"""


@attrs.frozen
class Sampled:
    """A sampled reply with its staleness and duration."""

    reply: Reply
    """Reply of the policy."""
    staleness: int = 0
    """Number of updates between the weights that sampled the reply and the update that trains on it."""
    seconds: Mapping[str, float] = attrs.field(factory=dict)
    """Durations in seconds: `wait` for a sampling slot, `sample`."""


class Sampler:
    """Samples replies from a policy.

    Args:
        label: name of the policy in error messages.
        slots: sampling slots of the run.
    """

    def __init__(self, policy: Policy, label: str, slots: SamplingSlots, timeline: Timeline) -> None:
        self.timeline = timeline
        self.updates = 0
        """Number of updates of the policy so far."""
        self._policy, self._label, self._slots = policy, label, slots

    @asynccontextmanager
    async def slot(self, where: SampleId) -> AsyncIterator[SamplingSlot]:
        """Hold a sampling slot for the reply of a turn."""
        async with self._slots.hold(where) as waited_s:
            yield SamplingSlot(self, waited_s)

    def observe(self, where: SampleId, seconds: float) -> None:
        """Report the duration of a finished turn in seconds: sampling and evaluation, without the wait for a slot."""
        self._slots.observe(where, seconds)

    async def sample(self, request: SampleRequest, waited_s: float) -> Sampled:
        staleness = request.id.step - self.updates
        with self.timeline.span("sampling") as span, plugin_boundary(self._label, "sample", broken=SamplingError):
            sampled = await self._policy.sample(request.prompt, request.settings)
            reply = returned(sampled, Reply, self._label, "sample")
        return Sampled(reply, staleness, {"wait": waited_s, "sample": span.seconds()})


@attrs.frozen
class SamplingSlot:
    """Permission to have one reply sampled now."""

    _sampler: Sampler
    _waited_s: float

    async def sample(self, request: SampleRequest) -> Sampled:
        """
        Raises:
            InfrastructureError: no reply was sampled.
            KernelRLError: the policy failed.
        """
        return await self._sampler.sample(request, self._waited_s)
