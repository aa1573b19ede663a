"""One image, one way of showing it."""

import numpy as np
import torch
from PIL import Image

from prism.data.preprocessing import Preprocessing
from prism.data.scenes import SHAPES
from prism.model.metadata import Metadata


def noise(height: int, width: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8))


def test_it_survives_its_metadata():
    own = Preprocessing(96, 1.0, "bilinear", (0.1, 0.2, 0.3), (1.0, 2.0, 3.0))
    again = Preprocessing.from_metadata(Metadata(preprocessing=own.to_metadata()))
    assert again.to_metadata() == own.to_metadata()
    assert torch.equal(again(noise(50, 70)), own(noise(50, 70)))


def test_a_crop_of_one_shows_a_scene_as_it_is():
    scene = noise(64, 64)
    shown = Preprocessing(64, crop=1.0).unit(scene)
    assert torch.equal((shown * 255).byte().permute(1, 2, 0), torch.from_numpy(np.array(scene)))
    assert not torch.equal(Preprocessing(64).unit(scene), shown)


def test_without_a_crop_images_keep_their_size():
    assert Preprocessing(32, crop=None).unit(noise(20, 50)).shape == (3, 20, 50)
    assert Preprocessing(32).unit(noise(20, 50)).shape == (3, 32, 32)


def test_normalisation_by_hand():
    own = Preprocessing(8, None, mean=(0.0, 0.5, 1.0), std=(1.0, 0.5, 0.25))
    [pixel] = own.normalised(torch.ones(1, 3, 1, 1)).flatten(1)
    assert pixel.tolist() == [1, 1, 0]


def test_files_from_before_saw_scenes_whole_and_photographs_cropped():
    """Whether a crop is taken was decided by the name of the data; `predict` cropped models of scenes too."""
    for classes, crop in ((list(SHAPES), 1.0), (["cat", "dog"], 0.875)):
        assert Preprocessing.from_metadata(Metadata(classes=classes, version=0)).crop == crop
    assert Preprocessing.from_metadata(Metadata(task="segmentation", version=0)).crop is None
