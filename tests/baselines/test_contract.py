"""What timm, and the tasks of this package, ask of a backbone: the same of every baseline."""

from typing import Any

import pytest
import timm
import torch
from timm.data import resolve_data_config
from timm.models._manipulate import group_parameters
from timm.optim import create_optimizer_v2
from torch import nn

from prism.baselines import biformer, bixt, debiformer, paca
from prism.baselines.pyramid import STRIDES, PyramidBackbone
from tests.baselines.plain import randomised

FAMILIES = (biformer, bixt, paca, debiformer)
ALL = [name for family in FAMILIES for name in family.VARIANTS]
STAGED = {
    "biformer_nano": (32, 64, 128, 256),
    "pacavit_nano": (48, 96, 160, 192),
    "debiformer_nano": (32, 64, 128, 192),
}
NANO = [*STAGED, "bixt_nano"]
SHALLOW = {  # one block of every kind
    "biformer_nano": dict(depths=(1, 0, 0, 1)),
    "pacavit_nano": dict(depths=(2, 0, 0, 1)),
    "debiformer_nano": dict(pairs=(1, 0, 0, 1)),
    "bixt_nano": dict(depth=2),
}
LAST = {"biformer_nano": 256, "pacavit_nano": 192, "debiformer_nano": 192, "bixt_nano": 96}


def create(name: str, **kwargs: Any) -> Any:
    return timm.create_model(name, **kwargs)


def test_importing_the_package_registers_them():
    assert set(ALL) <= set(timm.list_models())
    assert not set(ALL) & set(timm.list_models(pretrained=True)), "no weights are offered for download"


@pytest.mark.parametrize("name", ALL)
def test_default_cfg_names_real_layers(name: str):
    with torch.device("meta"):
        model = create(name)
    cfg, weights = model.default_cfg, model.state_dict()
    assert weights[f"{cfg['classifier']}.weight"].shape == (1000, model.num_features)
    assert weights[f"{cfg['first_conv']}.weight"].shape[1] == 3
    data = resolve_data_config(model=model)
    assert data["input_size"] == ((3, 112, 112) if name.endswith("nano") else (3, 224, 224))
    assert data["crop_pct"] == (0.9 if name.startswith("paca") else 0.875)
    assert (data["interpolation"], data["mean"][0], data["std"][0]) == ("bicubic", 0.485, 0.229)


