"""Texts by which model families mark their thinking and end their turn, from their chat templates."""

from __future__ import annotations

import re

import attrs

__all__ = ["CHAT_FORMATS", "END_OF_TURN", "THINKING_MARKERS", "ChatFormat", "ThinkingMarkers"]


@attrs.frozen
class ThinkingMarkers:
    """Begin and end of thinking in a reply."""

    opening: str
    """Text that begins thinking."""
    closing: str
    """Text that ends it; the visible text of the reply follows."""
    opening_pattern: str = attrs.field(default=attrs.Factory(lambda self: re.escape(self.opening), takes_self=True))
    """Regular expression of all forms of `opening`, without groups that capture."""
    closing_pattern: str = attrs.field(default=attrs.Factory(lambda self: re.escape(self.closing), takes_self=True))
    """Regular expression of all forms of `closing`, without groups that capture."""


@attrs.frozen
class ChatFormat:
    """Format of the replies of some model families."""

    families: str
    """Names of the model families."""
    thinking: ThinkingMarkers | None
    """None: these models do not mark thinking."""
    ends: tuple[str, ...]
    """Texts that can follow the visible text: end-of-turn tokens, and closing tags around it."""


_THINK = ThinkingMarkers("<think>", "</think>", "(?i:<think(?:ing)?>)", "(?i:</think(?:ing)?>)")
_REASONING = ThinkingMarkers("<reasoning>", "</reasoning>", "(?i:<reasoning>)", "(?i:</reasoning>)")

# Every message has a header with its channel, and only the channel `final` is visible.
_HARMONY_HEADER = r"[^<]{0,99}(?:<\|constrain\|>[^<]{0,99})?<\|message\|>"
_HARMONY = ThinkingMarkers(
    "<|channel|>analysis<|message|>",
    "<|end|><|start|>assistant<|channel|>final<|message|>",
    rf"<\|channel\|>(?!final\b){_HARMONY_HEADER}",
    rf"(?:<\|end\|>)?(?:<\|start\|>[^<]{{0,99}})?<\|channel\|>final\b{_HARMONY_HEADER}"
    r"|(?:<\|end\|>)?<\|start\|>assistant<\|message\|>",
)
_HARMONY_WITHOUT_TOKENS = ThinkingMarkers("analysis", "assistantfinal", r"\Aanalysis(?=[A-Z])")
_INKLING = ThinkingMarkers(
    "<|content_thinking|>",
    "<|end_message|><|message_model|><|content_text|>",
    closing_pattern=r"(?:<\|end_message\|>)?(?:<\|message_model\|>)?<\|content_text\|>",
)
_KIMI_K3 = ThinkingMarkers(
    "<|open|>think<|sep|>",
    "<|close|>think<|sep|><|open|>response<|sep|>",
    closing_pattern=r"<\|close\|>think<\|sep\|>(?:\s{0,9}<\|open\|>response<\|sep\|>)?|<\|open\|>response<\|sep\|>",
)
_GEMMA_4 = ThinkingMarkers("<|channel>thought\n", "<channel|>", r"<\|channel>(?:thought\n?)?")

CHAT_FORMATS = (
    ChatFormat("Qwen 3, QwQ, MiMo, Nemotron 3, OLMo 3, Phi 4 reasoning", _THINK, ("<|im_end|>", "<|endoftext|>")),
    ChatFormat("DeepSeek R1, V3.1, V3.2, V4", _THINK, ("<｜end▁of▁sentence｜>", "<|EOT|>")),
    ChatFormat("GLM 4.5, GLM 5", _THINK, ("<|user|>", "<|observation|>", "<|endoftext|>")),
    ChatFormat("Kimi K2", _THINK, ("<|im_end|>", "[EOS]", "[EOT]")),
    ChatFormat("MiniMax M1, M2", _THINK, ("<end_of_sentence>", "[e~[")),
    ChatFormat("Hunyuan A13B", _THINK, ("</answer>", "<|eos|>")),
    ChatFormat("ERNIE 4.5", _THINK, ("</response>", "</s>", "<|end_of_sentence|>")),
    ChatFormat("Granite 3.3", _THINK, ("</response>", "<|end_of_text|>")),
    ChatFormat("prompts that request reasoning in tags, as of GRPO recipes", _REASONING, ("</answer>",)),
    ChatFormat("Mistral: Magistral, Ministral, Mistral Small 4", ThinkingMarkers("[THINK]", "[/THINK]"), ("</s>",)),
    ChatFormat("Seed-OSS", ThinkingMarkers("<seed:think>", "</seed:think>"), ("<seed:eos>",)),
    ChatFormat("gpt-oss (harmony)", _HARMONY, ("<|return|>", "<|call|>", "<|end|>")),
    ChatFormat("gpt-oss, decoded without special tokens", _HARMONY_WITHOUT_TOKENS, ()),
    ChatFormat("Gemma 4", _GEMMA_4, ("<turn|>", "<eos>")),
    ChatFormat("Kimi K3", _KIMI_K3, ("<|close|>response<|sep|>", "<|close|>message<|sep|>", "<|end_of_msg|>")),
    ChatFormat("Kimi VL Thinking", ThinkingMarkers("◁think▷", "◁/think▷"), ("<|im_end|>",)),
    ChatFormat("Inkling", _INKLING, ("<|end_message|>", "<|content_model_end_sampling|>")),
    ChatFormat(
        "Command A Reasoning",
        ThinkingMarkers("<|START_THINKING|>", "<|END_THINKING|>"),
        ("<|END_RESPONSE|>", "<|END_TEXT|>", "<|END_OF_TURN_TOKEN|>"),
    ),
    ChatFormat("Apertus", ThinkingMarkers("<|inner_prefix|>", "<|inner_suffix|>"), ("<|assistant_end|>",)),
    ChatFormat("MiniMax M3", ThinkingMarkers("<mm:think>", "</mm:think>"), ("[e~[",)),
    ChatFormat("LongCat", ThinkingMarkers("<longcat_think>", "</longcat_think>"), ("</longcat_s>",)),
    ChatFormat("Solar Open 2", ThinkingMarkers("<|think:start|>", "<|think:end|>"), ("<|end|>",)),
    ChatFormat(
        "OpenThinker, Sky-T1",
        ThinkingMarkers("<|begin_of_thought|>", "<|end_of_thought|>"),
        ("<|end_of_solution|>", "<|im_end|>"),
    ),
    ChatFormat("Llama 3, Llama 4", None, ("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|eot|>", "<|eom|>")),
    ChatFormat("Gemma 2, Gemma 3", None, ("<end_of_turn>", "<eos>")),
    ChatFormat("Phi 3, Phi 4 mini", None, ("<|end|>", "<|endoftext|>")),
)
"""Which model family uses which texts. Extraction tries all of them: it does not know the model of a saved reply."""

THINKING_MARKERS = tuple(dict.fromkeys(row.thinking for row in CHAT_FORMATS if row.thinking is not None))
"""The different markers of the table."""

END_OF_TURN = "|".join(re.escape(end) for end in dict.fromkeys(end for row in CHAT_FORMATS for end in row.ends))
"""Regular expression of all `ChatFormat.ends`, without groups."""
