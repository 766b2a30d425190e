import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, p, gradient, m, v):
        m = 0.9 * m + 0.1 * gradient
        v = 0.999 * v + 0.001 * gradient * gradient
        p = p * (1 - 1e-3 * 0.01) - 1e-3 * (m / 0.1) / (torch.sqrt(v / 0.001) + 1e-8)
        return p, m, v


def get_inputs():
    return [torch.randn(3000), torch.randn(3000), torch.randn(3000), torch.rand(3000)]


def get_init_inputs():
    return []
