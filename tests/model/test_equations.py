"""The whole network against the paper written out (direct.py): forward, losses and gradients."""

import pytest
import torch

from tests.model import direct
from tests.model.small import pictures, small_prism


@pytest.mark.parametrize("memory", ["vq", "continuous", "off"])
@pytest.mark.parametrize("preset", ["default", "paper"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])
def test_fast_form_equals_direct_form(preset: str, memory: str, dtype: torch.dtype, tolerance: float):
    model = small_prism(dtype, preset=preset, memory=memory).train()
    images = pictures(5, 64, 48, dtype)
    labels = torch.arange(5)

    def loss_of(logits, ponder, vq):
        return torch.nn.functional.cross_entropy(logits, labels) + 0.005 * ponder + 0.01 * vq

    logits, ponder, vq, steps = direct.prism(model, images)
    expected = torch.autograd.grad(loss_of(logits, ponder, vq), list(model.parameters()), materialize_grads=True)
    fast = model.forward_traced(images)
    found = torch.autograd.grad(
        loss_of(fast.logits, fast.trace.ponder_loss, fast.trace.vq_loss),
        list(model.parameters()),
        materialize_grads=True,
    )
    assert [stage.steps.tolist() for stage in fast.trace.stages] == [s.tolist() for s in steps]
    assert sum(len(set(s.tolist())) > 1 for s in steps) >= 2  # images halt at different steps, else little is tested
    torch.testing.assert_close(fast.logits, logits, rtol=0, atol=tolerance)
    torch.testing.assert_close(fast.trace.ponder_loss, ponder, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(fast.trace.vq_loss, vq, rtol=tolerance, atol=tolerance)
    scale = max(gradient.abs().max().item() for gradient in expected)
    for (name, _), a, b in zip(model.named_parameters(), found, expected, strict=True):
        assert (a - b).abs().max() <= tolerance * scale, name
    model.eval()
    with torch.inference_mode():
        torch.testing.assert_close(model(images), logits.detach(), rtol=0, atol=tolerance)


def test_total_loss_weighs_ponder_and_vq_as_the_paper_does():
    trace = small_prism().forward_traced(pictures(3)).trace
    torch.testing.assert_close(trace.loss(), 0.005 * trace.ponder_loss + 0.01 * trace.vq_loss)
    by_hand = sum((stage.weights * torch.arange(1, stage.weights.shape[1] + 1)).sum(1).mean() for stage in trace.stages)
    torch.testing.assert_close(trace.ponder_loss, torch.as_tensor(by_hand))
