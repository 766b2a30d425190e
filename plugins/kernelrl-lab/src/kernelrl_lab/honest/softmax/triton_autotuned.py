"""Configurations from a generator, pruned by the width of the rows."""

import torch
import triton
import triton.language as tl


def configurations():
    for block in (256, 512, 1024):
        for warps in (2, 4):
            yield triton.Config({"BLOCK": block}, num_warps=warps)


def prune(configs, named, **options):
    fitting = [config for config in configs if config.kwargs["BLOCK"] >= named["n"]]
    return fitting[:2] or configs[-1:]


@triton.autotune(configs=list(configurations()), key=["n"], prune_configs_by={"early_config_prune": prune})
@triton.jit
def softmax(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + columns, mask=columns < n, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * n + columns, e / tl.sum(e, axis=0), mask=columns < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        softmax[(x.shape[0],)](x, y, x.shape[1])
        return y
