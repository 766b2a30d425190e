"""One episode: turns, end, evaluation, recording."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

import attrs
import pytest

from kernelrl_core.environment.retrieval import RetrievedExamples
from kernelrl_core.errors import (
    EvaluationError,
    InfrastructureError,
    KernelRLError,
    SamplingError,
    StorageError,
    UsageError,
)
from kernelrl_core.interfaces.backends import BackendFacts
from kernelrl_core.monitoring.costs import BudgetReached
from kernelrl_core.monitoring.timeline import Timeline
from kernelrl_core.prompts import Composer
from kernelrl_core.recipe.schema import (
    EpisodeSettings,
    EvalSettings,
    Extension,
    Recipe,
    RetrieverUse,
    SamplingOptions,
    SpeedupStop,
    VerifySettings,
)
from kernelrl_core.rollout.episode import EpisodeId, EpisodeRunner, run_episode
from kernelrl_core.rollout.sampler import Sampled, Sampler, SampleRequest
from kernelrl_core.rollout.sampling_slots import SamplingSlots
from kernelrl_core.types import (
    EvaluationSettings,
    Example,
    ExcludedExample,
    Message,
    Outcome,
    Prompt,
    Reply,
    SampleId,
    ShownExample,
    Task,
    Turn,
)
from kernelrl_testing.fakes import FakeEnvironment, FakePolicy
from kernelrl_testing.training import make_recipe
from kernelrl_testing.waiting import DEADLINE_S, takes_async

RECIPE = make_recipe(
    episode=EpisodeSettings(turns=3),
    sampling=SamplingOptions(max_tokens=100, temperature=0.7, stop=("END",), extend=Extension(5, 200)),
    eval=EvalSettings(temperature=0.2),
)
TASK, PLACE = Task("train/0", "the reference"), EpisodeId("train", 0, 1, 2)
WRONG, RIGHT = Reply("wrong", (1, 2), (-0.1, -0.2), "stop"), Reply("right", (3,), (-0.3,), "stop")


class Environment(FakeEnvironment):
    """Composes prompts as the core does. `error` is raised by the evaluation of the first turn."""

    def __init__(self, recipe: Recipe = RECIPE, error: BaseException | None = None) -> None:
        facts = BackendFacts("Fake", (), "Write a kernel.", Example("r", "class ModelNew:\n    pass\n"))
        composer = Composer(recipe.prompt, recipe.history, facts, (), EvaluationSettings())
        errors = {SampleId(0, 1, 2, 0): error} if error is not None else {}
        super().__init__(recipe, composer=composer, errors=errors)


class Policy(FakePolicy):
    """50 tokens for each message of a prompt. `sampling` is set once the first reply is requested."""

    def __init__(self, replies: Sequence[Reply | BaseException] = (), context_tokens: int = 1000) -> None:
        super().__init__(replies=replies)
        self.context_tokens = context_tokens
        self.sampling = asyncio.Event()

    def render(self, messages: Sequence[Message]) -> Prompt:
        return Prompt(tuple(messages), tuple(range(50 * len(messages))))

    async def before(self, method: str, argument: Any) -> None:
        self.sampling.set()


class Recorder:
    """Stores all records in order."""

    def __init__(self, replies_allowed: int = 99) -> None:
        self.events: list[tuple[str, str, SampleId]] = []
        self.turns: list[Turn] = []
        self.replies_allowed = replies_allowed
        self.fails_in = ""

    def require_budget(self) -> None:
        if not self.replies_allowed:
            raise BudgetReached("the budget is spent")
        self.replies_allowed -= 1

    async def begin(self, purpose: Literal["train", "eval"], where: SampleId) -> None:
        self.events.append(("begin", purpose, where))
        if self.fails_in == "begin":
            raise StorageError("disk full")

    async def record(self, purpose: Literal["train", "eval"], turn: Turn) -> None:
        self.events.append(("record", purpose, turn.id))
        self.turns.append(turn)
        if self.fails_in == "record":
            raise StorageError("disk full")


def runner(
    recipe: Recipe = RECIPE,
    *,
    environment: Any = None,
    renderer: Any = None,
    id: EpisodeId = PLACE,  # noqa: A002
    **more: Any,
) -> EpisodeRunner:
    return EpisodeRunner(environment or Environment(recipe), TASK, id, renderer or Policy(), **more)


def submit(episode: EpisodeRunner, reply: Reply, **more: Any) -> Turn:
    """Submit a reply to the current request."""
    request = episode.next_prompt()
    assert request is not None
    return asyncio.run(episode.submit(request, Sampled(reply, **more)))


def with_episode(**changes: Any) -> Recipe:
    return attrs.evolve(RECIPE, episode=attrs.evolve(RECIPE.episode, **changes))


def request_of(episode: EpisodeRunner) -> SampleRequest:
    request = episode.next_prompt()
    assert request is not None
    return request


# --- EpisodeRunner: turns -------------------------------------------------------------------------------------------


def test_episode_has_the_number_of_turns_of_the_recipe() -> None:
    episode = runner()
    ids = []
    while (request := episode.next_prompt()) is not None:
        ids.append(request.id)
        submit(episode, WRONG)
    assert ids == [SampleId(0, 1, 2, turn) for turn in range(3)]
    assert tuple(turn.id for turn in episode.episode.turns) == tuple(ids)


def test_the_request_stays_the_same_until_a_turn_is_submitted() -> None:
    episode = runner()
    first = episode.next_prompt()
    assert episode.next_prompt() is first
    submit(episode, WRONG)
    assert episode.next_prompt() is not first


def test_later_prompt_shows_earlier_turns() -> None:
    episode = runner()
    first = request_of(episode).prompt
    submit(episode, WRONG)
    later = request_of(episode).prompt
    assert "turn 0 was incorrect" not in first.messages[-1].content
    assert "turn 0 was incorrect" in later.messages[-1].content


def test_a_request_has_the_settings_of_the_recipe() -> None:
    settings = request_of(runner()).settings
    assert (settings.max_tokens, settings.temperature, settings.stop) == (100, 0.7, ("END",))


def test_a_held_out_episode_has_its_own_temperature_and_seeds() -> None:
    train, held_out = (request_of(runner(id=EpisodeId(purpose, 0, 1, 2))) for purpose in ("train", "eval"))
    assert held_out.settings.temperature == 0.2
    assert held_out.settings.seed != train.settings.seed


def test_every_turn_of_every_episode_has_its_own_seed() -> None:
    seeds = set()
    for number in range(2):
        episode = runner(id=EpisodeId("train", 0, 1, number))
        while (request := episode.next_prompt()) is not None:
            seeds.add(request.settings.seed)
            submit(episode, WRONG)
    assert len(seeds) == 6


def test_reply_limit_rises_at_the_step_of_the_extension() -> None:
    limits = [request_of(runner(id=EpisodeId("train", step, 0, 0))).settings.max_tokens for step in (4, 5)]
    assert limits == [100, 200]


def test_prompt_that_does_not_fit_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"task train/0: its prompt has \d+ tokens"):
        runner(renderer=Policy(context_tokens=60)).next_prompt()


def test_failing_renderer_is_named() -> None:
    class Broken(Policy):
        def render(self, messages: Sequence[Message]) -> Prompt:
            raise RuntimeError("no template")

    with pytest.raises(
        KernelRLError, match=r"^policy 'fake' failed in render: RuntimeError: no template \(\S+:\d+\)\n"
    ):
        runner(renderer=Broken()).next_prompt()


RETRIEVED = RetrievedExamples(
    tuple(
        Example("retrieved reference", f"retrieved kernel {i}", id=f"e{i}", origin="c", similarity=i / 10)
        for i in (1, 2)
    ),
    (ExcludedExample("e0", "c", 0.9, "leak_task"),),
)


@pytest.mark.parametrize(("turns", "shown"), [("first", [True, False]), ("all", [True, True])])
def test_retrieved_examples_appear_in_the_turns_of_the_recipe(turns: Any, shown: list[bool]) -> None:
    recipe = attrs.evolve(RECIPE, retriever=RetrieverUse("fake", turns=turns))
    episode = runner(recipe, examples=RETRIEVED)
    found = []
    for _ in shown:
        found.append("retrieved kernel" in "".join(m.content for m in request_of(episode).prompt.messages))
        submit(episode, WRONG)
    assert found == shown


@pytest.mark.parametrize(("turns", "recorded"), [("first", [True, False]), ("all", [True, True])])
def test_turn_records_shown_and_excluded_examples(turns: Any, recorded: list[bool]) -> None:
    episode = runner(attrs.evolve(RECIPE, retriever=RetrieverUse("fake", turns=turns)), examples=RETRIEVED)
    shown = (ShownExample("e1", "c", 0.1), ShownExample("e2", "c", 0.2))
    for expected in recorded:
        turn = submit(episode, WRONG)
        assert turn.examples == (shown if expected else ())
        assert turn.excluded_examples == (RETRIEVED.excluded if expected else ())


def test_turn_records_examples_dropped_for_length() -> None:
    class Counting(Policy):
        def render(self, messages: Sequence[Message]) -> Prompt:
            return Prompt(
                tuple(messages), (0,) * sum(1000 * message.content.count("retrieved k") for message in messages)
            )

    episode = runner(
        attrs.evolve(RECIPE, retriever=RetrieverUse("fake")), renderer=Counting(context_tokens=1500), examples=RETRIEVED
    )
    turn = submit(episode, WRONG)
    assert turn.examples == (ShownExample("e1", "c", 0.1),)
    assert turn.excluded_examples == (*RETRIEVED.excluded, ExcludedExample("e2", "c", 0.2, "length"))


def test_turn_records_that_the_example_of_the_backend_was_shown() -> None:
    episode = runner(attrs.evolve(RECIPE, retriever=RetrieverUse("fake")), examples=RetrievedExamples())
    assert submit(episode, WRONG).examples == (ShownExample("", "backend"),)


def test_turn_without_retriever_records_no_examples() -> None:
    assert submit(runner(), WRONG).examples == ()


# --- EpisodeRunner: its end -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stop", "replies"),
    [
        ("never", ["right", "right 9", "wrong"]),
        ("correct", ["wrong", "right"]),
        (SpeedupStop(1.5), ["right", "right 1.4", "right 1.5"]),
        (SpeedupStop(1.5), ["right 2"]),
    ],
)
def test_episode_stops_by_the_rule_of_the_recipe(stop: Any, replies: list[str]) -> None:
    episode = runner(with_episode(stop=stop))
    for text in replies:
        assert episode.next_prompt() is not None
        submit(episode, Reply(text, (1,), (-0.1,), "stop"))
    assert episode.next_prompt() is None


def test_an_episode_continues_from_the_turns_of_an_interrupted_run() -> None:
    before = runner()
    first, second = submit(before, WRONG), submit(before, WRONG)
    environment = Environment()
    after = runner(environment=environment, turns=[first, second])
    assert request_of(after) == before.next_prompt()
    submit(after, RIGHT)
    assert environment.evaluated == [SampleId(0, 1, 2, 2)]
    assert after.episode.turns[:2] == (first, second)
    assert after.next_prompt() is None


def test_interrupted_episode_that_had_ended_does_not_continue() -> None:
    recipe = with_episode(stop="correct")
    before = runner(recipe)
    turn = submit(before, RIGHT)
    assert runner(recipe, turns=[turn]).next_prompt() is None


def test_lost_turn_ends_the_episode() -> None:
    episode = runner()
    turn = episode.submit_lost(request_of(episode), SamplingError("no reply"))
    assert (turn.outcome, turn.message, turn.lost_at) == (Outcome.INFRA_ERROR, "no reply", "sampling")
    assert turn.reply.tokens == ()
    assert episode.next_prompt() is None
    assert episode.episode.turns == (turn,)


def test_a_lost_turn_keeps_the_reply_that_was_sampled() -> None:
    episode = runner()
    sampled = Sampled(WRONG, seconds={"sample": 2.0})
    turn = episode.submit_lost(request_of(episode), EvaluationError("no judge"), sampled)
    assert (turn.reply, turn.seconds, turn.lost_at) == (WRONG, {"sample": 2.0}, "evaluation")


# --- EpisodeRunner: evaluation --------------------------------------------------------------------------------------


def test_turn_has_durations_and_staleness_of_its_reply() -> None:
    turn = submit(runner(), RIGHT, staleness=2, seconds={"wait": 1.0, "sample": 3.0})
    assert (turn.reply, turn.outcome, turn.staleness) == (RIGHT, Outcome.CORRECT, 2)
    assert turn.seconds == {"wait": 1.0, "sample": 3.0}


@pytest.mark.parametrize("error", [InfrastructureError("no judge"), KernelRLError("a checker broke")])
def test_failed_evaluation_leaves_the_episode_unchanged(error: KernelRLError) -> None:
    environment = Environment(error=error)
    episode = runner(environment=environment)
    request = request_of(episode)
    with pytest.raises(type(error), match=str(error)):
        submit(episode, RIGHT)
    assert episode.next_prompt() is request
    assert episode.episode.turns == ()
    environment.errors.clear()
    assert submit(episode, RIGHT).correct


def test_cancelled_evaluation_leaves_the_episode_unchanged() -> None:
    episode = runner()
    request = request_of(episode)

    async def scene() -> None:
        work = asyncio.create_task(episode.submit(request, Sampled(RIGHT)))
        await takes_async(0)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        assert work.cancelled()

    asyncio.run(scene())
    assert episode.next_prompt() is request
    assert episode.episode.turns == ()


def test_reply_to_another_request_is_a_value_error() -> None:
    episode = runner()
    stale = request_of(episode)
    submit(episode, WRONG)
    episode.next_prompt()
    for submitted in (lambda: asyncio.run(episode.submit(stale, Sampled(WRONG))), _lost(episode, stale)):
        with pytest.raises(ValueError, match="is not the current request of this episode"):
            submitted()
    assert len(episode.turns) == 1


def _lost(episode: EpisodeRunner, request: SampleRequest) -> Callable[[], Turn]:
    return lambda: episode.submit_lost(request, InfrastructureError("lost"))


def test_share_of_verified_kernels_depends_on_the_purpose() -> None:
    recipe = attrs.evolve(RECIPE, verify=VerifySettings(train=1.0, eval=0.0))
    verified = {}
    for purpose in ("train", "eval"):
        environment = Environment(recipe)
        episode = runner(recipe, environment=environment, id=EpisodeId(purpose, 0, 0, 1))
        turns = [submit(episode, WRONG), submit(episode, RIGHT)]
        verified[purpose] = ([turn.verified for turn in turns], environment.verified)
    assert verified == {"train": ([None, True], 1), "eval": ([None, None], 0)}


# --- run_episode ----------------------------------------------------------------------------------------------------


@attrs.define
class Scene:
    """An episode with a policy and a recorder."""

    replies: Sequence[Reply | BaseException]
    environment: Environment = attrs.field(factory=Environment)
    recorder: Recorder = attrs.field(factory=Recorder)
    purpose: Literal["train", "eval"] = "train"
    capacity: int | None = None
    policy: Policy = attrs.field(init=False)
    runner: EpisodeRunner = attrs.field(init=False)
    sampler: Sampler = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.policy = Policy(self.replies)
        self.runner = EpisodeRunner(self.environment, TASK, EpisodeId(self.purpose, 0, 1, 2), self.policy)
        timeline = Timeline()
        slots = SamplingSlots(self.capacity, 3, timeline)
        self.sampler = Sampler(self.policy, "policy 'fake'", slots, timeline)

    def play(self) -> tuple[Turn, ...]:
        return asyncio.run(run_episode(self.runner, self.sampler, self.recorder)).turns


def where(turn: int) -> SampleId:
    return SampleId(0, 1, 2, turn)


def test_every_turn_is_journalled_before_sampling_and_recorded_once() -> None:
    scene = Scene([WRONG, RIGHT, WRONG])
    turns = scene.play()
    assert scene.recorder.events == [
        (event, "train", where(turn)) for turn in range(3) for event in ("begin", "record")
    ]
    assert scene.recorder.turns == list(turns)
    assert [turn.reply for turn in turns] == [WRONG, RIGHT, WRONG]


def test_the_recorder_gets_the_purpose_of_the_episode() -> None:
    scene = Scene([WRONG, WRONG, WRONG], purpose="eval")
    scene.play()
    assert {purpose for _, purpose, _ in scene.recorder.events} == {"eval"}


def test_turn_has_wait_and_sample_durations() -> None:
    turns = Scene([WRONG, WRONG, WRONG], capacity=1).play()
    assert all(set(turn.seconds) == {"wait", "sample"} for turn in turns)


def test_turn_has_the_staleness_of_its_weights() -> None:
    scene = Scene([WRONG, WRONG, WRONG])
    scene.sampler.updates = -1
    assert [turn.staleness for turn in scene.play()] == [1, 1, 1]


def test_a_spent_budget_ends_the_episode_before_the_next_reply() -> None:
    scene = Scene([WRONG, WRONG, WRONG], recorder=Recorder(replies_allowed=1))
    with pytest.raises(BudgetReached):
        scene.play()
    assert scene.recorder.events == [("begin", "train", where(0)), ("record", "train", where(0))]
    assert len(scene.policy.requests) == 1


def test_an_infrastructure_error_while_sampling_is_recorded_and_ends_the_episode() -> None:
    scene = Scene([WRONG, InfrastructureError("no connection")])
    turns = scene.play()
    assert [turn.outcome for turn in turns] == [Outcome.INCORRECT, Outcome.INFRA_ERROR]
    assert (turns[1].lost_at, turns[1].message) == ("sampling", "no connection")
    assert scene.recorder.events[-1] == ("record", "train", where(1))
    assert scene.environment.evaluated == [where(0)]


def test_an_infrastructure_error_while_evaluating_keeps_the_reply() -> None:
    scene = Scene([RIGHT], environment=Environment(error=EvaluationError("no judge")))
    (turn,) = scene.play()
    assert (turn.outcome, turn.lost_at, turn.reply) == (Outcome.INFRA_ERROR, "evaluation", RIGHT)
    assert scene.recorder.turns == [turn]
    assert "sample" in turn.seconds


@pytest.mark.parametrize("place", ["begin", "record"])
def test_storage_error_ends_the_run(place: str) -> None:
    scene = Scene([RIGHT])
    scene.recorder.fails_in = place
    with pytest.raises(StorageError, match="disk full"):
        scene.play()
    assert len(scene.policy.requests) == (place == "record")
    assert [event for event, _, _ in scene.recorder.events] == ["begin", "record"][: 1 + (place == "record")]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RuntimeError("oops"), "policy 'fake' failed in sample: RuntimeError: oops"),
        (asyncio.CancelledError(), "policy 'fake' was cancelled in sample"),
        (KernelRLError("the key is refused"), "the key is refused"),
    ],
)
def test_failing_policy_is_named_and_its_turn_is_not_recorded(error: BaseException, message: str) -> None:
    scene = Scene([WRONG, error])
    with pytest.raises(KernelRLError) as caught:
        scene.play()
    assert re.sub(r" \(\S+:\d+\)$", "", caught.value.message) == message
    assert [turn.id for turn in scene.recorder.turns] == [where(0)]
    assert scene.recorder.events[-1] == ("begin", "train", where(1))


def test_a_cancelled_sample_records_nothing_and_frees_its_slot() -> None:
    scene = Scene([], capacity=1)

    async def play() -> None:
        work = asyncio.create_task(run_episode(scene.runner, scene.sampler, scene.recorder))
        await scene.policy.sampling.wait()
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        assert work.cancelled()
        # The slot is free, and the episode continues with the same request.
        scene.policy.replies += [WRONG, WRONG, WRONG]
        await asyncio.wait_for(run_episode(scene.runner, scene.sampler, scene.recorder), DEADLINE_S)

    asyncio.run(play())
    first, again, *_ = scene.policy.requests
    assert first == again
    assert [turn.id for turn in scene.recorder.turns] == [where(0), where(1), where(2)]


def test_no_slot_is_held_while_a_reply_is_evaluated() -> None:
    scene = Scene([WRONG, WRONG, WRONG], capacity=1)
    taken: list[SampleId] = []
    evaluate = scene.environment.evaluate_reply

    async def evaluate_reply(place: SampleId, *arguments: Any, **more: Any) -> Turn:
        async with scene.sampler.slot(SampleId(9, 9, 9, 9)):
            taken.append(place)
        return await evaluate(place, *arguments, **more)

    scene.environment.evaluate_reply = evaluate_reply

    async def play() -> None:
        await asyncio.wait_for(run_episode(scene.runner, scene.sampler, scene.recorder), DEADLINE_S)

    asyncio.run(play())
    assert taken == [where(0), where(1), where(2)]


def test_finished_episode_neither_samples_nor_records() -> None:
    before = Scene([WRONG, WRONG, RIGHT])
    turns = before.play()
    scene = Scene([])
    scene.runner = EpisodeRunner(scene.environment, TASK, scene.runner.id, scene.policy, turns=turns)
    assert scene.play() == turns
    assert (scene.policy.requests, scene.recorder.events) == ([], [])
