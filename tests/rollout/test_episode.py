"""One episode: its turns, how it ends, and what is recorded of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import attrs
import pytest
from value_builders import make_turn

from kernelrl_core.errors import (
    EvaluationError,
    InfrastructureError,
    KernelRLError,
    SamplingError,
    StorageError,
    UsageError,
)
from kernelrl_core.interfaces.backends import BackendFacts
from kernelrl_core.interfaces.evaluators import EvaluatorConfig
from kernelrl_core.interfaces.policies import PolicyConfig
from kernelrl_core.monitoring.costs import BudgetReached
from kernelrl_core.monitoring.timeline import Timeline
from kernelrl_core.prompts import Composer
from kernelrl_core.recipe.schema import (
    EpisodeSettings,
    EvalSettings,
    Extension,
    Recipe,
    RetrieverUse,
    RewardUse,
    SamplingOptions,
    SpeedupStop,
    Use,
    VerifySettings,
)
from kernelrl_core.rollout.episode import EpisodeId, EpisodeRunner, run_episode
from kernelrl_core.rollout.sampler import Sampled, Sampler, SampleRequest
from kernelrl_core.rollout.sampling_slots import SamplingSlots
from kernelrl_core.types import (
    Candidate,
    Evaluation,
    EvaluationSettings,
    Example,
    Extraction,
    Message,
    Outcome,
    Prompt,
    Reply,
    SampleId,
    Task,
    Turn,
)
from kernelrl_core.types.training import SamplingSettings

RECIPE = Recipe(
    tasks=Use("fake"),
    backend=Use("fake"),
    policy=Use("fake", PolicyConfig()),
    evaluator=Use("fake", EvaluatorConfig()),
    rewards={"correct": RewardUse("correctness")},
    episode=EpisodeSettings(turns=3),
    sampling=SamplingOptions(max_tokens=100, temperature=0.7, stop=("END",), extend=Extension(5, 200)),
    eval=EvalSettings(temperature=0.2),
)
TASK, PLACE = Task("train/0", "the reference"), EpisodeId("train", 0, 1, 2)
WRONG, RIGHT = Reply("wrong", (1, 2), (-0.1, -0.2), "stop"), Reply("right", (3,), (-0.3,), "stop")


class Environment:
    """Evaluates by the text of the reply: `right`, `right SPEEDUP` or anything else."""

    def __init__(self, recipe: Recipe = RECIPE, error: BaseException | None = None) -> None:
        self.recipe, self.error = recipe, error
        facts = BackendFacts("Fake", (), "Write a kernel.", Example("r", "class ModelNew:\n    pass\n"))
        self.composer = Composer(recipe.prompt, recipe.history, facts, (), EvaluationSettings())
        self.evaluated: list[SampleId] = []
        self.verified = 0

    async def evaluate_reply(
        self, where: SampleId, task: Task, prompt: Prompt, reply: Reply, *, seconds: Mapping[str, float]
    ) -> Turn:
        self.evaluated.append(where)
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        right, _, speedup = reply.text.partition(" ")
        outcome = Outcome.CORRECT if right == "right" else Outcome.INCORRECT
        return make_turn(
            outcome,
            id=where,
            task=task,
            prompt=prompt,
            reply=reply,
            extraction=Extraction(Candidate(f"{reply.text} kernel", "fake")),
            evaluation=Evaluation(outcome, speedup=float(speedup) if speedup else None),
            feedback=f"feedback on turn {where.turn}",
            seconds=seconds,
        )

    async def verify(self, turn: Turn) -> Turn:
        self.verified += 1
        return attrs.evolve(turn, verified=True)


class Renderer:
    def __init__(self, context_tokens: int = 1000) -> None:
        self.context_tokens = context_tokens

    def render(self, messages: Sequence[Message]) -> Prompt:
        return Prompt(tuple(messages), tuple(range(50 * len(messages))))


class Policy(Renderer):
    """Gives the replies in order; one that is an exception is raised."""

    def __init__(self, replies: Sequence[Reply | BaseException]) -> None:
        super().__init__()
        self.replies = list(replies)
        self.requests: list[tuple[Prompt, SamplingSettings]] = []
        self.sampling = asyncio.Event()

    async def sample(self, prompt: Prompt, settings: SamplingSettings) -> Reply:
        self.requests.append((prompt, settings))
        self.sampling.set()
        if not self.replies:
            await asyncio.sleep(60)
        reply = self.replies.pop(0)
        if isinstance(reply, BaseException):
            raise reply
        return reply


class Recorder:
    """Remembers what it is given, in order."""

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
    return EpisodeRunner(environment or Environment(recipe), TASK, id, renderer or Renderer(), **more)


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


def test_an_episode_has_as_many_turns_as_the_recipe_says() -> None:
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


def test_a_later_prompt_shows_the_turns_before() -> None:
    episode = runner()
    first = request_of(episode).prompt
    submit(episode, WRONG)
    later = request_of(episode).prompt
    assert "feedback on turn 0" not in first.messages[-1].content
    assert "feedback on turn 0" in later.messages[-1].content


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


def test_replies_are_longer_from_the_step_of_the_extension_on() -> None:
    limits = [request_of(runner(id=EpisodeId("train", step, 0, 0))).settings.max_tokens for step in (4, 5)]
    assert limits == [100, 200]


def test_a_prompt_that_does_not_fit_is_refused() -> None:
    with pytest.raises(UsageError, match=r"task train/0: its prompt has \d+ tokens"):
        runner(renderer=Renderer(context_tokens=60)).next_prompt()


def test_a_renderer_that_fails_is_named() -> None:
    class Broken(Renderer):
        def render(self, messages: Sequence[Message]) -> Prompt:
            raise RuntimeError("no template")

    with pytest.raises(KernelRLError, match=r"^policy 'fake' failed in render: RuntimeError: no template$"):
        runner(renderer=Broken()).next_prompt()


@pytest.mark.parametrize(("turns", "shown"), [("first", [True, False]), ("all", [True, True])])
def test_retrieved_examples_are_shown_in_the_turns_that_the_recipe_says(turns: Any, shown: list[bool]) -> None:
    recipe = attrs.evolve(RECIPE, retriever=RetrieverUse("fake", turns=turns))
    episode = runner(recipe, examples=[Example("retrieved reference", "retrieved kernel")])
    found = []
    for _ in shown:
        found.append("retrieved kernel" in "".join(m.content for m in request_of(episode).prompt.messages))
        submit(episode, WRONG)
    assert found == shown


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
def test_an_episode_stops_where_the_recipe_says(stop: Any, replies: list[str]) -> None:
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


def test_an_interrupted_episode_that_had_stopped_is_over() -> None:
    recipe = with_episode(stop="correct")
    before = runner(recipe)
    turn = submit(before, RIGHT)
    assert runner(recipe, turns=[turn]).next_prompt() is None


def test_an_episode_is_over_with_a_lost_turn() -> None:
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


def test_a_turn_has_what_its_reply_came_with() -> None:
    turn = submit(runner(), RIGHT, staleness=2, seconds={"wait": 1.0, "sample": 3.0})
    assert (turn.reply, turn.outcome, turn.staleness) == (RIGHT, Outcome.CORRECT, 2)
    assert turn.seconds == {"wait": 1.0, "sample": 3.0}


@pytest.mark.parametrize("error", [InfrastructureError("no judge"), KernelRLError("a checker broke")])
def test_a_failed_evaluation_leaves_the_episode_as_it_was(error: KernelRLError) -> None:
    environment = Environment(error=error)
    episode = runner(environment=environment)
    request = request_of(episode)
    with pytest.raises(type(error), match=str(error)):
        submit(episode, RIGHT)
    assert episode.next_prompt() is request
    assert episode.episode.turns == ()
    environment.error = None
    assert submit(episode, RIGHT).correct


def test_a_cancelled_evaluation_leaves_the_episode_as_it_was() -> None:
    episode = runner()
    request = request_of(episode)

    async def scene() -> None:
        work = asyncio.create_task(episode.submit(request, Sampled(RIGHT)))
        await asyncio.sleep(0)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        assert work.cancelled()

    asyncio.run(scene())
    assert episode.next_prompt() is request
    assert episode.episode.turns == ()


def test_a_reply_to_another_request_is_refused() -> None:
    episode = runner()
    stale = request_of(episode)
    submit(episode, WRONG)
    episode.next_prompt()
    for submitted in (lambda: asyncio.run(episode.submit(stale, Sampled(WRONG))), _lost(episode, stale)):
        with pytest.raises(ValueError, match="is not the request that this episode waits for"):
            submitted()
    assert len(episode.turns) == 1


def _lost(episode: EpisodeRunner, request: SampleRequest) -> Callable[[], Turn]:
    return lambda: episode.submit_lost(request, InfrastructureError("lost"))


def test_correct_kernels_are_verified_by_the_share_of_the_purpose() -> None:
    recipe = attrs.evolve(RECIPE, verify=VerifySettings(train=1.0, eval=0.0))
    verified = {}
    for purpose in ("train", "eval"):
        environment = Environment(recipe)
        episode = runner(recipe, environment=environment, id=EpisodeId(purpose, 0, 0, 0))
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


def test_every_turn_is_begun_before_it_is_sampled_and_recorded_once() -> None:
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


def test_a_turn_knows_how_long_it_waited_and_was_sampled() -> None:
    turns = Scene([WRONG, WRONG, WRONG], capacity=1).play()
    assert all(set(turn.seconds) == {"wait", "sample"} for turn in turns)


def test_turns_know_how_many_updates_their_weights_lack() -> None:
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
def test_a_turn_that_cannot_be_recorded_ends_the_run(place: str) -> None:
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
def test_a_policy_that_fails_is_named_and_its_turn_is_not_recorded(error: BaseException, message: str) -> None:
    scene = Scene([WRONG, error])
    with pytest.raises(KernelRLError) as caught:
        scene.play()
    assert caught.value.message == message
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
        await asyncio.wait_for(run_episode(scene.runner, scene.sampler, scene.recorder), 5)

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
        await asyncio.wait_for(run_episode(scene.runner, scene.sampler, scene.recorder), 5)

    asyncio.run(play())
    assert taken == [where(0), where(1), where(2)]


def test_an_episode_that_is_over_neither_samples_nor_records() -> None:
    before = Scene([WRONG, WRONG, RIGHT])
    turns = before.play()
    scene = Scene([])
    scene.runner = EpisodeRunner(scene.environment, TASK, scene.runner.id, scene.policy, turns=turns)
    assert scene.play() == turns
    assert (scene.policy.requests, scene.recorder.events) == ([], [])
