"""Prompts and replies of every model that tinker-cookbook knows."""

from __future__ import annotations

import copy

import pytest

pytest.importorskip("tinker_cookbook")

from tinker_cookbook import model_info
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.policies import Message
from kernelrl_plugin_tinker.chat import CookbookChat, make_chat, recommended_renderer
from kernelrl_testing.core import extract

SPECIAL = [
    *(f"<|{name}|>" for name in ("im_start", "im_end", "im_user", "im_middle", "im_assistant", "im_system")),
    *(f"<|{name}|>" for name in ("begin_of_text", "endoftext", "start_header_id", "end_header_id", "eot_id")),
    *(f"<|{name}|>" for name in ("start", "end", "channel", "message", "return", "call")),
    *(f"<|{name}|>" for name in ("system", "user", "assistant", "observation")),
    *("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"),
    *("<think>", "</think>", "[THINK]", "[/THINK]", "[gMASK]", "<sop>"),
]
TABLES = {
    "meta-llama": model_info.get_llama_info,
    "Qwen": model_info.get_qwen_info,
    "deepseek-ai": model_info.get_deepseek_info,
    "openai": model_info.get_gpt_oss_info,
    "moonshotai": model_info.get_moonshot_info,
    "zai-org": model_info.get_zai_info,
    "nvidia": model_info.get_nvidia_info,
}
WITH_OWN_TOKENIZER = {"moonshotai/Kimi-K3.1-Pro"}
"""Models whose renderer takes the tokenizer of tml-renderers only."""
KNOWN = sorted({f"{owner}/{name}" for owner, table in TABLES.items() for name in table()} - WITH_OWN_TOKENIZER)
CODE = "```python\nclass ModelNew:\n    pass\n```"
PUSH = Message("assistant", "<think>\n")
MESSAGES = (Message("system", "You write kernels."), Message("user", "Write relu."))


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    """One token per byte, and the special tokens of all model families."""
    alphabet = {byte: index for index, byte in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    made = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(SPECIAL)
    template = "{% for m in messages %}<|user|>{{ m.content }}<|end|>{% endfor %}<|assistant|>"
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|end|>", chat_template=template)


@pytest.fixture(scope="module")
def thinker(tokenizer) -> PreTrainedTokenizerFast:
    """The tokenizer with a chat template that ends in `<think>`, as that of QwQ does."""
    made = copy.deepcopy(tokenizer)
    made.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
    )
    return made


def chat_with(model: str, tokenizer):
    return make_chat(model, recommended_renderer(model), tokenizer)


def parsed(chat, tokenizer, text: str, *, prompt=MESSAGES, reason: str = "stop", end: str = ""):
    tokens = tokenizer.encode(text + end, add_special_tokens=False)
    return chat.read(chat.render(prompt), tokens, [-1.0] * len(tokens), reason, ())


def read(chat, messages, reply):
    return extract(
        chat.render(messages).prefill + reply.text,
        backend="triton",
        thinking=reply.thinking,
        stop_reason=reply.stop_reason,
    )


def end_of(chat, tokenizer) -> str:
    stop = (chat.stops(()) or [tokenizer.eos_token])[0]
    return stop if isinstance(stop, str) else tokenizer.decode([stop])


@pytest.mark.parametrize("model", KNOWN)
def test_a_draft_in_the_thinking_is_never_the_candidate(model, tokenizer) -> None:
    chat = chat_with(model, tokenizer)
    prompt = tokenizer.decode(chat.render(MESSAGES).tokens)
    assert "Write relu." in prompt
    draft = "A draft: ```python\nclass ModelNew:\n    draft = 1\n```"
    if model.startswith("openai/"):
        text = f"<|channel|>analysis<|message|>{draft}<|end|><|start|>assistant<|channel|>final<|message|>{CODE}"
    elif prompt.rstrip().endswith("<think>"):
        text = f"{draft}\n</think>\n\n{CODE}"
    else:
        text = f"<think>\n{draft}\n</think>\n\n{CODE}"
    reply = parsed(chat, tokenizer, text, end=end_of(chat, tokenizer))
    found = read(chat, MESSAGES, reply)
    assert found.candidate is not None
    assert "draft" not in found.candidate.source
    assert "A draft" in found.candidate.thinking
    assert end_of(chat, tokenizer) not in reply.text


@pytest.mark.parametrize("pushed", [False, True], ids=["", "think_prefix"])
@pytest.mark.parametrize("model", [*KNOWN, "Qwen/QwQ-32B"])
def test_unfinished_thinking_has_no_candidate(model, pushed, tokenizer, thinker) -> None:
    """Whether the reply was cut or the model ended it, although the thinking contains a complete code block."""
    if model == "Qwen/QwQ-32B":
        tokenizer = thinker
    chat = chat_with(model, tokenizer)
    messages = (*MESSAGES, PUSH) if pushed else MESSAGES
    draft = f"First\n{CODE}\nand then"
    text = f"<|channel|>analysis<|message|>{draft}" if model.startswith("openai/") else draft
    if not tokenizer.decode(chat.render(messages).tokens).rstrip().endswith("<think>") and text is draft:
        text = f"<think>\n{draft}"
    for reason, end in (("length", ""), ("stop", end_of(chat, tokenizer)), ("stop", "")):
        reply = parsed(chat, tokenizer, text, prompt=messages, reason=reason, end=end)
        assert read(chat, messages, reply).candidate is None, (reason, reply.text)


