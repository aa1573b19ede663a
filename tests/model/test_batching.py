"""An image's answer is its own: batch-mates, order, compaction, slices and checkpointing change nothing."""

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file

from prism.model import backbone, refinement
from prism.model.refinement import Watch
from prism.model.stage import Features
from tests.model.small import random_images, small_prism


def steps_of(trace) -> list[list[int]]:
    return [stage.steps.tolist() for stage in trace.stages]


def codebooks(model) -> dict[str, torch.Tensor]:
    return {key: value.clone() for key, value in model.state_dict().items() if "codebook" in key}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(a[key], b[key]) for key in a)


@torch.inference_mode()
def test_alone_in_a_batch_and_in_any_order():
    model, images = small_prism().eval(), random_images(9)
    together = model.forward_traced(images)
    assert any(len(set(steps)) > 1 for steps in steps_of(together.trace))  # else little is tested
    alone = torch.cat([model(image[None]) for image in images])
    torch.testing.assert_close(together.logits, alone, rtol=0, atol=1e-5)
    torch.testing.assert_close(model(images), together.logits, rtol=0, atol=1e-5)
    order = torch.randperm(9)
    torch.testing.assert_close(model(images[order]), together.logits[order], rtol=0, atol=1e-5)
    for stage, shuffled in zip(together.trace.stages, model.forward_traced(images[order]).trace.stages, strict=True):
        assert torch.equal(stage.steps[order], shuffled.steps)
        assert torch.equal(stage.codes[order], shuffled.codes)
        torch.testing.assert_close(stage.slot_maps[order], shuffled.slot_maps, rtol=0, atol=1e-5)


@torch.inference_mode()
def test_halted_images_are_not_computed():
    """The rows that reach the FFN of a stage are exactly the steps its images took."""
    model, images = small_prism().eval(), random_images(9)
    rows = dict.fromkeys(range(4), 0)
    for index, stage in enumerate(model.stages):

        def count(_, inputs, index=index):
            rows[index] += len(inputs[0])

        stage.step.token_ffn.register_forward_pre_hook(count)
    trace = model.forward_traced(images).trace
    assert rows == {index: sum(steps) for index, steps in enumerate(steps_of(trace))}


@torch.inference_mode()
@pytest.mark.parametrize(("hidden_bytes", "kernel"), [(1, 3), (20_000, 3), (100_000, 3), (1, 1), (1, 5)])
def test_slices_of_the_hidden_layer_change_nothing(hidden_bytes: int, kernel: int, monkeypatch: pytest.MonkeyPatch):
    """Bands of rows at the smallest, then a few images at a time."""
    model, images = small_prism(ffn_kernel=kernel).eval(), random_images(5, 100, 132)
    whole = model(images)
    monkeypatch.setattr(refinement, "HIDDEN_BYTES", hidden_bytes)
    torch.testing.assert_close(model(images), whole, rtol=0, atol=1e-6)


