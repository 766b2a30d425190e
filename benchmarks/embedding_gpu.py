"""Records per second that `kernelrl index build --device cuda` embeds, and the share of the GPU's bfloat16 bound.

    python benchmarks/embedding_gpu.py [--records 8192] [--output FILE]

The model has the architecture of BAAI/bge-code-v1 (Qwen2, 1.5 B parameters: 28 layers, width 1536) with random weights,
last-token pooling, and a byte-level BPE tokenizer trained on the records: speed does not depend on the values. The
records are those of `retrieval.py`; only references are embedded, cut at the embedder's limit of tokens.

The useful work is 2 x parameters without embeddings x tokens, plus causal attention, without padding. Two bounds: the
data sheet's dense bfloat16 rate of an H100 or H200 (989 TFLOP/s), and the rate of a large matrix product on this GPU in
the same process. Loading and tokenizing are included in the time of the records, writing the index is not.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from provenance import provenance
from retrieval import sources
from sentence_transformers import SentenceTransformer, models
from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2Model

from kernelrl_plugin_raicl.index.embedder import Embedder

SHEET_TFLOPS = 989.0
SHARD = 512
"""References per call, as `embed_references` has them."""
SIZES = {
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
}
SMALL = {**SIZES, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}


def model_directory(path: Path, texts: list[str], sizes: dict[str, int]) -> Path:
    """A sentence-transformers model with random weights."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=8000, special_tokens=["<pad>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(texts[:2000], trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", model_max_length=32768)
    torch.manual_seed(0)
    config = Qwen2Config(vocab_size=151_936, max_position_embeddings=32768, **sizes)
    torch.set_default_dtype(torch.bfloat16)
    Qwen2Model(config).save_pretrained(path / "base")
    torch.set_default_dtype(torch.float32)
    fast.save_pretrained(path / "base")
    transformer = models.Transformer(str(path / "base"), max_seq_length=32768)
    pooling = models.Pooling(sizes["hidden_size"], pooling_mode="lasttoken")
    SentenceTransformer(modules=[transformer, pooling, models.Normalize()], device="cpu").save(str(path / "model"))
    return path / "model"


def flops(lengths: list[int], sizes: dict[str, int]) -> float:
    """Floating-point operations of the forward passes over texts of `lengths` tokens."""
    width, inner, layers = sizes["hidden_size"], sizes["intermediate_size"], sizes["num_hidden_layers"]
    heads = sizes["num_attention_heads"]
    kv = width * sizes.get("num_key_value_heads", heads) // heads
    parameters = layers * (2 * width * width + 2 * width * kv + 3 * width * inner)
    # Scores and weighted values: 2 x 2 x width operations per pair of positions, half of them masked.
    attention = sum(2 * layers * width * n * n for n in lengths)
    return 2.0 * parameters * sum(lengths) + attention


def matmul_tflops() -> float:
    """Median rate of a bfloat16 product of two 8192 x 8192 matrices, in TFLOP/s."""
    n = 8192
    left, right = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    rates = []
    for _ in range(30):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(10):
            torch.mm(left, right)
        end.record()
        torch.cuda.synchronize()
        rates.append(10 * 2 * n**3 / (start.elapsed_time(end) * 1e-3) / 1e12)
    return statistics.median(rates[5:])


def measure(n: int, *, device: str, sizes: dict[str, int]) -> dict[str, Any]:
    texts = sorted((record.reference for record in islice(sources(n), n)), key=len)
    with tempfile.TemporaryDirectory() as folder:
        embedder = Embedder(str(model_directory(Path(folder), texts, sizes)), device=device)
    lengths = [min(embedder.max_tokens, len(ids)) for ids in embedder._model.tokenizer(texts)["input_ids"]]
    embedder.documents(texts[-SHARD:])  # warm-up: the longest batches
    began = time.perf_counter()
    for start in range(0, n, SHARD):
        embedder.documents(texts[start : start + SHARD])
    seconds = time.perf_counter() - began
    tflops = flops(lengths, sizes) / seconds / 1e12
    result = {
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
        "architecture": {**sizes, "weights": "random"},
        "records": n,
        "tokens": sum(lengths),
        "median_tokens_per_record": statistics.median(lengths),
        "seconds": round(seconds, 2),
        "records_per_second": round(n / seconds, 1),
        "tokens_per_second": round(sum(lengths) / seconds),
        "tflops": round(tflops, 1),
    }
    if device == "cuda":
        product = matmul_tflops()
        result |= {
            "matmul_8192_tflops": round(product, 1),
            "share_of_data_sheet": round(tflops / SHEET_TFLOPS, 3),
            "share_of_matmul": round(tflops / product, 3),
        }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=8192)
    parser.add_argument("--small", action="store_true", help="a tiny model on the CPU, to test this program")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    if not arguments.small and not torch.cuda.is_available():
        sys.exit("this benchmark needs a CUDA GPU; --small tests the program without one")
    head = {"provenance": provenance("torch", "transformers", "sentence-transformers")}
    device, sizes = ("cpu", SMALL) if arguments.small else ("cuda", SIZES)
    text = json.dumps(head | measure(arguments.records, device=device, sizes=sizes), indent=1)
    print(text)
    if arguments.output:
        arguments.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
