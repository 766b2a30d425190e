# Commands under the names of kernel-rl. Values are given as `NAME` or as `run=NAME`: just train-kevin demo
# Install just with: pip install rust-just. Everything here is a command of kernelrl: kernelrl --help

kernelrl := if path_exists(justfile_directory() / ".venv/bin/kernelrl") == "true" { justfile_directory() / ".venv/bin/kernelrl" } else { "kernelrl" }
name := "train-" + datetime("%Y%m%d-%H%M%S")

# list the commands
default:
    @just --justfile {{ quote(justfile()) }} --list --unsorted

# multi-turn training with retrieved examples (recipe kevin_triton_raicl)
train run=name: (_run "kevin_triton_raicl" run)

# multi-turn training (recipe kevin)
train-kevin run=name: (_run "kevin" run)

# single-turn training with retrieved examples (recipe raicl)
train-raicl run=name: (_run "raicl" run)

# training with a recipe of your own: just train-config mine.yaml NAME
train-config config run=name: (_run trim_start_match(config, "config=") run)

_run recipe run:
    {{ kernelrl }} run {{ quote(recipe) }} --name {{ quote(trim_start_match(run, "run=")) }}

# continue an interrupted run
resume run:
    {{ kernelrl }} resume {{ quote(trim_start_match(run, "run=")) }}

# stop a run after its current step
stop run:
    {{ kernelrl }} stop {{ quote(trim_start_match(run, "run=")) }}

# list all runs
list:
    {{ kernelrl }} runs list

# state of a run, or of all that are running
status run="":
    {{ kernelrl }} status {{ if trim_start_match(run, "run=") == "" { "" } else { quote(trim_start_match(run, "run=")) } }}

# follow the log of a run
logs run:
    {{ kernelrl }} logs {{ quote(trim_start_match(run, "run=")) }} --follow

# live view of a run
watch-metrics run:
    {{ kernelrl }} watch {{ quote(trim_start_match(run, "run=")) }}

# TensorBoard on a run, or on all runs
tensorboard run="":
    {{ kernelrl }} tensorboard {{ if trim_start_match(run, "run=") == "" { "--all" } else { quote(trim_start_match(run, "run=")) } }}

# index of worked kernels for retrieval, from both published corpora
build-rag-index output="kernel_rag_index": (_index "kernelbook,ai_cuda_engineer" output "")

# the same, with Triton kernels only
build-rag-index-triton output="kernel_rag_index": (_index "kernelbook" output "--backend triton")

# the same, with CUDA kernels only
build-rag-index-cuda output="kernel_rag_index": (_index "ai_cuda_engineer" output "--backend cuda")

_index corpora output options:
    {{ kernelrl }} index build --corpora {{ corpora }} --embedder BAAI/bge-code-v1 {{ options }} --output {{ quote(trim_start_match(output, "output=")) }}
