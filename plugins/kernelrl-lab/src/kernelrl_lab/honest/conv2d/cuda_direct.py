"""Nine taps per channel and output."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void conv(const float* x, const float* w, const float* b, float* y, int in, int out, int height,
    int width) {
    const int pixel = blockIdx.x * blockDim.x + threadIdx.x, output = blockIdx.y, image = blockIdx.z;
    if (pixel >= height * width) return;
    const int row = pixel / width, column = pixel % width;
    float sum = b[output];
    for (int c = 0; c < in; ++c)
        for (int i = -1; i <= 1; ++i)
            for (int j = -1; j <= 1; ++j) {
                const int h = row + i, v = column + j;
                if (h < 0 || h >= height || v < 0 || v >= width) continue;
                sum = fmaf(x[((image * in + c) * height + h) * width + v],
                    w[(output * in + c) * 9 + (i + 1) * 3 + j + 1], sum);
            }
    y[(image * out + output) * height * width + pixel] = sum;
}

torch::Tensor run(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
    auto stream = c10::cuda::getCurrentCUDAStream();
    const int images = x.size(0), in = x.size(1), out = weight.size(0), height = x.size(2), width = x.size(3);
    auto y = torch::empty({images, out, height, width}, x.options());
    conv<<<dim3((height * width + 127) / 128, out, images), 128, 0, stream>>>(
        x.data_ptr<float>(), weight.data_ptr<float>(),
        bias.data_ptr<float>(), y.data_ptr<float>(), in, out, height, width);
    return y;
}
"""
extension = load_inline(
    name="lab_extension",
    cpp_sources="torch::Tensor run(torch::Tensor x, torch::Tensor weight, torch::Tensor bias);",
    cuda_sources=source,
    functions=["run"],
)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(8, 16, 3, padding=1)

    def forward(self, x):
        return extension.run(x, self.conv.weight, self.conv.bias)
