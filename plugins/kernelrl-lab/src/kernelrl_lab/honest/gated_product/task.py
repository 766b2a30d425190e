import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, gate, x, up):
        product = gate.float() * nn.functional.silu(x.float()) * up.float()
        return product.to(up.dtype)


def get_inputs():
    return [torch.randn(192, 1024, dtype=torch.bfloat16) for _ in range(3)]


def get_init_inputs():
    return []
