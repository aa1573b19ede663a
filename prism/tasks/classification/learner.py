"""The loss of classification."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from prism.model.backbone import logits_and_trace
from prism.tasks.learner import PAPER_WEIGHTS, Learner, Outcome, Weights

Mixing = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class Classifier(Learner):
    """Cross-entropy, and PRISM's own losses where the network is one.

    `mixing` blends images and labels of a batch (mixup, cutmix); targets are then shares of classes.
    """

    def __init__(
        self, network: nn.Module, smoothing: float = 0.0, mixing: Mixing | None = None, weights: Weights = PAPER_WEIGHTS
    ):
        super().__init__()
        self.network, self.smoothing, self.mixing, self.weights = network, smoothing, mixing, weights

    def forward(self, images: Tensor, targets: Tensor) -> Outcome:
        if self.mixing is not None:  # it smooths labels itself
            images, targets = self.mixing(images, targets)
        logits, trace = logits_and_trace(self.network, images)
        loss = F.cross_entropy(logits, targets, label_smoothing=0.0 if self.mixing else self.smoothing)
        return self.outcome({"classification": loss}, trace)
