"""The whole network against the paper written out (direct.py): forward, losses and gradients."""

import pytest
import torch

from prism.model.position import sincos_positions
from prism.model.refinement import State, Watch
from tests.model import direct
from tests.model.small import random_images, small_prism


@pytest.mark.parametrize("memory", ["vq", "continuous", "off"])
@pytest.mark.parametrize("form", [{}, {"evidence": False}, {"preset": "paper"}, {"ffn_kernel": 1}], ids=str)
@pytest.mark.parametrize(
    ("dtype", "tolerance", "of_gradient"), [(torch.float64, 1e-9, 1e-9), (torch.float32, 1e-5, 1e-4)]
)
def test_network(form: dict, memory: str, dtype: torch.dtype, tolerance: float, of_gradient: float):
    """Rounding grows over up to 20 steps: the gradient in float32 is held to 1e-4 here, that of one step to 1e-5."""
    model = small_prism(dtype, memory=memory, **form).train()
    images = random_images(5, 64, 50, dtype)
    images[1, :, 10:40, 8:33] = 0.3  # holes that are no whole number of patches, and one image with hardly anything
    images[2, :, :, :44] = 0
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
    assert any(len(set(s.tolist())) > 1 for s in steps)  # images halt at different steps, else little is tested
    torch.testing.assert_close(fast.logits, logits, rtol=0, atol=tolerance)
    torch.testing.assert_close(fast.trace.ponder_loss, ponder, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(fast.trace.vq_loss, vq, rtol=tolerance, atol=tolerance)
    scale = max(gradient.abs().max().item() for gradient in expected)
    for (name, _), a, b in zip(model.named_parameters(), found, expected, strict=True):
        assert (a - b).abs().max() <= of_gradient * scale, name
    model.eval()
    with torch.inference_mode():
        torch.testing.assert_close(model(images), logits.detach(), rtol=0, atol=tolerance)


@pytest.mark.parametrize("with_evidence", [False, True])
@pytest.mark.parametrize("preset", ["default", "paper"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_one_step(preset: str, with_evidence: bool, dtype: torch.dtype, tolerance: float):
    """Phi alone, forward and gradients with respect to its inputs and parameters."""
    phi = small_prism(dtype, preset=preset).stages[0].step
    tokens = torch.randn(3, 35, 8, dtype=dtype, requires_grad=True)
    slots = torch.randn(3, 5, 8, dtype=dtype, requires_grad=True)
    goal_tokens, goal_slots = torch.randn(3, 35, 8, dtype=dtype), torch.randn(3, 5, 8, dtype=dtype)
    inputs = [tokens, slots, *phi.parameters()]

    def gradients(x, new_slots, loss):
        total = (x * goal_tokens).mean() + (new_slots * goal_slots).mean() + 0.01 * loss.mean()
        return torch.autograd.grad(total, inputs)

    evidence = torch.rand(3, 35, dtype=dtype).round(decimals=1) if with_evidence else None
    expected = direct.step(phi, tokens, slots, direct.positions(5, 7, 8, dtype), (5, 7), evidence)
    hoisted = phi.hoisted(sincos_positions(5, 7, 8, like=tokens))
    state = State(tokens, slots, evidence if evidence is None else evidence[..., None])
    refined = phi(state, hoisted, Watch(losses=True))
    found = refined.tokens, phi.next_slots(slots, refined.where), refined.recall.loss
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
    for a, b in zip(gradients(*found), gradients(*expected), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=tolerance)


def test_total_loss_weighs_ponder_and_vq_as_the_paper_does():
    trace = small_prism().forward_traced(random_images(3)).trace
    torch.testing.assert_close(trace.loss(), 0.005 * trace.ponder_loss + 0.01 * trace.vq_loss)
    by_hand = sum((stage.weights * torch.arange(1, stage.weights.shape[1] + 1)).sum(1).mean() for stage in trace.stages)
    torch.testing.assert_close(trace.ponder_loss, torch.as_tensor(by_hand))


def test_without_a_convolution_tokens_mix_through_slots_alone():
    """Where slots return nothing, a pixel then changes the last map at its own place and at no other."""
    model, images = small_prism(ffn_kernel=1, memory="off").eval(), random_images(1)
    for stage in model.stages:
        torch.nn.init.zeros_(stage.step.token_scale.gain)  # pyright: ignore
    model.fixed_steps = 2
    changed = images.clone()
    changed[..., 4:28, 4:28] += torch.randn(1, 3, 24, 24)
    with torch.inference_mode():
        apart = (model.pyramid(changed).features[-1] - model.pyramid(images).features[-1]).abs().amax((0, 1))
    assert apart[0, 0] > 1e-3
    assert apart.flatten()[1:].max() <= 1e-6


@pytest.mark.parametrize("kernel", [0, 2, -1])
def test_a_kernel_has_a_middle(kernel: int):
    with pytest.raises(ValueError, match=f"ffn_kernel must be odd, got {kernel}"):
        small_prism(ffn_kernel=kernel)
