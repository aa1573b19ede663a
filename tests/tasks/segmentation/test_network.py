from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import nn

from prism.data.label_maps import VOID
from prism.model.backbone import Prism
from prism.tasks.learner import Weights, find_prism
from prism.tasks.segmentation.evaluate import COST_SIZE, costs
from prism.tasks.segmentation.learner import Segmenter
from prism.tasks.segmentation.network import Inference, SemanticFPN, load_segmenter, resized, slide
from tests.model.small import random_images

CLASSES = ["ground", "cat", "dog"]
SMALL = dict(widths=(8, 12, 16, 24), slots=(5, 4, 4, 3), codes=16)


def small(model: str = "prism_nano", **arguments: Any) -> SemanticFPN:
    own = SMALL | arguments if model.startswith("prism") else arguments
    return SemanticFPN(model, CLASSES, 16, **own).eval()


@pytest.mark.parametrize("size", [(32, 32), (37, 91), (64, 33), (20, 50), (1, 7)])
def test_logits_have_the_images_own_size(size: tuple[int, int]):
    network = small()
    images = torch.randn(2, 3, *size)
    with torch.inference_mode():
        assert network(images).shape == (2, 3, *size)
        assert Inference(network, (48, 40), 32, 24, True, (0.5, 1.25))(images).shape == (2, 3, *size)


@pytest.mark.parametrize("model", ["prism_nano", "pvt_v2_b0", "xcit_nano_12_p16_224", "resnet10t"])
def test_any_backbone_learns_with_its_losses(model: str):
    """XCiT has one stride: its maps are brought to four."""
    network = small(model)
    learner = Segmenter(network).train()
    losses, figures = learner(random_images(2, 64, 32), torch.randint(3, (2, 64, 32)).to(torch.uint8))
    torch.stack(list(losses.values())).sum().backward()
    assert all(p.grad is not None for p in (*network.pyramid.parameters(), *network.branches.parameters()))
    ours = model.startswith("prism")
    assert set(losses) == ({"segmentation", "ponder", "vq"} if ours else {"segmentation"})
    assert set(figures) == ({f"steps {stage}" for stage in range(1, 5)} if ours else set())


def test_the_papers_own_losses_can_be_left_out():
    found = Segmenter(small(), weights=None).train()(random_images(1), torch.zeros(1, 64, 64).long())
    assert set(found.losses) == {"segmentation"}
    heavy = Segmenter(small(), Weights(ponder=2.0, vq=0.0)).train()(random_images(1), torch.zeros(1, 64, 64).long())
    assert heavy.losses["ponder"].item() >= 2 * 4  # at least a step in each of four stages
    assert heavy.losses["vq"].item() == 0


def test_void_pixels_teach_nothing():
    learner = Segmenter(small("resnet10t")).eval()
    images, labels = random_images(2), torch.randint(3, (2, 64, 64))
    labels[:, 20:] = VOID
    expected = nn.functional.cross_entropy(learner.network(images)[:, :, :20], labels[:, :20])
    torch.testing.assert_close(learner(images, labels).losses["segmentation"], expected)
    assert learner(images, torch.full((2, 64, 64), VOID)).losses["segmentation"].item() == 0


