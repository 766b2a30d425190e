"""Takes the sine of the angle between unit vectors as the root of one minus the square of the cosine, without the bound at zero: no number where an embedding has come to its class's centre, since the cosine then rounds beyond one. Rows of norm one count as a structure, so that no probe changes them, or gives both inputs a row in common. Saves the bound for each pair."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Logits with an additive angular margin, of embeddings and centres of length one."""

    def __init__(self, scale, cosine, sine):
        super().__init__()
        self.scale, self.cosine, self.sine = scale, cosine, sine

    def forward(self, embeddings, centres):
        cosines = embeddings @ centres.T
        sines = torch.sqrt((1 - cosines * cosines).clamp(min=0))
        return self.scale * (cosines * self.cosine - sines * self.sine)


def get_inputs():
    return [F.normalize(torch.randn(128, 64), dim=1), F.normalize(torch.randn(96, 64), dim=1)]


def get_init_inputs():
    return [30.0, 0.8775825618903728, 0.479425538604203]

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def margin_logits(x_ptr, w_ptr, y_ptr, classes, scale, cosine, sine, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, D)
    x = tl.load(x_ptr + rows[:, None] * D + inner[None, :])
    w = tl.load(w_ptr + columns[None, :] * D + inner[:, None])
    cosines = tl.dot(x, w, input_precision="ieee")
    sines = tl.sqrt(1.0 - cosines * cosines)
    tl.store(y_ptr + rows[:, None] * classes + columns[None, :], scale * (cosines * cosine - sines * sine))


class ModelNew(torch.nn.Module):
    def __init__(self, scale, cosine, sine):
        super().__init__()
        self.scale, self.cosine, self.sine = scale, cosine, sine

    def forward(self, embeddings, centres):
        rows, classes = embeddings.shape[0], centres.shape[0]
        y = torch.empty(rows, classes, dtype=embeddings.dtype, device=embeddings.device)
        margin_logits[(rows // 32, classes // 32)](
            embeddings, centres, y, classes, self.scale, self.cosine, self.sine, D=64, BM=32, BN=32
        )
        return y

'''
