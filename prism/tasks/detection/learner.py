"""The loss of detection."""

import torch
from torch import Tensor

from prism.tasks.detection.network import DetectionNetwork
from prism.tasks.learner import PAPER_WEIGHTS, Learner, Outcome, Weights, mean_over_ranks


class Detector(Learner):
    """torchvision's losses, and PRISM's own where the backbone is one, unless they are switched off."""

    def __init__(self, network: DetectionNetwork, weights: Weights = PAPER_WEIGHTS, own_losses: bool = True):
        super().__init__()
        self.network, self.weights = network, weights if own_losses else None

    def forward(self, images: list[Tensor], targets: list[dict[str, Tensor]]) -> Outcome:
        network = self.network
        assert isinstance(network, DetectionNetwork)
        losses = network(images, targets)
        if counted := network.counted():  # of all processes, so that an object counts alike in each of them
            counts = torch.stack([*counted.values()]).to(losses["loss_mask"].dtype)
            shares = counts / mean_over_ranks(counts).clamp(min=1)
            losses |= {name: losses[name] * share for name, share in zip(counted, shares, strict=True)}
        return self.outcome(losses, network.maps.take_trace())
