import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return nn.functional.cosine_similarity(a, b, dim=1)


def get_inputs():
    return [torch.randn(32, 100), torch.randn(32, 100)]


def get_init_inputs():
    return []