@torch.inference_mode()
@pytest.mark.parametrize("fixed_steps", [None, 2])
def test_parts_of_a_large_batch_change_nothing(fixed_steps: int | None, monkeypatch: pytest.MonkeyPatch):
    model, images = small_prism(fixed_steps=fixed_steps).eval(), random_images(5)
    whole = model.pyramid(images).features
    monkeypatch.setattr(backbone, "PIXELS_AT_ONCE", 2 * 64 * 64)
    for a, b in zip(model.pyramid(images).features, whole, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


@torch.inference_mode()
def test_trace_is_consistent():
    model, images = small_prism().eval(), random_images(6, 64, 96)
    for stage, stride, slots in zip(
        model.forward_traced(images).trace.stages, (4, 8, 16, 32), (5, 4, 4, 3), strict=True
    ):
        most = int(stage.steps.max())
        assert stage.slot_maps.shape == (6, most, slots, 64 // stride, 96 // stride)
        taken = torch.arange(most) < stage.steps[:, None]
        torch.testing.assert_close(stage.weights.sum(1), torch.ones(6))
        assert stage.weights[~taken].abs().sum() == 0
        won = stage.slot_maps.sum(2)  # every position belongs wholly to the slots, at every step taken
        torch.testing.assert_close(won, taken[..., None, None].expand_as(won).float())
        assert torch.equal(stage.codes >= 0, taken[..., None].expand_as(stage.codes))


def test_training_can_do_without_slot_maps():
    model, images = small_prism().train(), random_images(3)
    assert model.forward_traced(images).trace.stages[0].slot_maps is not None
    trace = model.forward_traced(images, slot_maps=False).trace
    assert trace.stages[0].slot_maps is None
    assert trace.loss().requires_grad


@torch.inference_mode()
def test_fixed_steps_ignore_the_halting_unit():
    model, images = small_prism().eval(), random_images(4)
    model.fixed_steps = (1, 2, 3, 2)
    before = model.forward_traced(images)
    assert steps_of(before.trace) == [[1] * 4, [2] * 4, [3] * 4, [2] * 4]
    assert before.trace.stages[2].weights.tolist() == [[0, 0, 1]] * 4
    for stage in model.stages:
        stage.halting.fc.weight.zero_()
        stage.halting.fc.bias.fill_(9)
    assert torch.equal(model(images), before.logits)
    model.fixed_steps = None
    assert steps_of(model.forward_traced(images).trace) == [[1] * 4] * 4
    for stage in model.stages:
        stage.halting.fc.bias.fill_(-9)
    model.max_steps = 3
    assert steps_of(model.forward_traced(images).trace) == [[3] * 4] * 4


@torch.inference_mode()
def test_first_fixed_step_is_one_application_of_phi():
    model, images = small_prism(fixed_steps=1, evidence=False).eval(), random_images(2)
    model.stages = model.stages[:1]
    from tests.model import direct

    stage = model.stages[0]
    patches = stage.tokeniser.conv(images)
    x = direct.norm(patches.flatten(2).transpose(1, 2), stage.tokeniser.norm)
    field = direct.positions(16, 16, 8, torch.float32)
    x, _, _ = direct.step(stage.step, x, stage.initial_slots.expand(2, -1, -1), field, (16, 16))
    expected = direct.norm(x, stage.norm).transpose(1, 2).unflatten(2, (16, 16))
    found, _ = stage(Features(images), Watch())
    torch.testing.assert_close(found.maps, expected, rtol=0, atol=1e-5)


def test_codebook_moves_only_by_update():
    model, images = small_prism(), random_images(6)
    start = codebooks(model)
    model.eval()
    model(images)
    model.update()
    assert same(start, codebooks(model))
    model.train()
    with torch.no_grad():
        model(images)
    model(images).sum().backward()
    assert same(start, codebooks(model))
    model.update()
    moved = codebooks(model)
    assert not any(torch.equal(start[key], moved[key]) for key in start)
    model.eval()
    model(images)
    model.update()
    assert same(moved, codebooks(model))


def test_gradient_checkpointing_gives_the_same_gradients_and_codebook():
    results = []
    for checkpointing in (False, True):
        torch.manual_seed(0)
        model = small_prism(torch.float64).train()
        model.set_grad_checkpointing(checkpointing)
        for _ in range(3):
            images = random_images(6, dtype=torch.float64)
            model.zero_grad()
            logits, trace = model.forward_traced(images)
            (logits.square().mean() + trace.loss()).backward()
            model.update()
        results.append((codebooks(model), [p.grad for p in model.parameters()]))
    (plain, gradients), (saved, recomputed) = results
    assert same(plain, saved)
    for a, b in zip(gradients, recomputed, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_state_dict_round_trips_through_safetensors(tmp_path):
    model = small_prism().train()
    model(random_images(6))
    model.update()
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    other = small_prism()
    other.load_state_dict(load_file(tmp_path / "model.safetensors"))
    for key, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[key]), key
    images = random_images(3)
    assert torch.equal(model.eval()(images), other.eval()(images))


@torch.inference_mode()
def test_bfloat16_autocast_stays_close_to_float32():
    model, images = small_prism(memory="continuous", fixed_steps=2).eval(), random_images(5)
    expected = model.forward_traced(images)
    with torch.autocast("cpu", torch.bfloat16):
        found = model.forward_traced(images)
    torch.testing.assert_close(found.logits.float(), expected.logits, rtol=0.05, atol=0.05)
    for a, b in zip(found.trace.stages, expected.trace.stages, strict=True):
        assert a.slot_maps.dtype == torch.float32
        torch.testing.assert_close(a.slot_maps, b.slot_maps, rtol=0, atol=0.1)


def test_bfloat16_autocast_trains_with_float32_statistics():
    model, images = small_prism(drop_path_rate=0.1).train(), random_images(5)
    with torch.autocast("cpu", torch.bfloat16):
        logits, trace = model.forward_traced(images)
        loss = logits.square().mean() + trace.loss()
    loss.backward()
    model.update()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    assert all(value.dtype == torch.float32 for key, value in codebooks(model).items() if "updates" not in key)


@torch.inference_mode()
def test_a_model_wholly_in_bfloat16_runs():
    model = small_prism(torch.bfloat16).eval()
    assert model(random_images(3, dtype=torch.bfloat16)).isfinite().all()


def test_drop_path_and_dropout_are_off_in_eval():
    model = small_prism(drop_path_rate=0.5, drop_rate=0.5).eval()
    images = random_images(3)
    assert torch.equal(model(images), model(images))
    model.train()
    assert not torch.equal(model(images), model(images))


def test_variants_are_real_timm_models():
    assert timm.list_models("prism_*") == ["prism_base", "prism_nano", "prism_small", "prism_tiny"]
