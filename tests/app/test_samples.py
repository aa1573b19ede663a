"""Images to begin with are of the kind that the network knows."""

import json
from pathlib import Path

import numpy as np
from PIL import Image

from prism.app import samples
from prism.app.intake import read_url
from prism.app.networks import open_players
from prism.data.scenes import SHAPES, Scenes
from tests.app.small import SIZE, save_prism

NAMES = [f"c{number}" for number in range(len(SHAPES))]


def test_a_network_of_shapes_gets_scenes_as_it_was_evaluated_on(tmp_path: Path):
    found = samples.samples(open_players(save_prism(tmp_path / "a.safetensors"), None), None)
    evaluated = Scenes("val", samples.CHOICE, SIZE)
    assert len(found) == samples.CHOICE
    for index, sample in enumerate(found):
        image, label = evaluated[index]
        assert sample.truth == SHAPES[label]
        assert np.array_equal(np.asarray(read_url(sample.image)), np.asarray(image))


def test_another_network_gets_images_of_the_folder_or_a_portrait(tmp_path: Path):
    players = open_players(save_prism(tmp_path / "a.safetensors", {"classes": json.dumps(NAMES)}), None)
    for name in ("c1", "elsewhere"):
        (tmp_path / "images" / name).mkdir(parents=True)
        Image.effect_noise((60, 40), 50).save(tmp_path / "images" / name / "1.png")
    (tmp_path / "images" / "notes.txt").write_text("no image")
    found = samples.samples(players, tmp_path / "images")
    assert [(sample.truth, sample.note) for sample in found] == [("c1", "c1"), ("", "1.png")]
    assert [sample.truth for sample in samples.samples(players, None)] == [""]
    assert samples.examples(players, None) is None, "scenes are not what it knows"
    shown = samples.examples(players, tmp_path / "images")
    assert shown is not None
    assert shown.images.shape == (2, 3, SIZE, SIZE)
    assert len(shown.prototypes) == 4


def test_a_network_without_prototypes_has_no_examples_of_them(tmp_path: Path):
    network = "widths=(8,12,16,24) slots=(5,4,4,3) codes=16 max_steps=3 memory=continuous"
    assert samples.examples(open_players(save_prism(tmp_path / "a.safetensors", network=network), None), None) is None
