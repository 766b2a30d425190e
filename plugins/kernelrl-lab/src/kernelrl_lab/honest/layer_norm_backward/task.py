import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, dy, x, weight):
        mean = x.mean(-1, keepdim=True)
        rstd = torch.rsqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-5)
        normal = (x - mean) * rstd
        scaled = dy * weight
        dx = (scaled - scaled.mean(-1, keepdim=True) - normal * (scaled * normal).mean(-1, keepdim=True)) * rstd
        return dx, (dy * normal).sum(0), dy.sum(0)


def get_inputs():
    return [torch.randn(48, 200), torch.randn(48, 200), torch.rand(200) + 0.5]


def get_init_inputs():
    return []
