from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file

from prism.baselines.pyramid import STRIDES, PyramidBackbone
from prism.model.memory import update_codebooks
from tests.model.small import small_prism

PYRAMIDS = ["prism_nano", "pvt_v2_b0", "resnet18"]
SINGLE_STRIDE = ["xcit_nano_12_p16_224", "vit_tiny_patch16_224"]
COMPARED = ["davit_tiny", "xcit_tiny_12_p16_224"]  # with PRISM, in the paper
SILENT = ["mobilenetv3_small_050"]  # on where its channels are
SIDES = (64, 96)


@pytest.mark.parametrize("name", [*PYRAMIDS, *SINGLE_STRIDE, *COMPARED, *SILENT])
def test_maps_lie_at_the_four_strides(name: str):
    backbone = PyramidBackbone(name).eval()
    with torch.inference_mode():
        maps = backbone(torch.rand(2, 3, *SIDES))
    assert [tuple(level.shape) for level in maps.features] == [
        (2, channels, *(side // stride for side in SIDES))
        for channels, stride in zip(backbone.channels, STRIDES, strict=True)
    ]
    assert maps.trace is None, "a trace is for training"


@pytest.mark.parametrize(("name", "sides"), [("swin_tiny_patch4_window7_224", (384, 320)), ("mambaout_femto", SIDES)])
def test_channels_that_come_last_are_brought_forward(name: str, sides: tuple[int, int]):
    """Also where a map is as high as it has channels: Swin's first has 96."""
    backbone = PyramidBackbone(name).eval()
    with torch.inference_mode():
        maps = backbone(torch.rand(1, 3, *sides))
    assert [tuple(level.shape) for level in maps.features] == [
        (1, channels, *(side // stride for side in sides))
        for channels, stride in zip(backbone.channels, STRIDES, strict=True)
    ]


@pytest.mark.parametrize("name", [*PYRAMIDS, *SINGLE_STRIDE, *COMPARED, *SILENT])
def test_a_classifier_gives_its_weights(name: str, tmp_path: Path):
    """All of them, whatever timm calls them once it has taken the maps out."""
    classifier = timm.create_model(name, num_classes=3)
    marked = {key: torch.full_like(value, 7) for key, value in classifier.state_dict().items()}
    save_file(marked, tmp_path / "classifier.safetensors")
    backbone = PyramidBackbone(name)
    backbone.load(tmp_path / "classifier.safetensors")
    assert all((value == 7).all() for value in backbone.body.state_dict().values())


def test_weights_of_another_model_are_refused(tmp_path: Path):
    save_file(small_prism().state_dict(), tmp_path / "small.safetensors")
    with pytest.raises(ValueError, match=r"small.safetensors is not of prism_nano: 'stages\.0.* has another shape"):
        PyramidBackbone("prism_nano").load(tmp_path / "small.safetensors")


def test_no_more_stages_are_frozen_than_there_are():
    with pytest.raises(ValueError, match="resnet18 has 4 stages: 5 cannot be frozen"):
        PyramidBackbone("resnet18").freeze(5)


@pytest.mark.parametrize("name", [*PYRAMIDS, "vit_tiny_patch16_224"])
def test_what_is_frozen_stays_as_it_is(name: str):
    """Parameters, codebooks and running statistics; and the rest learns."""
    backbone = PyramidBackbone(name)
    backbone.freeze(2)
    backbone.train()
    free = [parameter for parameter in backbone.parameters() if parameter.requires_grad]
    before = {key: value.clone() for key, value in backbone.state_dict().items()}
    optimiser = torch.optim.SGD(free, lr=0.1)
    maps = backbone(torch.rand(2, 3, *SIDES))
    sum(level.square().mean() for level in maps.features).backward()
    optimiser.step()
    update_codebooks(backbone)
    moved = {key for key, value in backbone.state_dict().items() if not torch.equal(value, before[key])}
    still = {
        "prism_nano": ("body.stages.0.", "body.stages.1."),
        "pvt_v2_b0": ("body.patch_embed", "body.stages_0.", "body.stages_1."),
        "resnet18": ("body.conv1.", "body.bn1.", "body.layer1.", "body.layer2."),
        "vit_tiny_patch16_224": tuple(f"body.model.blocks.{depth}." for depth in range(6)),
    }[name]
    assert not [key for key in moved if key.startswith(still)]
    assert moved
    backbone.freeze(0)
    assert all(parameter.requires_grad for parameter in backbone.parameters())


def test_prism_leaves_a_trace_in_training():
    backbone = PyramidBackbone("prism_nano").train()
    trace = backbone(torch.rand(1, 3, *SIDES)).trace
    assert trace is not None
    assert len(trace.stages) == len(STRIDES)


@pytest.mark.parametrize("name", ["prism_nano", "vit_tiny_patch16_224", "resnet18"])
def test_activations_recomputed_give_the_same_gradients(name: str):
    torch.manual_seed(0)
    backbone = PyramidBackbone(name).train()
    gradients = []
    for recompute in (False, True):
        backbone.set_grad_checkpointing(recompute)
        backbone.zero_grad()
        backbone(torch.ones(1, 3, *SIDES).cumsum(-1) / SIDES[1]).features[-1].square().mean().backward()
        gradients.append([p.grad.clone() for p in backbone.parameters() if p.grad is not None])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["coat_tiny", "crossvit_tiny_240"])
def test_a_model_without_maps_is_one_sentence(name: str):
    with pytest.raises(ValueError, match=rf"^timm cannot extract feature maps from {name}; .*\)$"):
        PyramidBackbone(name)


def test_an_unknown_name_is_one_sentence():
    with pytest.raises(ValueError, match="no model is called 'prism_huge'"):
        PyramidBackbone("prism_huge")
