"""torch.compile: one graph with fixed steps; in dynamic mode a bounded number of graphs, whatever the batches."""

import pytest
import torch
from torch import fx

from tests.model.small import random_images, small_prism


class Counting:
    """A backend that runs graphs as they are and counts them."""

    def __init__(self):
        self.graphs = 0

    def __call__(self, graph: fx.GraphModule, _):
        self.graphs += 1
        return graph.forward


@torch.inference_mode()
def test_fixed_steps_are_one_graph():
    torch._dynamo.reset()
    model, images = small_prism(fixed_steps=(1, 2, 3, 2)).eval(), random_images(4)
    backend = Counting()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    torch.testing.assert_close(compiled(images), model(images), rtol=0, atol=1e-5)
    assert backend.graphs == 1


@torch.inference_mode()
def test_dynamic_halting_does_not_recompile_for_every_batch():
    torch._dynamo.reset()
    model = small_prism().eval()
    backend = Counting()
    compiled = torch.compile(model, backend=backend)
    for batch in (20, 9, 1, 17, 2, 3, 5):
        images = random_images(batch)
        torch.testing.assert_close(compiled(images), model(images), rtol=0, atol=1e-5)
    warm = backend.graphs
    for batch in (8, 6, 7, 1, 11, 13, 22, 4, 18):
        images = random_images(batch)
        torch.testing.assert_close(compiled(images), model(images), rtol=0, atol=1e-5)
    # three kinds of batch (one image, few, many) in each of four stages; one recompiled for every size
    # would add at least a graph for each stage of each of the new batches
    assert backend.graphs - warm <= 4


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # dynamo looks at it itself
def test_training_compiles():
    torch._dynamo.reset()
    model = small_prism(fixed_steps=(1, 2, 1, 1)).train()
    compiled = torch.compile(model, backend="aot_eager")
    images = random_images(4)
    compiled(images).square().sum().backward()
    found = [0 if p.grad is None else p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(images).square().sum().backward()
    for (name, p), gradient in zip(model.named_parameters(), found, strict=True):
        expected = torch.zeros_like(p) if p.grad is None else p.grad
        torch.testing.assert_close(expected, gradient + torch.zeros_like(p), rtol=1e-3, atol=1e-5, msg=name)


@torch.inference_mode()
def test_the_sliced_ffn_is_a_well_formed_operator(monkeypatch):
    """The CPU's slices survive compilation as one opaque operator."""
    from prism.model import refinement

    torch._dynamo.reset()
    model, images = small_prism(fixed_steps=2).eval(), random_images(5)
    expected = model(images)
    monkeypatch.setattr(refinement, "HIDDEN_BYTES", 1)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(images), expected, rtol=0, atol=1e-5)
    ffn = model.stages[0].step.token_ffn
    weights = [ffn.expand.weight, ffn.mix.weight, ffn.mix.bias, ffn.contract.weight, ffn.contract.bias]
    arguments = (torch.randn(3, 80, 8), 20, 4, [w.detach().clone() for w in weights])
    torch.library.opcheck(refinement.hidden_mixing_in_slices, arguments)
