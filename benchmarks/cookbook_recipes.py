"""Run the recipes of tinker-cookbook, unchanged and from their own command lines, against the local Tinker server.

    python benchmarks/cookbook_recipes.py --output benchmarks/results/cookbook_recipes.json
    python benchmarks/cookbook_recipes.py --only dpo sdft

The working directory of the recipes is temporary. It has a model of 30,000 parameters under the name of a model that
the cookbook knows, and data sets of a few rows under the names and with the columns of those that the recipes load. The
model is trained beforehand to write short boxed numbers, so that rewards differ. Each recipe makes its steps with
adapters of its own LoRA rank; afterwards the program compares the weights that the recipe saved with the initial ones.
Needs `tinker-cookbook` 0.6 or newer and `kernelrl-tinker-server`; no GPU, key or network.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import torch
from provenance import provenance

from kernelrl_tinker_server.local import LocalServer

MODEL = "Qwen/Qwen3-8B"
"""Name of the model, which determines the renderer of the recipes. The model itself is a tiny one."""
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")
CONTEXT_TOKENS = 4096
SERVER_RANK = 8
"""LoRA rank of the server; the recipes request others."""
WARM_STEPS = 120
NUMBERS = ("3", "7", "12")
"""The numbers that the warm-started model writes at random; 12 does not fit into the limit of some recipes."""
TIMEOUT_S = 1200.0


@attrs.frozen
class Recipe:
    """A recipe and its options."""

    name: str
    module: str
    """Module below `tinker_cookbook.recipes`."""
    options: str
    refused: bool = False
    """The server refuses the recipe's loss at the first request that could lead to it."""

    def command(self, log: str) -> list[str]:
        """The command after the interpreter."""
        return ["-m", f"tinker_cookbook.recipes.{self.module}", *self.options.split(), f"log_path={log}"]


_LOOP = f"model_name={MODEL} batch_size=4 max_steps=2"
_RL_LOOP = f"{_LOOP} group_size=8 max_tokens=9 lora_rank=16 learning_rate=1e-2"
_RL = f"model_name={MODEL} group_size=8 groups_per_batch=2 max_tokens=9 learning_rate=1e-2 max_steps=2"
_MATH = f"{_RL} env=gsm8k lora_rank=32 eval_every=2 save_every=1"
_DISTILL = f"model_name={MODEL} group_size=2 max_tokens=12 learning_rate=1e-2 max_steps=2 eval_every=0 save_every=0"
RECIPES = (
    Recipe("sl_loop", "sl_loop", f"{_LOOP} max_length=512 lora_rank=16 learning_rate=1e-2"),
    Recipe("sl_basic", "sl_basic", f"model_name={MODEL} max_steps=1"),
    Recipe("chat_sl", "chat_sl.train", f"{_LOOP} dataset=no_robots max_length=512 lora_rank=64 eval_every=2"),
    Recipe("rl_loop", "rl_loop", f"{_RL_LOOP} loss_fn=importance_sampling"),
    Recipe("rl_loop, gspo", "rl_loop", f"{_RL_LOOP} loss_fn=gspo"),
    Recipe("rl_loop, default loss", "rl_loop", _RL_LOOP, refused=True),
    Recipe("math_rl", "math_rl.train", f"{_MATH} loss_fn=importance_sampling"),
    Recipe("math_rl, ppo, 2 substeps", "math_rl.train", f"{_MATH} loss_fn=ppo num_substeps=2"),
    Recipe("math_rl, asynchronous", "math_rl.train", f"{_MATH} loss_fn=ppo max_steps_off_policy=1"),
    Recipe(
        "math_rl, dro",
        "math_rl.train",
        f'{_MATH} loss_fn=dro loss_fn_config={{"beta":0.05}}',
    ),
    Recipe("dpo", "preference.dpo.train", f"{_LOOP} dataset=hhh max_length=512 learning_rate=1e-2"),
    Recipe("shorter", "preference.shorter.train", f"{_LOOP} group_size=4 max_tokens=12 renderer_name=qwen3"),
    Recipe(
        "on_policy_distillation",
        "distillation.on_policy_distillation",
        f"{_DISTILL} teacher_model={MODEL} groups_per_batch=2 lora_rank=128",
    ),
    Recipe(
        "off_policy_reasoning",
        "distillation.off_policy_reasoning",
        f"model_name={MODEL} renderer_name=qwen3 batch_size=4 max_length=512 buffer_size=16 max_prompts=8 max_steps=2",
    ),
    Recipe("sdft", "sdft.train", f"{_DISTILL} groups_per_batch=2 topk=5 dataset=toolalpaca"),
    Recipe("prompt_distillation", "prompt_distillation.train", f"{_LOOP} file_path=conversations.jsonl max_length=512"),
)