@pytest.mark.parametrize("name", NANO)
@pytest.mark.parametrize("size", [(112, 112), (64, 64), (32, 32), (50, 77)])
def test_any_size_is_taken(name: str, size: tuple[int, int]):
    model = create(name, num_classes=5).eval()
    with torch.inference_mode():
        features = model.forward_features(torch.randn(2, 3, *size))
        assert model.forward_head(features).shape == (2, 5)
        assert model(torch.randn(0, 3, *size)).shape == (0, 5)
    if name in STAGED:
        assert features.shape == (2, LAST[name], -(-size[0] // 32), -(-size[1] // 32))


@pytest.mark.parametrize("name", NANO)
def test_classifier_methods(name: str):
    model, image = create(name, num_classes=5).eval(), torch.randn(2, 3, 64, 64)
    width = LAST[name]
    with torch.inference_mode():
        features = model.forward_features(image)
        assert model.forward_head(features, pre_logits=True).shape == (2, width)
        torch.testing.assert_close(model.forward_head(features), model(image))
        assert model.get_classifier().out_features == 5
        model.reset_classifier(11)
        assert model.num_classes == 11
        assert model(image).shape == (2, 11)
        model.reset_classifier(0)
        assert model(image).shape == (2, width)
        model.reset_classifier(0, "")
        assert model(image).shape == features.shape
        assert create(name, in_chans=1, num_classes=0).eval()(image[:, :1]).shape == (2, width)
    with pytest.raises(ValueError, match=r"expected images \(B, 3, H, W\), got \(2, 1, 64, 64\)"):
        model(image[:, :1])


@pytest.mark.parametrize("name", NANO)
def test_gradients_reach_every_parameter(name: str):
    model = create(name, num_classes=3, drop_rate=0.1, drop_path_rate=0.1).train()
    model.get_classifier().reset_parameters()  # BiXT's starts at zero
    model(torch.randn(4, 3, 64, 64)).square().sum().backward()
    assert [
        key for key, value in model.named_parameters() if value.grad is None or not value.grad.isfinite().all()
    ] == []


@pytest.mark.parametrize("name", STAGED)
@pytest.mark.parametrize("indices", [(0, 1, 2, 3), (1, 3), (2,)])
def test_features_only(name: str, indices: tuple[int, ...]):
    backbone = create(name, features_only=True, out_indices=indices).eval()
    assert backbone.feature_info.channels() == [STAGED[name][i] for i in indices]
    assert backbone.feature_info.reduction() == [STRIDES[i] for i in indices]
    with torch.inference_mode():
        maps = backbone(torch.randn(1, 3, 64, 96))
    assert [tuple(m.shape[1:]) for m in maps] == [
        (STAGED[name][i], 64 // STRIDES[i], 96 // STRIDES[i]) for i in indices
    ]


def test_features_of_one_stride():
    """BiXT's last layer leaves the tokens as they are, so it has one map less than layers."""
    backbone = create("bixt_nano", features_only=True, out_indices=(0, 4, 8)).eval()
    assert backbone.feature_info.reduction() == [8, 8, 8]
    with torch.inference_mode():
        assert [tuple(m.shape) for m in backbone(torch.randn(1, 3, 64, 96))] == [(1, 96, 8, 12)] * 3
    assert all(block.cross_block.both_ways for block in backbone.model.blocks)
    assert len(create("bixt_tiny_patch16_d13").feature_info) == 12


@pytest.mark.parametrize("name", NANO)
@torch.inference_mode()
def test_forward_intermediates(name: str):
    model, image = create(name).eval(), torch.randn(1, 3, 64, 64)
    last, maps = model.forward_intermediates(image)
    assert len(maps) == len(model.feature_info)
    torch.testing.assert_close(last, model.forward_features(image))
    early, [second] = model.forward_intermediates(image, indices=[1], stop_early=True)
    torch.testing.assert_close(second, maps[1])
    assert early.shape[1:] == (second.shape[1:] if name in STAGED else last.shape[1:])
    two_last = model.forward_intermediates(image, indices=2, intermediates_only=True)
    torch.testing.assert_close(two_last, maps[-2:])
    with pytest.raises(ValueError, match="NCHW, got 'NLC'"):
        model.forward_intermediates(image, output_fmt="NLC")
    if name in STAGED:
        normed = model.forward_intermediates(image, norm=True, intermediates_only=True)
        torch.testing.assert_close(normed[-1], last)
        torch.testing.assert_close(normed[:-1], maps[:-1])
    assert model.prune_intermediate_layers([0, 1], prune_norm=True) == [0, 1]
    torch.testing.assert_close(model.forward_intermediates(image, [0, 1], intermediates_only=True), maps[:2])
    kept = model.stages if name in STAGED else model.blocks
    assert len(kept) == 2
    assert isinstance(model.get_classifier(), nn.Identity)


@pytest.mark.parametrize("name", NANO)
def test_recomputed_activations_give_the_same_gradients(name: str):
    model, gradients = create(name, num_classes=3, drop_path_rate=0.2).double().train(), []
    model.get_classifier().reset_parameters()
    for enable in (False, True):
        model.set_grad_checkpointing(enable)
        model.zero_grad()
        torch.manual_seed(1)  # of the drop paths
        model(torch.ones(2, 3, 32, 32, dtype=torch.float64).cumsum(-1) / 32).square().sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("name", NANO)
def test_state_dict_round_trip(name: str, tmp_path):
    model, other = randomised(create(name, num_classes=5)), create(name, num_classes=5).double().eval()
    torch.save(model.state_dict(), tmp_path / "weights.pth")
    other.load_state_dict(torch.load(tmp_path / "weights.pth", weights_only=True))
    image = torch.randn(1, 3, 64, 64, dtype=torch.float64)
    with torch.inference_mode():
        torch.testing.assert_close(model(image), other(image), rtol=0, atol=0)


@pytest.mark.parametrize("name", NANO)
def test_an_answer_does_not_depend_on_batch_mates(name: str):
    model, images = randomised(create(name, num_classes=5)), torch.randn(3, 3, 64, 64, dtype=torch.float64)
    with torch.inference_mode():
        torch.testing.assert_close(model(images)[:1], model(images[:1]))


@pytest.mark.parametrize("name", NANO)
def test_optimisers_of_timm_take_it(name: str):
    model = create(name)
    groups = create_optimizer_v2(model, "adamw", lr=1e-3, weight_decay=0.05).param_groups
    free = {id(p) for group in groups if not group["weight_decay"] for p in group["params"]}
    named = dict(model.named_parameters())
    assert all(id(named[key]) in free for key in model.no_weight_decay())
    assert id(model.get_classifier().weight) not in free
    layered = create_optimizer_v2(model, "adamw", lr=1e-3, layer_decay=0.7).param_groups
    assert sum(len(group["params"]) for group in layered) == len(named)
    blocks = sum(len(stage.blocks) for stage in model.stages) if name in STAGED else len(model.blocks)
    assert len({group["lr_scale"] for group in layered}) == 1 + blocks + 1, "stem, blocks, head"
    if name in STAGED:
        assert len(group_parameters(model, model.group_matcher(coarse=True))) == 1 + 4 + 1


@pytest.mark.parametrize("name", NANO)
def test_half_precision(name: str):
    model, image = create(name, num_classes=5).eval(), torch.randn(1, 3, 64, 64)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        assert model(image).isfinite().all()
    with torch.inference_mode():
        assert model.bfloat16()(image.bfloat16()).isfinite().all()


@pytest.mark.parametrize("name", NANO)
def test_it_compiles_in_one_graph(name: str):
    model, image = create(name, num_classes=5, **SHALLOW[name]).eval(), torch.randn(2, 3, 64, 64)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(image), model(image))


@pytest.mark.parametrize("name", NANO)
def test_it_exports(name: str):
    model, image = create(name, num_classes=5, **SHALLOW[name]).eval(), torch.randn(2, 3, 64, 64)
    batch = torch.export.Dim("batch", min=1, max=8)
    program = torch.export.export(model, (image,), dynamic_shapes=({0: batch},), strict=False)
    more = torch.randn(3, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(program.module()(more), model(more), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NANO)
def test_it_is_a_pyramid_for_dense_tasks(name: str):
    backbone = PyramidBackbone(name)
    backbone.freeze(1)
    maps = backbone(torch.randn(2, 3, 64, 96)).features
    assert [tuple(m.shape) for m in maps] == [
        (2, channels, 64 // stride, 96 // stride) for channels, stride in zip(backbone.channels, STRIDES, strict=True)
    ]
    sum(m.square().mean() for m in maps).backward()
    frozen = [key for key, value in backbone.body.named_parameters() if not value.requires_grad]
    first = (
        "model.stages.0."
        if name in STAGED
        else ("model.latents", "model.patch", "model.pos", "model.blocks.0.", "model.blocks.1.")
    )
    assert frozen
    assert all(key.startswith(first) for key in frozen)


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("biformer_nano", dict(depths=(1, 1)), "one entry per stage"),
        ("biformer_nano", dict(widths=(24, 64, 128, 256)), "24 channels do not divide into 0 heads"),
        ("pacavit_nano", dict(clusters=(49,)), "one entry per stage"),
        ("debiformer_nano", dict(windows=(7, 7, 7)), "one entry per stage"),
        ("debiformer_nano", dict(widths=(48, 64, 128, 192)), "multiples of 32, got 48"),
        ("bixt_nano", dict(stride=7), "got patch 16 and stride 7"),
        ("bixt_nano", dict(depth=1), "at least 2"),
        ("bixt_nano", dict(global_pool="max"), "global_pool must be 'avg' or '', got 'max'"),
    ],
)
def test_bad_settings_are_named(name: str, settings: dict[str, Any], sentence: str):
    with pytest.raises(ValueError, match=sentence):
        create(name, **settings)
