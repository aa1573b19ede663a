"""The loss of semantic segmentation."""

import torch.nn.functional as F
from torch import Tensor

from prism.data.label_maps import VOID
from prism.tasks.learner import PAPER_WEIGHTS, Learner, Outcome, Weights, mean_over_ranks
from prism.tasks.segmentation.network import SemanticFPN


class Segmenter(Learner):
    """Cross-entropy over the pixels that are labelled, and PRISM's own losses unless `weights` is None."""

    network: SemanticFPN

    def __init__(self, network: SemanticFPN, weights: Weights | None = PAPER_WEIGHTS):
        super().__init__()
        self.network = network  # pyright: ignore[reportIncompatibleVariableOverride]
        self.weights = weights

    def forward(self, images: Tensor, targets: Tensor) -> Outcome:
        logits, trace = self.network.forward_traced(images)
        # of all processes, so that a pixel counts alike in each of them; a crop may be void altogether
        labelled = mean_over_ranks((targets != VOID).sum()).clamp(min=1)
        total = F.cross_entropy(logits, targets.long(), ignore_index=VOID, reduction="sum")
        return self.outcome({"segmentation": total / labelled}, trace)