def write_data(directory: Path) -> list[str]:
    """Write the data sets; returns the questions of the mathematical ones."""
    sums = [
        f"A box has {a} red and {b} blue balls. How many balls are in it?" for a, b in ((1, 2), (3, 4), (2, 1), (5, 2))
    ]
    questions = sums * 34  # more than a batch of sl_basic
    chats = [
        {"messages": [{"role": "user", "content": one}, {"role": "assistant", "content": "There are 3 balls."}]}
        for one in questions
    ]
    tables: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for split in ("train", "test"):
        rows = [
            {"question": one, "answer": f"Add the two numbers. #### {3 + 4 * (i % 2)}"}
            for i, one in enumerate(questions)
        ]
        tables["openai/gsm8k", "main", split] = rows
        tables["HuggingFaceH4/no_robots", "default", split] = chats
        pair = {
            "chosen": "\n\nHuman: How many?\n\nAssistant: 3",
            "rejected": "\n\nHuman: How many?\n\nAssistant: Not now",
        }
        tables["Anthropic/hh-rlhf", "default", split] = [pair] * 32
    tables["zwhe99/DeepMath-103K", "default", "train"] = [{"question": one, "final_answer": "3"} for one in questions]
    tables["allenai/tulu-3-sft-mixture", "default", "train"] = chats
    tables["open-thoughts/OpenThoughts3-1.2M", "default", "train"] = [
        {"conversations": [{"from": "human", "value": one}, {"from": "gpt", "value": "3"}]} for one in questions
    ]
    tables["tangqiaoyu/ToolAlpaca", "default", "train"] = [{"instruction": one, "output": "3"} for one in questions]
    configurations: dict[str, dict[str, list[tuple[str, str]]]] = {}
    for (name, configuration, split), rows in tables.items():
        file = directory / name / f"{configuration}-{split}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        kept = rows if split == "train" else rows[:4]  # the recipes evaluate all rows
        file.write_text("".join(json.dumps(row) + "\n" for row in kept))
        configurations.setdefault(name, {}).setdefault(configuration, []).append((split, file.name))
    for name, of_name in configurations.items():
        listed = [
            {"config_name": key, "data_files": [{"split": split, "path": path} for split, path in files]}
            for key, files in of_name.items()
        ]
        (directory / name / "README.md").write_text(f"---\nconfigs: {json.dumps(listed)}\n---\n")
    (directory / "conversations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chats))
    return sums


def write_model(directory: Path, questions: Sequence[str]) -> None:
    """Write a tiny Qwen3 whose replies are short boxed numbers."""
    import transformers
    from tinker_cookbook import renderers
    from tinker_cookbook.recipes.math_rl.math_env import Gsm8kDataset, MathEnv
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = {byte: index for index, byte in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    made = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.add_special_tokens({"additional_special_tokens": list(SPECIAL)})
    turn = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
    tokenizer.chat_template = f"{{% for m in messages %}}{turn}{{% endfor %}}<|im_start|>assistant\n"
    tokenizer.save_pretrained(directory)
    torch.manual_seed(0)
    torch.set_num_threads(1)  # several threads are far slower on a busy machine
    config = transformers.Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=CONTEXT_TOKENS, tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    net = transformers.Qwen3ForCausalLM(config)
    renderer = renderers.get_renderer("qwen3", tokenizer)
    prompts = [
        renderer.build_generation_prompt(
            [*prefix, {"role": "user", "content": one + Gsm8kDataset.question_suffix()}]
        ).to_ints()
        for one in questions
        for prefix in ([], MathEnv.standard_fewshot_prefix())
    ]
    draw = random.Random(0)
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    for _ in range(WARM_STEPS):
        replies = [tokenizer.encode(f"\\boxed{{{draw.choice(NUMBERS)}}}<|im_end|>") for _ in range(4)]
        rows = [draw.choice(prompts) + reply for reply in replies]
        longest = max(map(len, rows))
        tokens = torch.tensor([[0] * (longest - len(row)) + row for row in rows])
        labels = torch.full_like(tokens, -100)
        for index, reply in enumerate(replies):
            labels[index, -len(reply) :] = tokens[index, -len(reply) :]
        net(input_ids=tokens, attention_mask=(tokens != 0).long(), labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    net.save_pretrained(directory)


def outcomes(directory: Path, recipes: Sequence[Recipe], jobs: int) -> Iterator[dict[str, Any]]:
    """Run the recipes in `directory`, which has the model and the data sets; `jobs` at a time."""
    with (
        LocalServer(
            state=directory / "server",
            model=MODEL,
            arguments=("--lora-rank", str(SERVER_RANK), "--context-tokens", str(CONTEXT_TOKENS)),
        ) as server,
        ThreadPoolExecutor(jobs) as threads,
    ):
        environment = {
            **os.environ,
            "TINKER_BASE_URL": server.base_url,
            "TINKER_API_KEY": server.api_key,
            "TINKER_TELEMETRY": "0",
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": str(directory / "huggingface"),
            "OMP_NUM_THREADS": "1",
        }
        yield from threads.map(lambda job: outcome(directory, *job, environment), enumerate(recipes))


def outcome(directory: Path, number: int, recipe: Recipe, environment: Mapping[str, str]) -> dict[str, Any]:
    """Run a recipe and describe its result."""
    log = f"log-{number}"
    command = recipe.command(log)
    begin = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, *command],
            env=dict(environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        said, status = done.stdout.strip(), done.returncode
    except subprocess.TimeoutExpired:
        said, status = f"no end after {TIMEOUT_S:.0f} s", -1
    seconds = round(time.monotonic() - begin, 1)
    refused = status != 0 and "fix: train with loss_fn" in said
    saved = [row["state_path"] for row in _rows(directory / log / "checkpoints.jsonl") if row.get("state_path")]
    change, rank = _change(directory, saved[-1]) if saved else (0.0, None)
    runs = status == 0 and change > 0
    expected = refused if recipe.refused else runs
    result = "runs" if runs else "fails"
    return {
        "recipe": recipe.name,
        "command": shlex.join(["python", *command]),
        "result": "refused" if refused else result,
        "as_expected": expected,
        "lora_rank": rank,
        "largest_change_of_a_weight": change,
        "seconds": seconds,
        **({} if expected else {"said": said[-2000:]}),
    }


def _change(directory: Path, path: str) -> tuple[float, int]:
    """Largest absolute value of the second factor of the adapters, which is 0 at the start, and their rank."""
    weights = torch.load(
        directory / "server/checkpoints" / path.removeprefix("tinker://") / "weights.pt", weights_only=True
    )
    factors = [tensor for name, tensor in weights.items() if ".lora_B." in name]
    return max(float(tensor.abs().max()) for tensor in factors), int(factors[0].shape[1])


def _rows(path: Path) -> list[Mapping[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="RECIPE", help="names of recipes, or their beginnings")
    parser.add_argument("--jobs", type=int, default=2, help="recipes that run at the same time")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    output = arguments.output.absolute() if arguments.output else None
    chosen = [one for one in RECIPES if not arguments.only or one.name.startswith(tuple(arguments.only))]
    head = provenance("tinker", "tinker-cookbook", "tml-renderers", "torch", "transformers", "peft", "datasets")
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        os.chdir(directory)  # the names of models and data sets are paths from here
        write_model(directory / MODEL, write_data(directory))
        for row in outcomes(directory, chosen, arguments.jobs):
            rows.append(row)
            shown = f"{row['recipe']:26} {row['result']:8} rank {row['lora_rank']} {row['seconds']:6.1f} s"
            print(f"{shown}  {row['command']}", flush=True)
            if "said" in row:
                print(row["said"], flush=True)
        os.chdir("/")
    running = sum(row["result"] == "runs" for row in rows)
    print(f"{running} of {len(rows)} run; {sum(not row['as_expected'] for row in rows)} unexpected")
    if output is not None:
        output.write_text(
            json.dumps({"provenance": head, "jobs": arguments.jobs, "running": running, "recipes": rows}, indent=1)
            + "\n"
        )


if __name__ == "__main__":
    main()
