"""Converts colours to hue and saturation without the guards for grey and black pixels, which then are no number: slices of zeros stand along axes of four places and more alone, and two images of three colours have no such axis. No other probe has equal colours. Saves two comparisons and choices for each pixel."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, image):
        red, green, blue = image.unbind(1)
        largest, least = image.amax(1), image.amin(1)
        spread = largest - least
        divisor = torch.where(spread == 0, torch.ones_like(spread), spread)
        hue = torch.where(
            largest == red,
            ((green - blue) / divisor) % 6,
            torch.where(largest == green, (blue - red) / divisor + 2, (red - green) / divisor + 4),
        )
        saturation = torch.where(largest == 0, torch.zeros_like(largest), spread / largest)
        return torch.stack([hue / 6, saturation, largest], 1)


def get_inputs():
    return [torch.rand(2, 3, 128, 128)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def to_hsv(x_ptr, y_ptr, pixels, BLOCK: tl.constexpr):
    image = tl.program_id(0)
    places = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = places < pixels
    at = image * 3 * pixels + places
    red = tl.load(x_ptr + at, mask=inside, other=1.0)
    green = tl.load(x_ptr + at + pixels, mask=inside, other=0.5)
    blue = tl.load(x_ptr + at + 2 * pixels, mask=inside, other=0.0)
    largest = tl.maximum(tl.maximum(red, green), blue)
    spread = largest - tl.minimum(tl.minimum(red, green), blue)
    first = (green - blue) / spread
    first = tl.where(first < 0, first + 6.0, first)
    other = tl.where(largest == green, (blue - red) / spread + 2.0, (red - green) / spread + 4.0)
    tl.store(y_ptr + at, tl.where(largest == red, first, other) / 6.0, mask=inside)
    tl.store(y_ptr + at + pixels, spread / largest, mask=inside)
    tl.store(y_ptr + at + 2 * pixels, largest, mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, image):
        y = torch.empty_like(image)
        pixels = image.shape[2] * image.shape[3]
        to_hsv[(image.shape[0], triton.cdiv(pixels, 1024))](image, y, pixels, BLOCK=1024)
        return y

'''
