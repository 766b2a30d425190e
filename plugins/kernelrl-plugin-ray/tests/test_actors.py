"""Actors that are lost, refused, or at rest. They are fakes of this process; test_cluster.py has real ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import attrs
import pytest

from kernelrl_core.api.errors import InfrastructureError, MissingPrerequisite
from kernelrl_plugin_ray import actors
from kernelrl_plugin_ray.actors import ActorPool
from kernelrl_testing.waiting import takes_async, wait_until_async


class Lost(Exception):
    """The error for the call of an actor that is gone."""


@attrs.define(eq=False)
class Fake:
    """An actor whose calls take `seconds`, and whose process may end."""

    number: int
    dies_after: int = 10**9
    """Calls."""
    seconds: float = 0.01
    n_calls: int = 0
    n_now: int = 0
    most: int = 0
    dead: bool = False

    @property
    def facts(self) -> Any:
        async def remote() -> dict[str, Any]:
            return {"node": f"node-{self.number}"}

        return type("Method", (), {"remote": staticmethod(remote)})

    async def work(self, value: int) -> int:
        self.n_calls += 1
        if self.dead or self.n_calls > self.dies_after:
            self.dead = True
            raise Lost(f"actor {self.number} is gone")
        self.n_now += 1
        self.most = max(self.most, self.n_now)
        try:
            await takes_async(self.seconds)
        finally:
            self.n_now -= 1
        return value


@attrs.define(eq=False)
class Cluster:
    """Makes actors, each as the next of `plans` says."""

    room: int = 2
    plans: list[dict[str, Any]] = attrs.field(factory=list)
    made: list[Fake] = attrs.field(factory=list)
    refuses: bool = False

    def pool(self, depth: int = 2) -> ActorPool:
        return ActorPool(
            "judge",
            make=self._make,
            wanted=lambda: self.room,
            depth=depth,
            accept=self._accept,
            lost=(Lost,),
            kill=lambda handle: setattr(handle, "dead", True),
            cancel=lambda reference: None,
        )

    def _make(self) -> Fake:
        self.made.append(Fake(len(self.made), **(self.plans.pop(0) if self.plans else {})))
        return self.made[-1]

    def _accept(self, facts: Any) -> None:
        if self.refuses:
            raise MissingPrerequisite(f"{facts['node']} has other versions", fix="install them")


def play(cluster: Cluster, scene: Callable[[ActorPool], Coroutine[Any, Any, Any]], depth: int = 2) -> Any:
    async def whole() -> Any:
        pool = cluster.pool(depth)
        assert await pool.start(5)
        try:
            return await scene(pool)
        finally:
            await pool.aclose()

    return asyncio.run(whole())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actors, "_LOOK_S", 0.02)


async def values(pool: ActorPool, count: int) -> list[int]:
    found = await asyncio.gather(*(pool.call(lambda handle, n=n: handle.work(n)) for n in range(count)))
    return [value for value, _ in found]


def test_every_call_has_one_result_while_actors_are_lost() -> None:
    cluster = Cluster(plans=[{"dies_after": count} for count in (3, 5, 2, 7, 4)])
    assert play(cluster, lambda pool: values(pool, 60)) == list(range(60))
    assert sum(actor.dead for actor in cluster.made[:5]) == 5


def test_a_call_that_loses_every_actor_ends_with_an_infrastructure_error() -> None:
    cluster = Cluster(room=1, plans=[{"dies_after": 0}] * 20)
    with pytest.raises(InfrastructureError, match=r"5 judges were lost .* actor \d is gone"):
        play(cluster, lambda pool: values(pool, 1))


def test_no_actor_has_more_calls_than_its_depth() -> None:
    cluster = Cluster(room=3)
    play(cluster, lambda pool: values(pool, 50), depth=4)
    assert max(actor.most for actor in cluster.made) == 4


def test_the_calls_are_spread_over_the_actors() -> None:
    cluster = Cluster(room=4)

    async def scene(pool: ActorPool) -> None:
        await wait_until_async(lambda: len(pool.handles) == 4)
        await values(pool, 80)

    play(cluster, scene)
    assert all(15 <= actor.n_calls <= 25 for actor in cluster.made)


def test_the_capacity_grows_with_the_cluster() -> None:
    cluster = Cluster(room=1)

    async def scene(pool: ActorPool) -> tuple[int, int]:
        before = pool.capacity
        cluster.room = 5
        await wait_until_async(lambda: pool.capacity == 10)
        return before, pool.capacity

    before, after = play(cluster, scene)
    assert (before, after) == (2, 10)


def test_an_actor_that_is_refused_ends_the_start() -> None:
    async def scene() -> None:
        pool = Cluster(refuses=True).pool()
        try:
            await pool.start(5)
        finally:
            await pool.aclose()

    with pytest.raises(MissingPrerequisite, match="other versions"):
        asyncio.run(scene())


def test_an_actor_at_rest_gets_no_calls_until_it_is_well() -> None:
    cluster = Cluster(room=2)
    reasons = iter(["still hot", ""])

    async def reason(handle: Fake) -> str:
        return next(reasons)

    async def scene(pool: ActorPool) -> tuple[int, int]:
        await wait_until_async(lambda: len(pool.handles) == 2)
        _, facts = await pool.call(lambda handle: handle.work(0))
        resting = next(actor for actor in cluster.made if facts["node"] == f"node-{actor.number}")
        pool.rest(facts, "hot", reason)
        before = resting.n_calls
        await values(pool, 4)
        during = resting.n_calls - before
        await takes_async(0.1)
        await values(pool, 20)
        return during, resting.n_calls - before

    during, after = play(cluster, scene)
    assert during == 0
    assert after > 0


def test_a_cancelled_call_leaves_its_place() -> None:
    cluster = Cluster(room=1, plans=[{"seconds": 0.05}])

    async def scene(pool: ActorPool) -> list[int]:
        calls = [asyncio.create_task(pool.call(lambda handle, n=n: handle.work(n))) for n in range(8)]
        await takes_async(0.02)
        for call in calls[:6]:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        return await values(pool, 2)

    assert play(cluster, scene) == [0, 1]
    assert cluster.made[0].n_now == 0


def test_without_an_actor_the_calls_wait_and_a_warning_counts_them(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(room=1, plans=[{"dies_after": 0}])

    async def scene(pool: ActorPool) -> list[int]:
        cluster.room = 0
        waiting = asyncio.create_task(values(pool, 3))
        await takes_async(0.2)
        assert not waiting.done()
        cluster.room = 1
        return await waiting

    assert play(cluster, scene) == [0, 1, 2]
    assert "no judge is left; 3 evaluations wait for one" in caplog.text
