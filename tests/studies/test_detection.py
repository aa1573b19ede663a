"""Detection as a user meets it: drawings, numbers, the benchmark's files."""

import csv
import json
from pathlib import Path

import pytest
import torch
from PIL import Image

from prism.cli import main
from prism.data.scenes import SHAPES, render_scene
from prism.studies.detection import costs, drawing
from prism.tasks.detection import Design, Head, build_network, describe
from prism.training.checkpoint import export

HEADS: tuple[Head, ...] = ("retinanet", "maskrcnn")


def saved(folder: Path, head: Head) -> Path:
    """An untrained detector that is sure of many things."""
    design = Design("prism_nano", head, width=16, anchor=16, sizes=(64,), longest=96, proposals=20)
    network = build_network(design, len(SHAPES))
    if head == "retinanet":
        torch.nn.init.constant_(network.detector.head.classification_head.cls_logits.bias, 0.5)  # pyright: ignore
    else:
        torch.nn.init.normal_(network.detector.get_submodule("roi_heads.box_predictor.cls_score").bias, std=3.0)
    about = describe(network, design, SHAPES, range(1, len(SHAPES) + 1), "")
    export(network.state_dict(), folder / f"{head}.safetensors", about)
    return folder / f"{head}.safetensors"


@pytest.mark.parametrize("head", HEADS)
def test_detect_draws_and_says_what_it_found(head: Head, tmp_path: Path):
    Image.fromarray(render_scene(80, 3)).save(tmp_path / "photo.png")
    file, out = saved(tmp_path, head), tmp_path / "out"
    arguments = ["--checkpoint", str(file), "--threshold", "0.2", "--occlude", "0.5", "--out", str(out)]
    main(["detect", str(tmp_path / "photo.png"), *arguments])
    for name in ("photo", "photo-occluded"):
        with Image.open(out / f"{name}.png") as drawn:
            assert drawn.size == (80, 80)
        said = json.loads((out / f"{name}.json").read_text())
        assert said["objects"]
        for item in said["objects"]:
            assert item["class"] == SHAPES[item["category_id"] - 1]
            assert item["score"] >= 0.2
            assert ("segmentation" in item) == (head == "maskrcnn")


def test_nothing_found_is_drawn_as_the_picture():
    picture = torch.rand(3, 20, 30)
    found = dict(boxes=torch.zeros(0, 4), labels=torch.zeros(0, dtype=torch.int64), scores=torch.zeros(0))
    drawn = drawing(picture, found, ["thing"])
    assert drawn.size == (30, 20)
    assert drawn.tobytes() == (picture * 255).round().byte().permute(1, 2, 0).numpy().tobytes()


def test_eval_gives_the_twelve_numbers(tmp_path: Path):
    files = [str(saved(tmp_path, head)) for head in HEADS]
    main(["eval", *files, "--data", "scenes", "--limit", "3", "--workers", "0", "--out", str(tmp_path)])
    with (tmp_path / "detection.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["head"], row["subset"]) for row in rows] == [
        ("RetinaNet", "all"),
        ("RetinaNet", "occluded"),
        ("Mask R-CNN", "all"),
        ("Mask R-CNN", "occluded"),
    ]
    assert all(0 <= float(row["box AP"]) <= 1 for row in rows)
    assert float(rows[2]["mask recall75"]) >= 0


def test_occlusion_measures_and_writes_folders(tmp_path: Path):
    file, out = saved(tmp_path, "maskrcnn"), tmp_path / "out"
    options = ["--data", "scenes", "--limit", "2", "--workers", "0", "--shares", "0.3", "--out", str(out), "--write"]
    main(["occlusion", str(file), *options])
    assert (out / "report.html").exists()
    assert len(list((out / "M30-mean-0" / "images").iterdir())) == 2
    assert json.loads((out / "M30-mean-0" / "instances.json").read_text())["annotations"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("detect", "{folder}/no.png", "--checkpoint", "{folder}/maskrcnn.safetensors"), "there is no picture"),
        (("detect", "{folder}/a.png", "--checkpoint", "{folder}/no.safetensors"), "there is no checkpoint"),
        (
            ("detect", "{folder}/a.png", "{folder}/b/a.png", "--checkpoint", "{folder}/maskrcnn.safetensors"),
            "two pictures are called a",
        ),
        (("occlusion", "--task", "detection", "--data", "scenes"), "name at least one model, or --write the pictures"),
        (("occlusion", "{folder}/maskrcnn.safetensors", "--data", "scenes", "--full"), "--full does not apply to"),
        (("occlusion", "{folder}/maskrcnn.safetensors", "--data", "scenes", "--scales", "1,2"), "--scales does not"),
        (("eval", "{folder}/maskrcnn.safetensors", "--data", "{folder}/none"), "there is no folder"),
    ],
)
def test_bad_input_is_one_sentence(arguments: tuple[str, ...], sentence: str, tmp_path: Path):
    saved(tmp_path, "maskrcnn")
    Image.new("RGB", (40, 40)).save(tmp_path / "a.png")
    with pytest.raises(SystemExit) as stopped:
        main([argument.format(folder=tmp_path) for argument in arguments])
    assert isinstance(stopped.value.code, str)
    assert sentence in stopped.value.code
    assert "\n" not in stopped.value.code


def test_costs_grow_with_the_picture():
    design = Design("prism_nano", "maskrcnn", width=16, sizes=(64,), longest=96, proposals=20)
    small, large = (costs(design, 3, size) for size in ((64, 64), (64, 96)))
    assert small["M parameters"] == large["M parameters"]
    assert 0 < small["GMAC at 64 x 64"] < large["GMAC at 64 x 96"]