@pytest.mark.parametrize("thought", ["", "First\n```python\nclass ModelNew:\n    draft = 1\n```\n"])
@pytest.mark.parametrize("pushed", [False, True], ids=["", "think_prefix"])
@pytest.mark.parametrize("model", ["Qwen/QwQ-32B", "Qwen/Qwen3-8B", "Qwen/Qwen3.5-4B", "moonshotai/Kimi-K2.5"])
def test_the_candidate_follows_thinking_that_the_prompt_started(model, pushed, thought, tokenizer, thinker) -> None:
    tokenizer = thinker if model == "Qwen/QwQ-32B" else tokenizer
    chat = chat_with(model, tokenizer)
    messages = (*MESSAGES, PUSH) if pushed else MESSAGES
    opening = chat.render(messages).opening
    assert opening.strip() == ("" if model == "Qwen/Qwen3-8B" and not pushed else "<think>")
    text = ("" if opening else "<think>\n") + f"{thought}\n</think>\n\n{CODE}"
    reply = parsed(chat, tokenizer, text, prompt=messages, end=end_of(chat, tokenizer))
    found = read(chat, messages, reply)
    assert found.candidate is not None
    assert "draft" not in found.candidate.source
    assert found.thinking == thought.strip()


def test_the_prompt_ends_with_one_think_tag(tokenizer) -> None:
    messages = (*MESSAGES, PUSH)
    for model in ("Qwen/Qwen3-8B", "Qwen/Qwen3.5-4B"):
        chat = chat_with(model, tokenizer)
        assert tokenizer.decode(chat.render(messages).tokens).endswith("<|im_start|>assistant\n<think>\n")
        reply = parsed(chat, tokenizer, f"hm\n</think>\n{CODE}", prompt=messages, end="<|im_end|>")
        assert reply.thinking.strip() == "hm"
        assert read(chat, messages, reply).candidate is not None


@pytest.mark.parametrize("model", ["Qwen/QwQ-32B", "Qwen/Qwen3-8B", "Qwen/Qwen3.5-4B", "openai/gpt-oss-20b"])
def test_a_reply_without_an_end_of_turn_has_stop_reason_length(model, tokenizer, thinker) -> None:
    chat = chat_with(model, thinker if model == "Qwen/QwQ-32B" else tokenizer)
    prompt, text = chat.render(MESSAGES), "hm\n</think>\n\nx</KERNEL>"
    reasons = {}
    for name, end in (("its own", end_of(chat, tokenizer)), ("none", "")):
        tokens = tokenizer.encode(text + end, add_special_tokens=False)
        for reason in ("stop", "length"):
            for strings in ((), ("</KERNEL>",)):
                reasons[name, reason, strings] = chat.read(
                    prompt, tokens, [0.0] * len(tokens), reason, strings
                ).stop_reason
    assert {case for case, reason in reasons.items() if reason == "stop"} == {
        ("its own", "stop", ()),
        ("its own", "stop", ("</KERNEL>",)),
        ("none", "stop", ("</KERNEL>",)),
    }


def test_stop_strings_are_added_to_the_model_s_own(tokenizer) -> None:
    chat = chat_with("Qwen/Qwen3-8B", tokenizer)
    assert chat.stops(("</KERNEL>",)) == ["<|im_end|>", "</KERNEL>"]
    tokens = tokenizer.encode("a</KERNEL>b", add_special_tokens=False)
    assert chat.read(chat.render(MESSAGES), tokens, [0.0] * len(tokens), "stop", ("</KERNEL>",)).text == "a</KERNEL>"


def test_a_model_unknown_to_the_cookbook_uses_its_chat_template(tokenizer) -> None:
    """It never uses the renderer of a model with a similar name."""
    assert recommended_renderer("Qwen/QwQ-32B") == recommended_renderer("Qwen/Qwen3-8B-of-mine") == "chat_template"
    assert recommended_renderer("Qwen/Qwen3-8B") == "qwen3"
    assert isinstance(make_chat("Qwen/QwQ-32B", "qwen3", tokenizer), CookbookChat)
    with pytest.raises(UsageError, match="'qwen33' cannot be loaded"):
        make_chat("Qwen/Qwen3-8B", "qwen33", tokenizer)


def test_a_chat_template_removes_the_end_of_turn_and_keeps_think_tags(tokenizer) -> None:
    chat = chat_with("anything", tokenizer)
    assert tokenizer.decode(chat.render(MESSAGES[1:]).tokens) == "<|user|>Write relu.<|end|><|assistant|>"
    assert parsed(chat, tokenizer, "<think>x</think>y", end="<|end|>").text == "<think>x</think>y"


@pytest.mark.parametrize(
    ("opening", "closing"),
    [
        ("[THINK]", "[/THINK]"),
        ("<|channel|>analysis<|message|>", "<|start|>assistant<|channel|>final<|message|>"),
    ],
)
def test_a_chat_template_keeps_the_markers_of_thinking_that_are_special_tokens(opening, closing, tokenizer) -> None:
    chat = chat_with("anything", tokenizer)
    reply = parsed(chat, tokenizer, f"<|im_start|>{opening}A draft{closing}{CODE}", end="<|end|>")
    assert reply.text == f"{opening}A draft{closing}{CODE}"
    assert read(chat, MESSAGES, reply).thinking == "A draft"