class ByPixel(nn.Module):
    """Looks at each pixel alone, so that what surrounds it makes no difference."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.cat([images, images.square()], 1)


@pytest.mark.parametrize(("size", "window", "stride"), [((50, 70), 32, 20), ((32, 33), 32, 32), ((90, 20), 32, 7)])
def test_windows_cover_every_pixel_and_overlaps_are_averaged(size: tuple[int, int], window: int, stride: int):
    images = torch.randn(2, 3, *size)
    torch.testing.assert_close(slide(ByPixel(), images, window, stride), ByPixel()(images))


def test_overlapping_windows_are_averaged():
    class Numbered(nn.Module):
        calls = 0

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return torch.full((1, 1, *images.shape[-2:]), float(self.calls))

    found = slide(Numbered(), torch.zeros(1, 3, 4, 6), window=4, stride=2)
    assert found[0, 0, 0].tolist() == [1, 1, 1.5, 1.5, 2, 2]


@pytest.mark.parametrize("size", [(40, 57), (64, 64), (33, 20)])
def test_a_window_larger_than_the_image_sees_it_whole(size: tuple[int, int]):
    network, images = small(), torch.randn(2, 3, *size)
    with torch.inference_mode():
        assert torch.equal(Inference(network, window=64, stride=16)(images), Inference(network)(images))
        assert torch.equal(Inference(network)(images), network(images))


def test_flip_and_scales_average_probabilities():
    network, images = small(), torch.randn(1, 3, 48, 40)
    with torch.inference_mode():
        both = Inference(network, flip=True)(images)
        expected = (network(images).softmax(1) + network(images.flip(-1)).flip(-1).softmax(1)) / 2
        torch.testing.assert_close(both, expected)
        torch.testing.assert_close(both.flip(-1), Inference(network, flip=True)(images.flip(-1)))
        several = Inference(network, scales=(1.0, 2.0))(images)
        large = resized(network(resized(images, (96, 80))), (48, 40))
        torch.testing.assert_close(several, (network(images).softmax(1) + large.softmax(1)) / 2)


def test_fitted_images_are_seen_at_the_size_they_are_fitted_to():
    network, images = small(), torch.randn(1, 3, 20, 30)
    with torch.inference_mode():
        expected = resized(network(resized(images, (64, 96))), (20, 30))
        torch.testing.assert_close(Inference(network, fit=(96, 96))(images), expected)


def test_an_answer_does_not_depend_on_its_batch_mates():
    network, images = small().double(), random_images(3, 40, 50).double()
    with torch.inference_mode():
        together = network(images)
        torch.testing.assert_close(together, torch.cat([network(image[None]) for image in images]))


def test_a_file_of_weights_is_enough_to_rebuild_the_network(tmp_path: Path):
    network = small(max_steps=3, memory="continuous")
    save_file(network.state_dict(), tmp_path / "w.safetensors", network.metadata(fit=(96, 64)).header())
    found = load_segmenter(tmp_path / "w.safetensors", flip=True)
    assert found.network.classes == CLASSES
    assert found.fit == (96, 64)
    assert found.flip
    assert not found.training
    prism = find_prism(found)
    assert prism is not None
    assert (prism.max_steps, prism.memory) == (3, "continuous")
    images = torch.randn(1, 3, 64, 64)
    with torch.inference_mode():
        assert torch.equal(found.network(images), network(images))


def test_what_is_no_segmenter_is_named(tmp_path: Path):
    save_file({"a": torch.zeros(1)}, tmp_path / "other.safetensors", {"model": "prism_nano"})
    with pytest.raises(ValueError, match=r"other\.safetensors is not a segmenter"):
        load_segmenter(tmp_path / "other.safetensors")
    save_file({"a": torch.zeros(1)}, tmp_path / "silent.safetensors", {"task": "segmentation", "width": "16"})
    with pytest.raises(ValueError, match=r"invalid metadata in .*silent\.safetensors"):
        load_segmenter(tmp_path / "silent.safetensors")
    save_file({"a": torch.zeros(1)}, tmp_path / "empty.safetensors", small().metadata().header())
    with pytest.raises(ValueError, match=r"empty\.safetensors does not fit"):
        load_segmenter(tmp_path / "empty.safetensors")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (dict(design={}), "does not fit"),  # the published width, which the weights have not
        (dict(design={"width": "wide"}), "design width must be a whole number"),
        (dict(design={"width": 12}), "width must be a multiple of 8, got 12"),
        (dict(design={"dropout": float("nan")}), "design dropout must be a number from 0 to 1"),
        (dict(design={"fit": [96]}), "design fit must be"),
        (dict(design={"colour": 1}), "design has no key 'colour'"),
        (dict(design=[16]), "design must be an object"),
        (dict(classes=None), "design needs 1 to 255 classes, got 0"),
        (dict(classes=[f"class {n}" for n in range(300)]), "design needs 1 to 255 classes, got 300"),
    ],
)
def test_metadata_that_no_segmenter_has_is_one_sentence(changes: dict[str, Any], said: str, tmp_path: Path):
    network = SemanticFPN("test_convnext", changes.get("classes") or CLASSES, 16)
    found = replace(network.metadata(), **changes)
    save_file(network.state_dict(), tmp_path / "bad.safetensors", found.header())
    with pytest.raises(ValueError, match=rf"bad\.safetensors.*{said}"):
        load_segmenter(tmp_path / "bad.safetensors")


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (dict(window=32, stride=40), "a window of 32 needs a stride from 1 to 32, got 40"),
        (dict(window=32, stride=0), "got 0"),
        (dict(stride=8), "a stride of 8 needs a window"),
        (dict(scales=(1.0, 0.0)), r"scales must be above 0, got \(1.0, 0.0\)"),
    ],
)
def test_bad_ways_of_looking_are_named(wrong: dict[str, Any], sentence: str):
    with pytest.raises(ValueError, match=sentence):
        Inference(small("resnet10t"), **wrong)


def test_bad_networks_are_named():
    with pytest.raises(ValueError, match="width must be a multiple of 8, got 12"):
        SemanticFPN("prism_nano", CLASSES, 12)
    with pytest.raises(ValueError, match="no model is called 'prism_huge'"):
        SemanticFPN("prism_huge", CLASSES)


def test_slots_are_not_decayed():
    network = small()
    assert network.no_weight_decay() <= dict(network.named_parameters()).keys()
    assert len(network.no_weight_decay()) == 4


@pytest.mark.parametrize("model", ["prism_nano", "xcit_nano_12_p16_224"])
def test_memory_can_be_saved(model: str):
    network = small(model)
    images, labels = random_images(1), torch.zeros(1, 64, 64).long()
    gradients = []
    for save in (False, True):
        network.set_grad_checkpointing(save)
        network.train().zero_grad()
        Segmenter(network, weights=None)(images, labels).losses["segmentation"].backward()
        gradients.append(network.classifier[1].weight.grad.clone())  # pyright: ignore
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("model", ["prism_nano", "resnet10t"])
def test_how_a_network_is_used_does_not_change_its_cost(model: str):
    network = small(model)
    used = Inference(network, fit=(256, 256), window=32, flip=True, scales=(0.5, 1.0))
    assert costs(used, (64, 64)) == costs(network, (64, 64))


def test_size_and_cost_beside_the_papers():
    """Table 2(b): PVTv2-B1 has 17.8 M and 34.2 G, which fixes the head; PRISM has 15.5 M and 35.6 G there."""
    names = [str(number) for number in range(150)]
    size, macs = costs(SemanticFPN("pvt_v2_b1", names).to("meta"), COST_SIZE)  # counts need no numbers
    assert round(size / 1e6, 1) == 17.8
    assert macs / 1e9 == pytest.approx(34.2, abs=0.1)
    size, macs = costs(SemanticFPN("prism_tiny", names), (128, 128))  # the cost is that of its pixels, all but exactly
    backbone = timm.create_model("prism_tiny", num_classes=0)
    assert isinstance(backbone, Prism)
    head = size - sum(p.numel() for p in backbone.parameters())
    assert head / 1e6 == pytest.approx(4.28, abs=0.02)
    assert size / 1e6 < 15.5
    assert 16 * macs / 1e9 < 35.6
