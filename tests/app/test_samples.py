"""Images to begin with are of the kind that the network knows."""

import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from prism.analysis.pairs import hide
from prism.app import samples
from prism.app.explanation import explain
from prism.app.intake import as_pixels, read_url
from prism.app.networks import open_players
from prism.data.scenes import SHAPES, Scenes
from prism.model.weights import shipped
from prism.occlusion.masks import mask_generator
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


def test_another_network_gets_images_of_the_folder_or_rendered_ones(tmp_path: Path):
    players = open_players(save_prism(tmp_path / "a.safetensors", {"classes": json.dumps(NAMES)}), None)
    for name in ("c1", "elsewhere"):
        (tmp_path / "images" / name).mkdir(parents=True)
        Image.effect_noise((60, 40), 50).save(tmp_path / "images" / name / "1.png")
    (tmp_path / "images" / "notes.txt").write_text("no image")
    found = samples.samples(players, tmp_path / "images")
    assert [(sample.truth, sample.note) for sample in found] == [("c1", "c1"), ("", "1.png")]
    assert {sample.truth for sample in samples.samples(players, None)} == {""}
    assert samples.examples(players, None) is None, "scenes are not what it knows"
    shown = samples.examples(players, tmp_path / "images")
    assert shown is not None
    assert shown.images.shape == (2, 3, SIZE, SIZE)
    assert len(shown.prototypes) == 4


def test_a_network_without_prototypes_has_no_examples_of_them(tmp_path: Path):
    network = "widths=(8,12,16,24) slots=(5,4,4,3) codes=16 max_steps=3 memory=continuous"
    assert samples.examples(open_players(save_prism(tmp_path / "a.safetensors", network=network), None), None) is None


def test_the_photographs_weights_recognise_what_is_rendered_and_not_the_portrait():
    file = shipped("prism_nano.imagenette")
    assert file is not None
    players = open_players(file, None)
    canopy, ball, whole, *portraits = samples.samples(players, None)
    assert [canopy.truth, ball.truth, whole.truth] == ["parachute", "golf ball", "golf ball"]
    for sample in (canopy, ball, whole, *portraits):
        image = as_pixels(read_url(sample.image), players.size)
        pair = hide(image, sample.setting, mask_generator(0, sample.seed), torch.tensor(players.ours.mean))
        for reading in explain(players, pair).readings[:2]:
            answer = reading.answers[0]
            assert (answer.choices[0].name if answer.sure else "") == sample.truth
