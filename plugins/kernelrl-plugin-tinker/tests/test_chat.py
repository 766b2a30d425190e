"""Prompts and replies of every model that tinker-cookbook knows."""

from __future__ import annotations

import copy

import pytest
from tinker_cookbook import model_info
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from kernelrl_core.errors import UsageError
from kernelrl_core.prompts.extraction import extract
from kernelrl_core.types import Message
from kernelrl_plugin_tinker.chat import CookbookChat, make_chat, recommended_renderer

SPECIAL = [
    *(f"<|{name}|>" for name in ("im_start", "im_end", "im_user", "im_middle", "im_assistant", "im_system")),
    *(f"<|{name}|>" for name in ("begin_of_text", "endoftext", "start_header_id", "end_header_id", "eot_id")),
    *(f"<|{name}|>" for name in ("start", "end", "channel", "message", "return", "call")),
    *(f"<|{name}|>" for name in ("system", "user", "assistant", "observation")),
    *("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"),
    *("<think>", "</think>", "[gMASK]", "<sop>"),
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
KNOWN = [f"{owner}/{name}" for owner, table in TABLES.items() for name in table()]
CODE = "```python\nclass ModelNew:\n    pass\n```"
PUSH = Message("assistant", "<think>\n")
ASKED = (Message("system", "You write kernels."), Message("user", "Write relu."))


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    """A token for each byte, and the special tokens of all families."""
    alphabet = {byte: index for index, byte in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    made = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(SPECIAL)
    template = "{% for m in messages %}<|user|>{{ m.content }}<|end|>{% endfor %}<|assistant|>"
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|end|>", chat_template=template)


@pytest.fixture(scope="module")
def thinker(tokenizer) -> PreTrainedTokenizerFast:
    """With a chat template that opens the thinking, as that of QwQ does."""
    made = copy.deepcopy(tokenizer)
    made.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
    )
    return made


def chat_with(model: str, tokenizer):
    return make_chat(model, recommended_renderer(model), tokenizer)


def said(chat, tokenizer, text: str, *, prompt=ASKED, reason: str = "stop", end: str = ""):
    tokens = tokenizer.encode(text + end, add_special_tokens=False)
    return chat.read(chat.render(prompt), tokens, [-1.0] * len(tokens), reason, ())


def read(chat, asked, reply):
    return extract(
        chat.render(asked).prefill + reply.text,
        backend="triton",
        thinking=reply.thinking,
        stop_reason=reply.stop_reason,
    )


def end_of(chat, tokenizer) -> str:
    stop = (chat.stops(()) or [tokenizer.eos_token])[0]
    return stop if isinstance(stop, str) else tokenizer.decode([stop])


@pytest.mark.parametrize("model", KNOWN)
def test_a_draft_in_the_thinking_is_never_the_answer(model, tokenizer) -> None:
    chat = chat_with(model, tokenizer)
    prompt = tokenizer.decode(chat.render(ASKED).tokens)
    assert "Write relu." in prompt
    draft = "A draft: ```python\nclass ModelNew:\n    draft = 1\n```"
    if model.startswith("openai/"):
        text = f"<|channel|>analysis<|message|>{draft}<|end|><|start|>assistant<|channel|>final<|message|>{CODE}"
    elif prompt.rstrip().endswith("<think>"):
        text = f"{draft}\n</think>\n\n{CODE}"
    else:
        text = f"<think>\n{draft}\n</think>\n\n{CODE}"
    reply = said(chat, tokenizer, text, end=end_of(chat, tokenizer))
    found = read(chat, ASKED, reply)
    assert found.candidate is not None
    assert "draft" not in found.candidate.source
    assert "A draft" in found.candidate.thinking
    assert end_of(chat, tokenizer) not in reply.text


@pytest.mark.parametrize("pushed", [False, True], ids=["", "think_prefix"])
@pytest.mark.parametrize("model", [*KNOWN, "Qwen/QwQ-32B"])
def test_thinking_that_never_ended_is_no_answer(model, pushed, tokenizer, thinker) -> None:
    """Neither cut off nor ended by the model; a draft in it is complete and stands in a block of its own."""
    if model == "Qwen/QwQ-32B":
        tokenizer = thinker
    chat = chat_with(model, tokenizer)
    asked = (*ASKED, PUSH) if pushed else ASKED
    draft = f"First\n{CODE}\nand then"
    text = f"<|channel|>analysis<|message|>{draft}" if model.startswith("openai/") else draft
    if not tokenizer.decode(chat.render(asked).tokens).rstrip().endswith("<think>") and text is draft:
        text = f"<think>\n{draft}"
    for reason, end in (("length", ""), ("stop", end_of(chat, tokenizer)), ("stop", "")):
        reply = said(chat, tokenizer, text, prompt=asked, reason=reason, end=end)
        assert read(chat, asked, reply).candidate is None, (reason, reply.text)


@pytest.mark.parametrize("thought", ["", "First\n```python\nclass ModelNew:\n    draft = 1\n```\n"])
@pytest.mark.parametrize("pushed", [False, True], ids=["", "think_prefix"])
@pytest.mark.parametrize("model", ["Qwen/QwQ-32B", "Qwen/Qwen3-8B", "Qwen/Qwen3.5-4B", "moonshotai/Kimi-K2.5"])
def test_the_answer_stands_behind_thinking_that_the_prompt_opened(model, pushed, thought, tokenizer, thinker) -> None:
    tokenizer = thinker if model == "Qwen/QwQ-32B" else tokenizer
    chat = chat_with(model, tokenizer)
    asked = (*ASKED, PUSH) if pushed else ASKED
    opening = chat.render(asked).opening
    assert opening.strip() == ("" if model == "Qwen/Qwen3-8B" and not pushed else "<think>")
    text = ("" if opening else "<think>\n") + f"{thought}\n</think>\n\n{CODE}"
    reply = said(chat, tokenizer, text, prompt=asked, end=end_of(chat, tokenizer))
    found = read(chat, asked, reply)
    assert found.candidate is not None
    assert "draft" not in found.candidate.source
    assert found.thinking == thought.strip()


def test_a_think_tag_is_put_in_front_once(tokenizer) -> None:
    asked = (*ASKED, PUSH)
    for model in ("Qwen/Qwen3-8B", "Qwen/Qwen3.5-4B"):
        chat = chat_with(model, tokenizer)
        assert tokenizer.decode(chat.render(asked).tokens).endswith("<|im_start|>assistant\n<think>\n")
        reply = said(chat, tokenizer, f"hm\n</think>\n{CODE}", prompt=asked, end="<|im_end|>")
        assert reply.thinking.strip() == "hm"
        assert read(chat, asked, reply).candidate is not None


@pytest.mark.parametrize("model", ["Qwen/QwQ-32B", "Qwen/Qwen3-8B", "Qwen/Qwen3.5-4B", "openai/gpt-oss-20b"])
def test_a_reply_without_an_end_was_cut_whatever_the_server_says(model, tokenizer, thinker) -> None:
    chat = chat_with(model, thinker if model == "Qwen/QwQ-32B" else tokenizer)
    prompt, text = chat.render(ASKED), "hm\n</think>\n\nx</KERNEL>"
    told = {}
    for name, end in (("its own", end_of(chat, tokenizer)), ("none", "")):
        tokens = tokenizer.encode(text + end, add_special_tokens=False)
        for reason in ("stop", "length"):
            for strings in ((), ("</KERNEL>",)):
                told[name, reason, strings] = chat.read(
                    prompt, tokens, [0.0] * len(tokens), reason, strings
                ).stop_reason
    assert {where for where, reason in told.items() if reason == "stop"} == {
        ("its own", "stop", ()),
        ("its own", "stop", ("</KERNEL>",)),
        ("none", "stop", ("</KERNEL>",)),
    }


def test_stop_strings_stand_beside_the_models_own(tokenizer) -> None:
    chat = chat_with("Qwen/Qwen3-8B", tokenizer)
    assert chat.stops(("</KERNEL>",)) == ["<|im_end|>", "</KERNEL>"]
    tokens = tokenizer.encode("a</KERNEL>b", add_special_tokens=False)
    assert chat.read(chat.render(ASKED), tokens, [0.0] * len(tokens), "stop", ("</KERNEL>",)).text == "a</KERNEL>"


def test_a_model_the_cookbook_does_not_know_is_spoken_to_by_its_own_template(tokenizer) -> None:
    """And never by the renderer of a model with a similar name."""
    assert recommended_renderer("Qwen/QwQ-32B") == recommended_renderer("Qwen/Qwen3-8B-of-mine") == "chat_template"
    assert recommended_renderer("Qwen/Qwen3-8B") == "qwen3"
    assert isinstance(make_chat("Qwen/QwQ-32B", "qwen3", tokenizer), CookbookChat)
    with pytest.raises(UsageError, match="'qwen33' cannot be had"):
        make_chat("Qwen/Qwen3-8B", "qwen33", tokenizer)


def test_a_chat_template_leaves_out_ends_of_turn_and_keeps_think_tags(tokenizer) -> None:
    chat = chat_with("anything", tokenizer)
    assert tokenizer.decode(chat.render(ASKED[1:]).tokens) == "<|user|>Write relu.<|end|><|assistant|>"
    assert said(chat, tokenizer, "<think>x</think>y", end="<|end|>").text == "<think>x</think>y"
