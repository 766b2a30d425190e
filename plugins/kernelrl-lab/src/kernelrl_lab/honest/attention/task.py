import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, q, k, v):
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def get_inputs():
    return [torch.randn(2, 2, 64, 32), torch.randn(2, 2, 64, 32), torch.randn(2, 2, 64, 32)]


def get_init_inputs():
    return []
