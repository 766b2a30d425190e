"""`kernelrl tinker-server`."""

from __future__ import annotations

import os
from pathlib import Path

import click

__all__ = ["command"]


@click.command("tinker-server")
@click.option(
    "--model", default="tiny", show_default=True, help="tiny, smollm2-135m, a directory, or a Hugging Face hub id."
)
@click.option("--state", type=click.Path(path_type=Path), default=Path("tinker-server"), show_default=True,
              help="Directory of checkpoints and sessions; a restarted server continues from it.")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8124, show_default=True, help="Port; 0: any free port.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True,
              help="Device that holds and trains the model.")  # fmt: skip
@click.option("--dtype", type=click.Choice(["float32", "bfloat16"]), default="float32", show_default=True,
              help="Dtype of the weights of a Hugging Face model.")  # fmt: skip
@click.option("--lora-rank", type=click.IntRange(min=1),
              help="Train LoRA adapters on a Hugging Face model, of this rank unless a client names another. "
              "Default: train all weights.")  # fmt: skip
@click.option("--context-tokens", type=click.IntRange(min=1),
              help="Maximum tokens of prompt and reply together, for a Hugging Face model.")  # fmt: skip
@click.option("--sample-rows", type=click.IntRange(min=1), help="Batch size of sampling.")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="CPU threads of PyTorch.")
@click.option("--watch-stdin", is_flag=True, help="Exit when standard input is closed.")
def command(
    model: str,
    state: Path,
    host: str,
    port: int,
    device: str,
    dtype: str,
    lora_rank: int | None,
    context_tokens: int | None,
    sample_rows: int | None,
    threads: int,
    watch_stdin: bool,
) -> None:
    """Serve a model on this machine to Tinker's SDK.

    When the server is ready, it prints one line of JSON with base_url to stdout. Clients need an API key: any key that
    begins with tml-, or the value of KERNELRL_TINKER_SERVER_KEY if that is set.

    \b
    Examples:
      kernelrl tinker-server
      kernelrl tinker-server --model ./Qwen2.5-Coder-1.5B-Instruct --lora-rank 32 --device cuda --dtype bfloat16
    """
    from kernelrl_plugin_torch.config import TorchConfig
    from kernelrl_tinker_server.serve import ServeOptions, serve

    foreign = model != "tiny" and not (Path(model) / "kernelrl_model.json").is_file()
    torch = TorchConfig(
        model=model if foreign else None,
        warm_start=None,
        lora_rank=lora_rank,
        context_tokens=context_tokens,
        device="cuda" if device == "cuda" else "cpu",
        dtype="bfloat16" if dtype == "bfloat16" else "float32",
        sample_rows=sample_rows,
        threads=threads,
    )
    contradictions = list(torch.problems())
    if contradictions:
        raise click.UsageError("; ".join(contradictions))
    options = ServeOptions(
        model=model,
        state=state,
        host=host,
        port=port,
        torch=torch,
        api_key=os.environ.get("KERNELRL_TINKER_SERVER_KEY") or None,
        watch_stdin=watch_stdin,
    )
    serve(options, lambda line: click.echo(line, err=True))
