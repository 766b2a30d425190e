"""Prompt templates, history, and fitting into a context."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelrl_core.errors import UsageError
from kernelrl_core.interfaces.backends import BackendFacts
from kernelrl_core.prompts import MINIMUM_REPLY_TOKENS, Composer
from kernelrl_core.prompts.extraction import extract
from kernelrl_core.recipe.schema import BestHistory, Hardware, HistorySettings, LastHistory, PromptSettings
from kernelrl_core.types import (
    EvaluationSettings,
    Example,
    Message,
    Outcome,
    Prompt,
    Reply,
    Rule,
    SampleId,
    Score,
    Severity,
    Task,
    TaskSettings,
)
from kernelrl_testing.values import make_turn

DATA = Path(__file__).parent.parent / "data" / "prompts"
TEMPLATES = ("kernelrl", "kernelbench", "kevin", "brief")
BACKEND = BackendFacts(
    title="Triton",
    fences=("triton",),
    instructions="Decorate kernels with `@triton.jit` and launch them from `ModelNew.forward`.",
    example=Example("class Model:  # add", "class ModelNew:  # add", "addition"),
    few_shot=(
        Example("class Model:  # one", "class ModelNew:  # one"),
        Example("class Model:  # two", "class ModelNew:  # two"),
    ),
)
RULES = (
    Rule("no_kernel", Severity.HACK, "Reach a kernel of your own from `forward`."),
    Rule("library_compute", Severity.HACK, "Use no library function in place of a kernel."),
)
TASK = Task("starter/1/relu", "import torch\n\n\nclass Model(torch.nn.Module):\n    ...\n")


def composer(prompt=None, history=None, **evaluation):
    return Composer(
        prompt or PromptSettings(), history or HistorySettings(), BACKEND, RULES, EvaluationSettings(**evaluation)
    )


def turn(index, text, *, score=0.0, outcome=Outcome.INCORRECT, thinking=None):
    extraction = extract(text, backend="triton", thinking=thinking)
    return make_turn(
        outcome,
        id=SampleId(0, 0, 0, index),
        task=TASK,
        reply=Reply(text, (), (), "stop", thinking),
        extraction=extraction,
        score=Score(score),
        feedback=f"feedback {index}",
    )


def answer(number):
    return f"class ModelNew:\n    version = {number}\n"


def reply(number, thinking="hm"):
    return f"<think>{thinking} {number}</think>\n```python\n{answer(number)}```\n<SUMMARY>change {number}</SUMMARY>"


def text(messages):
    return "\n\n".join(f"--- {message.role}\n{message.content}" for message in messages) + "\n"


@pytest.mark.parametrize("name", TEMPLATES)
def test_rendered_templates_match_the_stored_files(name):
    """To accept a changed template, delete its file; the test writes it again."""
    prompt = PromptSettings(template=name, hardware=Hardware("H100"))
    turns = [turn(0, reply(0)), turn(1, "no code here")]
    words = text(composer(prompt).messages(TASK)) + text(composer(prompt).messages(TASK, turns=turns)[-4:])
    golden = DATA / f"{name}.txt"
    if not golden.exists():
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(words, encoding="utf-8")
        pytest.fail(f"{golden} was missing and has been written: look at it and run again")
    assert words == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_template_states_the_required_facts(name):
    words = text(composer(PromptSettings(template=name)).messages(TASK))
    assert TASK.reference.rstrip() in words
    assert all(rule.statement in words for rule in RULES)
    assert "as in the reference" in words
    assert "0.0001" in words
    assert "ModelNew" in words


@pytest.mark.parametrize("name", TEMPLATES)
def test_only_template_kernelrl_requests_tags(name):
    words = text(composer(PromptSettings(template=name)).messages(TASK, turns=[turn(0, reply(0))]))
    assert ("<KERNEL>" in words) == (name == "kernelrl")


def test_constant_text_of_brief_is_short_and_unchanged():
    brief = composer(PromptSettings(template="brief", shots="zero"))
    other = attrs.evolve(TASK, id="x", reference="class Model: pass\n")
    first, second = (brief.messages(task)[0].content.replace(task.reference.rstrip(), "") for task in (TASK, other))
    assert first == second
    assert len(first) < 700


@pytest.mark.parametrize(("shots", "shown"), [("zero", []), ("one", ["add"]), ("few", ["one", "two"])])
def test_shots(shots, shown):
    words = text(composer(PromptSettings(shots=shots)).messages(TASK))
    assert [name for name in ("add", "one", "two") if f"class ModelNew:  # {name}" in words] == shown


@pytest.mark.parametrize(("turns", "shown"), [("first", False), ("all", True)])
def test_example_turns(turns, shown):
    settings = PromptSettings(example_turns=turns)
    assert ("# add" in text(composer(settings).messages(TASK, turns=[turn(0, reply(0))]))) == shown


def test_retrieved_examples_replace_those_of_the_backend():
    words = text(composer().messages(TASK, examples=[Example("class Model:  # near", "class ModelNew:  # near")]))
    assert "# near" in words
    assert "# add" not in words


@pytest.mark.parametrize("name", TEMPLATES)
def test_measured_speedup_of_an_example_is_stated(name):
    near = Example("class Model:  # near", "class ModelNew:  # near", speedup=1.5)
    made = composer(PromptSettings(template=name))
    assert "1.50 times the speed of PyTorch" in text(made.messages(TASK, examples=[near]))
    assert "times the speed" not in text(made.messages(TASK))


def test_task_precision_overrides_the_recipe():
    words = text(composer().messages(attrs.evolve(TASK, precision="bf16")))
    assert "bfloat16" in words
    assert "0.01" in words
    assert "float32" not in words


@pytest.mark.parametrize("name", TEMPLATES)
def test_prompt_states_the_floating_dtypes_that_the_task_names(name):
    half = attrs.evolve(TASK, reference="class Model:\n    x = torch.randn(4).half(), torch.int64, 'bfloat16'\n")
    made = composer(PromptSettings(template=name))
    assert "as in the reference, which names float16, bfloat16" in text(made.messages(half))
    assert "which names" not in text(made.messages(TASK))
    cast = attrs.evolve(half, precision="fp32")
    assert "which names" not in text(made.messages(cast))


def test_prompt_states_tolerance_and_trials_of_the_stage():
    easy = attrs.evolve(TASK, settings=TaskSettings(atol=0.125, trials=2))
    words = text(composer(PromptSettings(template="kernelbench")).messages(easy))
    assert "absolute tolerance of 0.125 and" in words
    assert "relative tolerance of 0.0001 (float16 and bfloat16: 0.01), in 2 trials" in words


def test_precision_is_optional_and_tolerances_are_configurable():
    assert "float32" not in text(composer(PromptSettings(state_precision=False)).messages(TASK))
    assert "atol 0.5" in text(composer(atol=0.5).messages(TASK))


def test_summary_is_requested_and_shown():
    for made in (composer(PromptSettings(summary=True)), composer(history=HistorySettings(thinking="summarised"))):
        messages = made.messages(TASK, turns=[turn(0, reply(0))])
        assert "<SUMMARY>" in messages[1].content
        assert "<SUMMARY>change 0</SUMMARY>" in messages[2].content
    assert "SUMMARY" not in text(composer().messages(TASK, turns=[turn(0, reply(0))]))


def test_thinking_of_a_reply_without_code_is_not_shown():
    cut = turn(0, "a first draft, which")
    cut = attrs.evolve(cut, prompt=Prompt((), (), "<think>\n"))
    assert composer().messages(TASK, turns=[cut])[2] == Message("assistant", "(no answer)")


def test_think_prefix_is_a_prefill():
    assert composer(PromptSettings(think_prefix=True)).messages(TASK)[-1] == Message("assistant", "<think>\n")


# --- history --------------------------------------------------------------------------------------------------------


def shown(history, turns):
    messages = composer(history=history).messages(TASK, turns=turns)
    assert [message.role for message in messages] == ["system", "user"] + ["assistant", "user"] * (
        (len(messages) - 2) // 2
    )
    return [message.content.split("version = ")[1][0] for message in messages[2::2]]


SCORED = [turn(index, reply(index), score=score) for index, score in enumerate([0.1, 0.9, 0.9, 0.3, 0.0])]


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        ("all", "01234"),
        (LastHistory(2), "34"),
        (LastHistory(9), "01234"),
        (BestHistory(1), "24"),
        (BestHistory(2), "124"),
    ],
)
def test_shown_turns_are_in_order_and_include_the_newest(keep, expected):
    assert "".join(shown(HistorySettings(keep=keep), SCORED)) == expected


@pytest.mark.parametrize("name", TEMPLATES)
def test_history_form_prompt_puts_turns_into_the_user_message(name):
    """As in Kevin: base prompt, then kernel, summary and feedback of every turn, without thinking."""
    made = composer(PromptSettings(template=name), HistorySettings(thinking="summarised", form="prompt"))
    messages = made.messages(TASK, turns=[turn(0, reply(0, "zounds")), turn(1, reply(1, "zounds"))])
    assert [message.role for message in messages if message.role != "system"] == ["user"]
    words = messages[-1].content
    told = ["version = 0", "change 0", "feedback 0", "version = 1", "change 1", "feedback 1", "complete"]
    places = [words.index(one) for one in told[:-1]] + [words.rindex("complete")]
    assert places == sorted(places)
    assert "zounds" not in words
    assert "# add" not in words
    assert made.messages(TASK)[-1].content.count("# add") == 2


def test_history_form_prompt_drops_the_oldest_turns_first():
    made = composer(PromptSettings(template="kevin"), HistorySettings(form="prompt"))
    turns = [turn(index, reply(index)) for index in range(4)]
    whole = size(made.messages(TASK, turns=turns))
    prompt = made.fit(TASK, render=render, context_tokens=whole + 99, max_tokens=100, turns=turns).prompt
    assert [f"version = {index}" in prompt.messages[-1].content for index in range(4)] == [False, True, True, True]


def test_infrastructure_errors_are_never_shown():
    turns = [turn(0, reply(0)), turn(1, reply(1), outcome=Outcome.INFRA_ERROR)]
    assert shown(HistorySettings(), turns) == ["0"]
    assert "feedback 1" not in text(composer().messages(TASK, turns=turns))


@pytest.mark.parametrize(
    "text_of_reply", [reply(7), f"```python\n{answer(7)}```", f"Plan.</think>\n```\n{answer(7)}```"]
)
@pytest.mark.parametrize("thinking", ["stripped", "kept", "summarised"])
def test_history_contains_the_extracted_source(text_of_reply, thinking):
    messages = composer(history=HistorySettings(thinking=thinking)).messages(TASK, turns=[turn(0, text_of_reply)])
    assert messages[2].role == "assistant"
    assert extract(messages[2].content, backend="triton").candidate.source == answer(7)
    assert ("<think>" in messages[2].content) == (thinking == "kept" and "</think>" in text_of_reply)
    assert "feedback 0" in messages[3].content


@pytest.mark.parametrize(
    ("text_of_reply", "shown"),
    [
        ("", "(no answer)"),
        ("<think>endless", "(no answer)"),
        ("```python\nclass ModelNew(:\n```", "```python\nclass ModelNew(:\n```"),
    ],
    ids=["empty", "only thinking", "invalid code"],
)
def test_turn_without_code_shows_the_reply_without_thinking(text_of_reply, shown):
    messages = composer().messages(TASK, turns=[turn(0, text_of_reply, outcome=Outcome.FORMAT_ERROR)])
    assert messages[2].content == shown


def test_turn_without_code_shows_a_shortened_reply():
    messages = composer().messages(TASK, turns=[turn(0, "prose " * 2000, outcome=Outcome.FORMAT_ERROR)])
    assert 1500 < len(messages[2].content) < 2200
    assert messages[2].content.startswith("prose prose")
    assert messages[2].content.endswith("prose prose")


# --- replies --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize(
    "source",
    [
        answer(1),
        'class ModelNew:\n    """\n```python\nclass ModelNew: 1\n```\n````\n"""\n',
        "class ModelNew:\n    a = '</KERNEL>'\n",
    ],
)
def test_extraction_of_reply_text_is_the_source(name, source):
    made = composer(PromptSettings(template=name))
    assert extract(made.reply_text(source), backend="triton").candidate.source == source
    both = extract(made.reply_text(source, summary="why"), backend="triton")
    assert (both.candidate.source, both.summary) == (source, "why")


# --- fitting --------------------------------------------------------------------------------------------------------


def render(messages):
    """Three tokens per message and one for every four characters."""
    return Prompt(tuple(messages), (0,) * sum(3 + len(message.content) // 4 for message in messages))


def size(messages):
    return len(render(messages).tokens)


@given(
    context=st.integers(200, 6000),
    max_tokens=st.integers(1, 3000),
    limit=st.none() | st.integers(200, 4000),
    lengths=st.lists(st.integers(0, 3000), max_size=5),
    examples=st.lists(st.integers(1, 2000), max_size=3),
)
@settings(max_examples=150, deadline=None)
def test_fit_stays_within_every_limit(context, max_tokens, limit, lengths, examples):
    made = composer(PromptSettings(template="brief", shots="zero", max_tokens=limit))
    turns = [turn(index, f"```python\n{answer(index)}#{'x' * length}\n```") for index, length in enumerate(lengths)]
    found = [Example("class Model: pass", "#" * length) for length in examples]
    largest = min(limit or context, context)
    minimum = min(max_tokens, MINIMUM_REPLY_TOKENS)
    newest = made.messages(TASK, turns=turns)
    newest = (newest[0], *newest[-2:]) if turns else newest
    bare = size(made.messages(TASK))

    def fitted():
        return made.fit(TASK, render=render, context_tokens=context, max_tokens=max_tokens, examples=found, turns=turns)

    if bare > min(largest, context - minimum):
        with pytest.raises(UsageError, match=f"{TASK.id}: its prompt has {bare} tokens"):
            fitted()
        return
    found_prompt = fitted()
    prompt, tokens = found_prompt.prompt, found_prompt.max_tokens
    assert found_prompt.examples == tuple(found[: len(found_prompt.examples)])
    assert len(prompt.tokens) <= largest
    assert len(prompt.tokens) + tokens <= context
    assert minimum <= tokens <= max_tokens
    if turns and size(newest) <= min(largest, context - minimum):
        assert any(f"version = {len(turns) - 1}\n" in message.content for message in prompt.messages)
    if tokens < max_tokens:
        assert len(prompt.messages) <= len(newest), "history is dropped before the reply limit is lowered"


def test_oldest_turns_are_dropped_first():
    made = composer(PromptSettings(template="brief"))
    turns = [turn(index, reply(index)) for index in range(4)]
    whole = size(made.messages(TASK, turns=turns))
    fitted = made.fit(TASK, render=render, context_tokens=whole + 99, max_tokens=100, turns=turns)
    assert [m.content.split("version = ")[1][0] for m in fitted.prompt.messages[1::2]] == ["1", "2", "3"]
    assert fitted.max_tokens == 100


LONG = [Example(f"class Model:  # {name}", f"class ModelNew:  # {name * 300}") for name in "xyz"]


@pytest.mark.parametrize("left", [3, 2, 1])
def test_retrieved_examples_are_dropped_last_first(left):
    made = composer(PromptSettings(template="brief"))
    context = size(made.messages(TASK, examples=LONG[:left])) + 100
    fitted = made.fit(TASK, render=render, context_tokens=context, max_tokens=100, examples=LONG)
    assert fitted.examples == tuple(LONG[:left])
    assert [example.kernel in text(fitted.prompt.messages) for example in LONG] == [i < left for i in range(3)]


def test_example_of_the_backend_is_shown_if_no_retrieved_one_fits():
    made = composer(PromptSettings(template="brief"))
    context = size(made.messages(TASK)) + 100
    fitted = made.fit(TASK, render=render, context_tokens=context, max_tokens=100, examples=LONG)
    assert fitted.examples == (BACKEND.example,)
    assert "# add" in text(fitted.prompt.messages)


@pytest.mark.parametrize(
    ("limit", "context", "key"),
    [(100, 5000, "prompt.max_tokens=700"), (None, 800, "policy.context_tokens to 956"), (750, 800, "policy.context_")],
)
def test_the_fix_for_a_prompt_that_is_too_long_names_the_limit_that_it_exceeds(limit, context, key):
    made = composer(PromptSettings(template="brief", shots="zero", max_tokens=limit))

    def render(messages):
        return Prompt(tuple(messages), tuple(range(700)))

    with pytest.raises(UsageError) as refused:
        made.fit(TASK, render=render, context_tokens=context, max_tokens=300)
    assert key in refused.value.fix


# --- user templates -------------------------------------------------------------------------------------------------


def test_template_may_extend_a_bundled_one(tmp_path):
    path = tmp_path / "mine.jinja"
    path.write_text('{% extends "brief.jinja" %}{% block feedback %}Mine: {{ feedback }}{% endblock %}')
    messages = composer(PromptSettings(template=str(path))).messages(TASK, turns=[turn(0, reply(0))])
    assert messages[-1].content == "Mine: feedback 0"
    assert messages[0].content.startswith("Write class ModelNew")


def test_template_without_extends_is_the_first_user_message(tmp_path):
    path = tmp_path / "mine.jinja"
    path.write_text("Rewrite:\n{{ task.reference | fenced }}")
    messages = composer(PromptSettings(template=str(path))).messages(TASK, turns=[turn(0, reply(0))])
    assert [message.role for message in messages] == ["user", "assistant", "user"]
    assert messages[0].content.startswith("Rewrite:\n```python\nimport torch")


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [("a\n{% if %}", 2, "Expected"), ("a\n\n{{ nothing }}", 3, "nothing"), ("{{ task.colour }}", 1, "colour")],
)
def test_template_error_names_file_and_line(tmp_path, content, line, words):
    path = tmp_path / "mine.jinja"
    path.write_text(content)
    with pytest.raises(UsageError, match=words) as caught:
        composer(PromptSettings(template=str(path))).messages(TASK)
    assert f"{path}:{line}" in str(caught.value)


def test_template_with_unextractable_reply_is_a_usage_error(tmp_path):
    path = tmp_path / "mine.jinja"
    path.write_text('{% extends "brief.jinja" %}{% block reply %}{{ source }}{% endblock %}')
    with pytest.raises(UsageError, match="reply"):
        composer(PromptSettings(template=str(path)))


@pytest.mark.parametrize(
    ("name", "words"), [("kernelr", "did you mean 'kernelrl'"), ("zzz", "unknown"), ("no/such.jinja", "no such file")]
)
def test_unknown_template(name, words):
    with pytest.raises(UsageError, match=words):
        composer(PromptSettings(template=name))


def test_the_first_lowered_reply_limit_is_reported(caplog) -> None:
    made = composer(PromptSettings(template="brief", shots="zero"))

    def render(messages):
        return Prompt(tuple(messages), tuple(range(700)))

    with caplog.at_level("WARNING"):
        for _ in range(2):
            assert made.fit(TASK, render=render, context_tokens=1024, max_tokens=1000).max_tokens == 324
            assert made.fit(TASK, render=render, context_tokens=1024, max_tokens=300).max_tokens == 300
    assert [record.getMessage() for record in caplog.records] == [
        f"a reply for task {TASK.id} is limited to 324 tokens instead of sampling.max_tokens=1000, because the context "
        "of the policy has 1024 tokens; further cases are not reported"
    ]
