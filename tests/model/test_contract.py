"""What timm, Hugging Face and segmentation_models_pytorch ask of a backbone."""

import pytest
import segmentation_models_pytorch as smp
import timm
import torch
from safetensors.torch import save_file
from timm.data import resolve_data_config
from timm.optim import create_optimizer_v2
from transformers import TimmBackbone, TimmBackboneConfig

from prism import Prism
from prism.metrics.complexity import parameters

WIDTHS = [32, 64, 160, 256]


def nano(**kwargs) -> Prism:
    return timm.create_model("prism_nano", **kwargs)  # pyright: ignore[reportReturnType]


def test_sizes_stay_below_those_of_pvt_v2():
    for ours, theirs in [("nano", "b0"), ("tiny", "b1"), ("small", "b2"), ("base", "b3")]:
        assert parameters(timm.create_model(f"prism_{ours}")) < parameters(timm.create_model(f"pvt_v2_{theirs}"))
    assert 10.4e6 <= parameters(timm.create_model("prism_tiny")) <= 11.2e6


@pytest.mark.parametrize("size", [(32, 32), (64, 64), (33, 47), (96, 160), (224, 224)])
def test_any_size_down_to_32(size: tuple[int, int]):
    model = nano(num_classes=5).eval()
    image = torch.randn(1, 3, *size)
    with torch.inference_mode():
        assert model(image).shape == (1, 5)
        for level, (features, width) in enumerate(zip(model.pyramid(image).features, WIDTHS, strict=True)):
            stride = 4 * 2**level
            assert features.shape == (1, width, -(-size[0] // stride), -(-size[1] // stride))


def test_classifier_methods():
    model, image = nano(num_classes=5).eval(), torch.randn(2, 3, 64, 64)
    features = model.forward_features(image)
    assert features.shape == (2, 256, 2, 2)
    assert model.forward_head(features, pre_logits=True).shape == (2, 256)
    torch.testing.assert_close(model.forward_head(features), model(image))
    assert model.get_classifier().out_features == 5
    model.reset_classifier(11)
    assert model(image).shape == (2, 11)
    model.reset_classifier(0)
    assert model(image).shape == (2, 256)
    model.reset_classifier(0, "")
    assert model(image).shape == (2, 256, 2, 2)
    assert nano(num_classes=0)(image).shape == (2, 256)
    assert nano(in_chans=1)(image[:, :1]).shape == (2, 1000)
    assert nano(img_size=96, num_classes=3)(image).shape == (2, 3)


def test_default_cfg_names_real_layers():
    for name in timm.list_models("prism_*"):
        model = timm.create_model(name)
        cfg = model.default_cfg
        weights = model.state_dict()
        assert f"{cfg['classifier']}.weight" in weights
        assert f"{cfg['first_conv']}.weight" in weights
        side = 112 if name == "prism_nano" else 224  # nano's card is that of its weights
        assert resolve_data_config(model=model)["input_size"] == (3, side, side)


@pytest.mark.parametrize("indices", [(0, 1, 2, 3), (1, 2, 3), (2,)])
def test_features_only(indices: tuple[int, ...]):
    backbone = nano(features_only=True, out_indices=indices).eval()
    assert backbone.feature_info.channels() == [WIDTHS[i] for i in indices]
    assert backbone.feature_info.reduction() == [4 * 2**i for i in indices]
    image = torch.randn(1, 3, 64, 96)
    expected = backbone.model.pyramid(image).features if len(indices) == 4 else None
    found = backbone(image)
    assert [f.shape[1] for f in found] == [WIDTHS[i] for i in indices]
    if expected:
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b)


def test_forward_intermediates():
    model, image = nano().eval(), torch.randn(1, 3, 64, 64)
    last, maps = model.forward_intermediates(image)
    assert [m.shape[1] for m in maps] == WIDTHS
    torch.testing.assert_close(last, model.forward_features(image))
    torch.testing.assert_close(maps[-1], last)
    [second] = model.forward_intermediates(image, indices=[1], intermediates_only=True, stop_early=True)
    torch.testing.assert_close(second, maps[1])
    two_last = model.forward_intermediates(image, indices=2, intermediates_only=True)
    assert [m.shape[1] for m in two_last] == WIDTHS[2:]
    with pytest.raises(ValueError, match="NCHW"):
        model.forward_intermediates(image, output_fmt="NLC")
    assert model.prune_intermediate_layers([0, 1]) == [0, 1]
    assert len(model.stages) == 2
    assert [m.shape[1] for m in model.forward_intermediates(image, [0, 1], intermediates_only=True)] == WIDTHS[:2]


def test_optimisers_of_timm_take_it():
    model = nano()
    groups = create_optimizer_v2(model, "adamw", lr=1e-3, weight_decay=0.05).param_groups
    free = {id(p) for group in groups if not group["weight_decay"] for p in group["params"]}
    assert id(model.stages[0].initial_slots) in free
    assert id(model.stages[0].step.token_scale.gain) in free
    assert id(model.stages[0].step.to_key.weight) not in free
    layered = create_optimizer_v2(model, "adamw", lr=1e-3, layer_decay=0.7).param_groups
    assert sum(len(group["params"]) for group in layered) == len(list(model.parameters()))
    assert len({group["lr_scale"] for group in layered}) > 3


def test_huggingface_backbone():
    config = TimmBackboneConfig(backbone="prism_nano", out_indices=[1, 3], use_pretrained_backbone=False)
    backbone = TimmBackbone(config).eval()
    maps = backbone(torch.randn(1, 3, 64, 64)).feature_maps
    assert [tuple(m.shape[1:]) for m in maps] == [(64, 8, 8), (256, 2, 2)]


def test_segmentation_models_pytorch():
    model = smp.FPN("tu-prism_nano", encoder_weights=None, classes=4).eval()
    assert model(torch.randn(1, 3, 64, 64)).shape == (1, 4, 64, 64)


def test_gradients_reach_every_parameter():
    model = nano(num_classes=3, fixed_steps=None).train()
    logits, trace = model.forward_traced(torch.randn(4, 3, 64, 64))
    (logits.square().sum() + trace.loss()).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize(
    ("bad_use", "sentence"),
    [
        (lambda: nano()(torch.zeros(1, 3, 31, 64)), "at least 32 x 32, got 31 x 64"),
        (lambda: nano()(torch.zeros(1, 1, 64, 64)), r"expected images \(B, 3, H, W\), got \(1, 1, 64, 64\)"),
        (lambda: nano()(torch.zeros(3, 64, 64)), "expected images"),
        (lambda: nano(img_size=16), "at least 32 x 32, got 16 x 16"),
        (lambda: nano(fixed_steps=0), "fixed_steps must be a whole number of at least 1, got 0"),
        (lambda: nano(fixed_steps=(1, 2)), r"one number or 4, got \(1, 2\)"),
        (lambda: setattr(nano(), "fixed_steps", 2.5), "fixed_steps"),
        (lambda: nano(max_steps=0), "max_steps must be a whole number of at least 1, got 0"),
        (lambda: nano(memory="lstm"), "memory must be one of vq, continuous, off, got 'lstm'"),
        (lambda: setattr(nano(), "memory", "on"), "got 'on'"),
        (lambda: nano(preset="papre"), "preset must be 'default' or 'paper', got 'papre'"),
        (lambda: nano(widths=(8, 8), slots=(2,)), "one entry per stage"),
    ],
)
def test_bad_use_is_named(bad_use, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        bad_use()


def test_checkpoint_of_another_variant_is_named(tmp_path):
    path = tmp_path / "nano.safetensors"
    save_file(nano().state_dict(), path)
    with pytest.raises(ValueError, match=r"'stages.0.initial_slots' is \(16, 32\) there and \(16, 64\) here"):
        timm.create_model("prism_tiny", checkpoint_path=str(path))
    overlapping = nano(evidence=False)
    with pytest.raises(ValueError, match=r"has no 'stages.0.step.memory.where_norm.weight'"):
        overlapping.load_state_dict(nano(preset="paper").state_dict())
    with pytest.raises(ValueError, match=r"'stages.0.step.memory.where_norm.weight' is not in this one"):
        nano(preset="paper").load_state_dict(overlapping.state_dict())
    with pytest.raises(ValueError, match=r"'stages.0.tokeniser.conv.weight' is \(32, 3, 7, 7\) there"):
        nano().load_state_dict(overlapping.state_dict())
    timm.create_model("prism_nano", checkpoint_path=str(path))
