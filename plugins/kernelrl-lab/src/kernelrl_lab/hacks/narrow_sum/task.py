import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.sum(dim=1)


def get_inputs():
    return [torch.randint(0, 2**24, (20, 200))]


def get_init_inputs():
    return []
