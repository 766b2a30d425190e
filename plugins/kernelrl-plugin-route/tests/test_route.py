"""Distribution among members, with fake evaluators."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_core.api.components import Registry, Use
from kernelrl_core.api.errors import InfrastructureError
from kernelrl_core.api.evaluators import Evaluation, EvaluationRequest, EvaluationSettings, Evaluator, Outcome
from kernelrl_plugin_route import config as route_config
from kernelrl_plugin_route import evaluator as route_evaluator
from kernelrl_plugin_route.config import RouteConfig
from kernelrl_plugin_route.evaluator import RouteEvaluator
from kernelrl_testing.values import make_request
from kernelrl_testing.waiting import takes_async


class Member(Evaluator):
    """Sleeps, and counts its requests."""

    def __init__(self, capacity: int = 1, model: str = "", outcome: Outcome = Outcome.CORRECT) -> None:
        self.capacity, self.model, self.outcome = capacity, model, outcome
        self.requests: list[EvaluationRequest] = []
        self.n_busy = self.most_busy = 0
        self.failures = 0
        self.closed = False

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        self.requests.append(request)
        self.n_busy += 1
        self.most_busy = max(self.most_busy, self.n_busy)
        try:
            await takes_async(0.001)
            if self.failures:
                self.failures -= 1
                raise InfrastructureError("it failed")
            return Evaluation(self.outcome, speedup=2.0 if request.settings.timing else None, seconds={"run": 1.0})
        finally:
            self.n_busy -= 1

    def gpu_model(self) -> str:
        return self.model

    async def aclose(self) -> None:
        self.closed = True


class FakeRegistry:
    def __init__(self, members: Mapping[str, Evaluator]) -> None:
        self.members = members

    def make(self, kind: str, use: Use) -> Evaluator:
        return self.members[use.use]


@pytest.fixture
def route(monkeypatch: pytest.MonkeyPatch) -> Any:
    def made(timing: str | None = None, **members: Member) -> RouteEvaluator:
        monkeypatch.setattr(route_evaluator, "registry", lambda: FakeRegistry(members))
        monkeypatch.setattr(RouteConfig, "uses", property(lambda self: {name: Use(name) for name in self.members}))
        return RouteEvaluator(RouteConfig({name: {"use": name} for name in members}, timing))

    return made


def request(number: int = 0, timing: bool = False) -> EvaluationRequest:
    return make_request(f"# {number}", settings=EvaluationSettings(timing=timing))


async def evaluated(route: RouteEvaluator, n: int, timing: bool = False) -> list[Evaluation]:
    return await asyncio.gather(*(route.evaluate(request(number, timing)) for number in range(n)))


def test_the_first_member_with_free_capacity_gets_a_candidate(route: Any) -> None:
    near, far = Member(2), Member(3)
    found = asyncio.run(evaluated(route(near=near, far=far), 4))
    assert [one.provenance["member"] for one in found] == ["near", "near", "far", "far"]


def test_no_member_gets_more_than_its_capacity(route: Any) -> None:
    near, far = Member(2), Member(3)
    asyncio.run(evaluated(route(near=near, far=far), 50))
    assert (near.most_busy, far.most_busy) == (2, 3)
    assert len(near.requests) + len(far.requests) == 50


def test_capacity_is_that_of_all_members_and_changes_with_theirs(route: Any) -> None:
    near, far = Member(2), Member(3)
    made = route(near=near, far=far)
    assert made.capacity == 5
    far.capacity = 1
    assert made.capacity == 3


def test_the_member_that_times_gets_no_candidate_that_is_wrong(route: Any) -> None:
    near, far = Member(outcome=Outcome.INCORRECT), Member()
    found = asyncio.run(evaluated(route("far", near=near, far=far), 1, timing=True))
    assert found[0].outcome is Outcome.INCORRECT
    assert found[0].provenance["member"] == "near"
    assert far.requests == []


def test_a_correct_candidate_is_timed_by_the_other_member(route: Any) -> None:
    near, far = Member(), Member()
    found = asyncio.run(evaluated(route("far", near=near, far=far), 1, timing=True))
    assert found[0].provenance["member"] == "far"
    assert found[0].speedup == 2.0
    assert found[0].seconds == {"run": 1.0, "run_before": 1.0}
    assert [near.requests[0].settings.timing, far.requests[0].settings.timing] == [False, True]


def test_the_member_that_times_gets_no_candidate_without_timing(route: Any) -> None:
    near, far = Member(), Member()
    asyncio.run(evaluated(route("far", near=near, far=far), 3))
    assert far.requests == []


def test_a_cancelled_request_frees_its_member(route: Any) -> None:
    async def work() -> list[Evaluation]:
        made = route(near=Member(1), far=Member(1))
        tasks = [asyncio.create_task(made.evaluate(request(number))) for number in range(6)]
        await takes_async(0)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return await evaluated(made, 4)

    assert all(one.correct for one in asyncio.run(work()))


def test_a_failed_request_frees_its_member(route: Any) -> None:
    async def work() -> list[Evaluation]:
        near, far = Member(1), Member(1)
        near.failures = 1
        made = route(near=near, far=far)
        with pytest.raises(InfrastructureError):
            await made.evaluate(request())
        return await evaluated(made, 2)

    assert [one.provenance["member"] for one in asyncio.run(work())] == ["near", "far"]


@given(
    capacities=st.lists(st.integers(1, 3), min_size=2, max_size=4),
    cancelled=st.sets(st.integers(0, 19)),
    n=st.integers(1, 20),
)
def test_every_request_that_is_not_cancelled_is_evaluated_once(
    capacities: list[int], cancelled: set[int], n: int
) -> None:
    members = [Member(capacity) for capacity in capacities]

    async def work() -> list[Any]:
        made = RouteEvaluator.__new__(RouteEvaluator)
        made._members = made._first = [
            route_evaluator._Member(str(index), member) for index, member in enumerate(members)
        ]
        made._timing = None
        made._waiting = route_evaluator.deque()
        tasks = [asyncio.create_task(made.evaluate(request(number))) for number in range(n)]
        await takes_async(0)
        for number in cancelled & set(range(n)):
            tasks[number].cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(member.n_busy == 0 for member in made._members)
        return found

    found = asyncio.run(work())
    for number, one in enumerate(found):
        assert isinstance(one, Evaluation) or number in cancelled
    assert all(member.most_busy <= member.capacity for member in members)


@pytest.mark.parametrize(
    ("models", "timing", "expected"),
    [
        (("H100", "H100"), None, "H100"),
        (("H100", "H200"), None, "H100, H200"),
        (("", "H200"), None, "no GPU, H200"),
        (("", ""), None, ""),
        (("", "H200"), "far", "H200"),
    ],
)
def test_the_gpu_models_are_those_that_time(
    route: Any, models: tuple[str, str], timing: str | None, expected: str
) -> None:
    assert route(timing, near=Member(model=models[0]), far=Member(model=models[1])).gpu_model() == expected


def test_the_identity_has_those_of_all_members(route: Any) -> None:
    one = route(near=Member(model="H100"), far=Member(model="H100"))
    other = route(near=Member(model="H100"), far=Member(model="H200"))
    assert one.identity() != other.identity() != route("far", near=Member(), far=Member()).identity()


def test_closing_closes_all_members(route: Any) -> None:
    near, far = Member(), Member()
    asyncio.run(route(near=near, far=far).aclose())
    assert near.closed
    assert far.closed


@pytest.mark.parametrize(
    ("members", "timing", "problem"),
    [
        ({"near": {"use": "local"}}, None, "members must name at least two evaluators"),
        (
            {"near": {"use": "local"}, "far": {"use": "loccal"}},
            None,
            "members.far.use: no evaluator 'loccal'; did you mean 'local'?",
        ),
        (
            {"near": {"use": "local"}, "far": {"use": "local", "wrkers": 2}},
            None,
            "members.far.wrkers: unknown key 'wrkers'; did you mean 'workers'?",
        ),
        ({"near": {"use": "local"}, "far": {"use": "local"}}, "fart", "timing: no member 'fart'; did you mean 'far'?"),
        (
            {name: {"use": "local"} for name in "abc"},
            "a",
            "timing needs exactly two members: one that times, and one that evaluates before it",
        ),
    ],
)
def test_contradictions_are_found_before_anything_is_spent(
    members: dict[str, Any], timing: str | None, problem: str
) -> None:
    assert list(RouteConfig(members, timing).problems()) == [problem]


def test_prerequisites_and_prices_are_those_of_the_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MODAL_TOKEN_ID", raising=False)
    monkeypatch.setenv("MODAL_CONFIG_PATH", "none.toml")
    far = {"use": "modal", "gpu": "H100", "gpu_hour_usd": 4.0}
    config = RouteConfig({"near": {"use": "local"}, "far": far})
    assert config.requires().absent == ("a Modal token",)
    assert "modal token new" in config.requires().fix
    assert config.prices() == {"gpu_hour": 4.0}


@pytest.mark.parametrize(
    ("members", "timing", "timed_here"),
    [
        (("local", "local"), None, True),
        (("local", "modal"), None, True),
        (("modal", "local"), None, True),
        (("modal", "modal"), None, None),
        (("local", "modal"), "far", False),
        (("modal", "local"), "far", True),
    ],
)
def test_this_machine_needs_what_its_members_evaluate(
    members: tuple[str, str], timing: str | None, timed_here: bool | None
) -> None:
    config = RouteConfig({name: {"use": use} for name, use in zip(("near", "far"), members, strict=True)}, timing)
    found = config.settings_here(EvaluationSettings(timing=True))
    assert (found.timing if found is not None else None) is timed_here


def test_members_are_made_with_their_options() -> None:
    members = {"near": {"use": "local", "workers": 1}, "far": {"use": "local", "workers": 3}}
    uses = RouteConfig(members).uses
    assert [use.options.workers for use in uses.values()] == [1, 3]
    assert attrs.asdict(uses["near"].options)["workers"] == 1
    assert isinstance(route_config.registry(), Registry)
