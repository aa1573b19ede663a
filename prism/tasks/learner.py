"""What the training loop knows of a task: batches go in, named losses come out."""

from typing import Any, NamedTuple

import torch.distributed as dist
from torch import Tensor, nn

from prism.model.backbone import LAMBDA_PONDER, LAMBDA_VQ, Prism, Trace
from prism.model.memory import Codebook


class Outcome(NamedTuple):
    """What a learner, `learner(images, targets)`, makes of a batch."""

    losses: dict[str, Tensor]  # weighted already: training minimises their sum
    figures: dict[str, Tensor]  # what else is worth a line in the log, detached


class Weights(NamedTuple):
    """lambda_ponder and lambda_vq in the paper."""

    ponder: float = LAMBDA_PONDER
    vq: float = LAMBDA_VQ


PAPER_WEIGHTS = Weights()


class Learner(nn.Module):
    """A network and its loss. Only `network` is kept when training is over."""

    network: nn.Module
    weights: Weights | None = PAPER_WEIGHTS  # of PRISM's own losses, which None leaves out

    def forward(self, images: Any, targets: Any) -> Outcome:
        raise NotImplementedError

    def outcome(self, losses: dict[str, Tensor], trace: Trace | None) -> Outcome:
        """With what a PRISM, which leaves a trace, adds: its own losses, and the mean steps of each stage.

        The paper's appendix draws these steps over training.
        """
        if trace is None:
            return Outcome(losses, {})
        steps = {f"steps {index}": stage.steps.float().mean() for index, stage in enumerate(trace.stages, start=1)}
        if self.weights is None:
            return Outcome(losses, steps)
        own = {"ponder": self.weights.ponder * trace.ponder_loss, "vq": self.weights.vq * trace.vq_loss}
        return Outcome(losses | own, steps)


def mean_over_ranks(count: Tensor) -> Tensor:
    """Of a whole number in each process; every process must ask."""
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return count
    total = count.clone()
    dist.all_reduce(total)
    return total / dist.get_world_size()


def memory_figures(network: nn.Module) -> dict[str, float]:
    """How much of each stage's codebook is alive, and how evenly it is used; nothing for another network."""
    books = [module for module in network.modules() if isinstance(module, Codebook)]
    usage = {f"code usage {index}": float(book.usage()) for index, book in enumerate(books, start=1)}
    return usage | {f"perplexity {index}": float(book.perplexity()) for index, book in enumerate(books, start=1)}


def find_prism(network: nn.Module) -> Prism | None:
    """The PRISM inside a network, if there is one."""
    return next((module for module in network.modules() if isinstance(module, Prism)), None)
