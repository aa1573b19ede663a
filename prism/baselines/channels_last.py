"""Pieces that work on channels-last maps (B, H, W, C).

Norms and linear layers want the channels last, and so do depthwise convolutions on a CPU: they are several times faster
there than on (B, C, H, W). The baselines therefore keep their maps like this throughout, and a 1 x 1 convolution of a
published model is a linear layer here.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from prism.model.compilation import exporting


class DepthwiseConv(nn.Conv2d):
    """One filter per channel, on a channels-last map; 'same' padding."""

    def __init__(self, dim: int, kernel: int, stride: int = 1, bias: bool = True):
        super().__init__(dim, dim, kernel, stride, kernel // 2, groups=dim, bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


class ConvMlp(nn.Module):
    """An MLP whose hidden units also see their 3 x 3 neighbourhood, before the activation."""

    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.dwconv = DepthwiseConv(hidden, 3)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        x = self.fc1(x)
        return self.fc2(self.act(x + self.dwconv(x)))


def pad_to_multiple(x: Tensor, multiple: int) -> Tensor:
    """Zeros at the bottom and on the right, so that both sides of the map are multiples."""
    # so written, and always padded, an exported graph for every size sees the padded sides to be multiples
    bottom, right = ((side - 1) // multiple * multiple + multiple - side for side in x.shape[1:3])
    return F.pad(x, (0, 0, 0, right, 0, bottom)) if exporting() or bottom or right else x


def crop(x: Tensor, height: int, width: int) -> Tensor:
    """The map without what was padded."""
    if exporting():  # the strides of a slice would tell maps that were padded from those that were not
        return F.pad(x, (0, 0, 0, width - x.shape[2], 0, height - x.shape[1]))
    return x[:, :height, :width]
