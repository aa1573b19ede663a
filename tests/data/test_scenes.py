import hashlib
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.transforms.functional import pil_to_tensor

from prism.data.scenes import SHAPES, SPLITS, Box, Scene, Scenes, render, render_scene

any_scene = st.builds(
    render,
    seed=st.integers(0, 2**32 - 1),
    index=st.integers(0, 2**32 - 1),
    size=st.sampled_from([32, 57, 64, 100]),
    clean=st.booleans(),
)


def hidden_of_centre(scene: Scene) -> float:
    return scene.objects[scene.centre].hidden


@settings(max_examples=40, deadline=None)
@given(any_scene)
def test_labels_agree_with_one_another(scene: Scene):
    seen = np.zeros(scene.image.shape[:2], int)
    for item in scene.objects:
        assert item.visible.any()
        assert not (item.visible & ~item.amodal).any()
        assert item.hidden == 1 - item.visible.sum() / item.amodal.sum()
        assert (scene.semantic[item.visible] == 1 + item.label).all()
        seen += item.visible
    assert seen.max() == 1, "a pixel shows one object"
    assert ((scene.semantic == 0) == (seen == 0)).all()
    assert (seen > 0).sum() == np.any([item.amodal for item in scene.objects], axis=0).sum()


@settings(max_examples=40, deadline=None)
@given(any_scene)
def test_what_lies_in_front_hides_what_lies_behind(scene: Scene):
    for back, front in combinations(scene.objects, 2):
        assert not (back.visible & front.amodal).any()


@settings(max_examples=40, deadline=None)
@given(any_scene)
def test_boxes_are_tight(scene: Scene):
    def fills(mask: np.ndarray, box: Box) -> bool:
        inside = mask[box.top : box.bottom, box.left : box.right]
        edges = (inside[0], inside[-1], inside[:, 0], inside[:, -1])
        return inside.sum() == mask.sum() and all(edge.any() for edge in edges)

    for item in scene.objects:
        assert fills(item.amodal, item.box)
        assert fills(item.visible, item.visible_box)


@settings(max_examples=40, deadline=None)
@given(any_scene)
def test_the_marked_object_is_whole_and_around_the_middle(scene: Scene):
    size = len(scene.image)
    left, top, right, bottom = scene.objects[scene.centre].box
    assert min(left, top) > 0
    assert max(right, bottom) < size
    assert left < 0.6 * size
    assert top < 0.6 * size
    assert right > 0.4 * size
    assert bottom > 0.4 * size


def test_the_marked_object_alone_has_a_white_rim():
    for index in range(20):
        scene = render(0, index, 128)
        for place, item in enumerate(scene.objects):
            whites = (scene.image[item.visible].min(-1) > 240).mean()
            assert (whites > 0.05) == (place == scene.centre)


def test_half_of_the_images_hide_their_object():
    for split in ("train", "val"):
        scenes = Scenes(split, 200)
        hidden = np.array([hidden_of_centre(scenes.scene(index)) for index in range(200)])
        assert (hidden[1::2] >= 0.3).all()
        assert (hidden[1::2] <= 0.6).all()
        assert (hidden[::2] <= 0.1).all()


def test_nothing_hides_the_object_of_a_clean_image():
    scenes = Scenes("clean", 200)
    assert all(hidden_of_centre(scenes.scene(index)) == 0 for index in range(200))


def test_classes_are_equally_frequent():
    """Among the hidden ones too: other occluders are drawn until an object is hidden, not other objects."""
    labels = [label for _, label in Scenes("train", 2000, size=32)]
    for sample in (labels, labels[1::2]):
        frequency = np.bincount(sample, minlength=len(SHAPES)) / len(sample)
        assert len(frequency) == len(SHAPES)
        assert (abs(frequency - 0.1) < 4 * (0.1 * 0.9 / len(sample)) ** 0.5).all()


def test_images_are_the_same_on_every_machine():
    """If this fails on purpose, results on scenes made before can no longer be compared with those made after."""
    images = b"".join(render(seed, index, 64).image.tobytes() for seed in (0, 7) for index in range(8))
    assert hashlib.sha256(images).hexdigest() == "e86c9cd34c7ae2e0b1320e75d2a124f06035582e851a4b75e1bd4ecbd36047d6"


def test_workers_and_order_change_nothing():
    scenes = Scenes("val", 12, transform=pil_to_tensor)
    alone = [scenes[index] for index in reversed(range(12))][::-1]
    images, labels = zip(*DataLoader(scenes, batch_size=3, num_workers=2), strict=True)
    assert torch.equal(torch.cat(images), torch.stack([image for image, _ in alone]))
    assert torch.cat(labels).tolist() == [label for _, label in alone]


def test_classification_sees_the_scene_of_the_other_tasks():
    scenes = Scenes("train", 6, seed=3)
    for index in range(6):
        (image, label), scene = scenes[index], scenes.scene(index)
        assert isinstance(image, Image.Image)
        assert (np.asarray(image) == scene.image).all()
        assert label == scene.label


def test_no_image_is_in_two_splits_or_seeds():
    images = [
        Scenes(split, 20, seed=seed)[index][0].tobytes() for split in SPLITS for seed in range(3) for index in range(20)
    ]
    assert len(set(images)) == len(images)


def test_an_iteration_ends():
    assert len(list(Scenes("train", 5))) == 5


def test_render_scene_gives_an_image():
    image = render_scene(96, seed=1)
    assert image.shape == (96, 96, 3)
    assert image.dtype == np.uint8
    assert (image != render_scene(96, seed=2)).any()


def test_a_linear_model_fails():
    def pixels(split: str, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        images, labels = zip(*Scenes(split, count, size=32, transform=pil_to_tensor), strict=True)
        flat = torch.stack(images).flatten(1) / 255
        return torch.cat([flat, torch.ones(count, 1)], 1), torch.tensor(labels)

    inputs, labels = pixels("train", 2000)
    kernel = inputs @ inputs.T + 10 * torch.eye(len(inputs))  # ridge regression in its dual form
    weights = inputs.T @ torch.linalg.solve(kernel, torch.nn.functional.one_hot(labels, len(SHAPES)).float())
    inputs, labels = pixels("clean", 500)
    accuracy = ((inputs @ weights).argmax(1) == labels).float().mean().item()
    assert accuracy < 0.4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "test"}, "'test'"),
        ({"length": 0}, "not 0"),
        ({"size": 16}, "not 16"),
        ({"seed": -1}, "not -1"),
        ({"seed": 2**32}, str(2**32)),
    ],
)
def test_bad_arguments_are_named(arguments: dict, message: str):
    with pytest.raises(ValueError, match=message):
        Scenes(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, 0, 64), "seed .* not -1"),
        ((0, -1, 64), "index .* not -1"),
        ((0, 2**32, 64), f"index .* not {2**32}"),
        ((0, 0, 31), "size .* not 31"),
    ],
)
def test_render_names_what_is_wrong(arguments: tuple[int, int, int], message: str):
    with pytest.raises(ValueError, match=message):
        render(*arguments)


@pytest.mark.parametrize("index", [-1, 5])
def test_an_index_outside_is_refused(index: int):
    with pytest.raises(IndexError, match=f"not {index}"):
        Scenes("train", 5)[index]
