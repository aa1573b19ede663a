"""Detection as a user meets it: drawings, numbers, the benchmark's files."""

import csv
import json
from pathlib import Path

import pytest
import torch
from PIL import Image

from prism.cli import main
from prism.data.annotations import decode
from prism.data.objects import SceneImages
from prism.data.scenes import SHAPES, render_scene
from prism.model.creation import find_checkpoint
from prism.tasks.detection.data import open_for
from prism.tasks.detection.loading import describe
from prism.tasks.detection.network import Design, build_network
from prism.tasks.detection.predict import drawing
from prism.tasks.detection.recipes import Head
from prism.training.checkpoint import export

HEADS: tuple[Head, ...] = ("retinanet", "maskrcnn")
MASKRCNN = ("occlusion", "{folder}/maskrcnn.safetensors", "--data", "scenes")
DETECT = ("detect", "--checkpoint", "{folder}/maskrcnn.safetensors")
EVAL = ("eval", "{folder}/maskrcnn.safetensors", "--data")


def saved(folder: Path, head: Head, amodal: bool = True) -> Path:
    """An untrained detector that is sure of many things."""
    design = Design("prism_nano", head, width=16, anchor=16, sizes=(64,), longest=96, proposals=20)
    network = build_network(design, len(SHAPES))
    if head == "retinanet":
        torch.nn.init.constant_(network.detector.head.classification_head.cls_logits.bias, 0.5)  # pyright: ignore
    else:
        torch.nn.init.normal_(network.detector.get_submodule("roi_heads.box_predictor.cls_score").bias, std=3.0)
    about = describe(network, design, SHAPES, range(1, len(SHAPES) + 1), {}, amodal)
    file = folder / f"{head}{'' if amodal else '-seen'}.safetensors"
    export(network.state_dict(), file, about.header())
    return file


@pytest.mark.parametrize("head", HEADS)
def test_detect_draws_and_says_what_it_found(head: Head, tmp_path: Path):
    Image.fromarray(render_scene(80, 3)).save(tmp_path / "photo.png")
    file, out = saved(tmp_path, head), tmp_path / "out"
    arguments = ["--checkpoint", str(file), "--threshold", "0.2", "--occlude", "--share", "0.5", "--out", str(out)]
    main(["detect", str(tmp_path / "photo.png"), *arguments])
    for name in ("photo-detected", "photo-detected-occluded"):
        with Image.open(out / f"{name}.png") as drawn:
            assert drawn.size == (80, 80)
        said = json.loads((out / f"{name}.json").read_text())
        assert said["objects"]
        for item in said["objects"]:
            assert item["class"] == SHAPES[item["category_id"] - 1]
            assert item["score"] >= 0.2
            assert ("segmentation" in item) == (head == "maskrcnn")


def test_a_photograph_is_never_overwritten_and_hidden_alike_beside_others(tmp_path: Path):
    file = saved(tmp_path, "maskrcnn")
    photos = [tmp_path / f"{name}.png" for name in ("a", "b")]
    for number, photo in enumerate(photos):
        Image.fromarray(render_scene(64, number)).save(photo)
    before = [photo.read_bytes() for photo in photos]
    arguments = ["--checkpoint", str(file), "--threshold", "0.2", "--occlude"]
    main(["detect", *map(str, photos), *arguments, "--out", str(tmp_path)])
    assert [photo.read_bytes() for photo in photos] == before
    main(["detect", str(photos[1]), *arguments, "--out", str(tmp_path / "alone")])
    beside, alone = (folder / "b-detected-occluded.png" for folder in (tmp_path, tmp_path / "alone"))
    assert beside.read_bytes() == alone.read_bytes()


def test_where_nothing_is_found_nothing_is_hidden(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    Image.fromarray(render_scene(64, 1)).save(tmp_path / "photo.png")
    arguments = ["--checkpoint", str(saved(tmp_path, "retinanet")), "--threshold", "1", "--occlude"]
    main(["detect", str(tmp_path / "photo.png"), *arguments, "--out", str(tmp_path / "out")])
    assert "nothing was found that could be hidden" in " ".join(capsys.readouterr().out.split())
    assert [path.name for path in (tmp_path / "out").glob("*.png")] == ["photo-detected.png"]


def test_nothing_found_is_drawn_as_the_image():
    image = torch.rand(3, 20, 30)
    found = dict(boxes=torch.zeros(0, 4), labels=torch.zeros(0, dtype=torch.int64), scores=torch.zeros(0))
    drawn = drawing(image, found, ["thing"])
    assert drawn.size == (30, 20)
    assert drawn.tobytes() == (image * 255).round().byte().permute(1, 2, 0).numpy().tobytes()


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


def test_eval_of_a_written_folder_tells_masked_from_untouched(tmp_path: Path):
    folder = tmp_path / "M30-mean-0"
    main(["occlusion", "--task", "detection", "--data", "scenes", "--limit", "2", "--shares", "0.3", "--write",
          "--workers", "0", "--out", str(tmp_path)])  # fmt: skip
    main(["eval", str(saved(tmp_path, "retinanet")), "--data", str(folder), "--workers", "0", "--out", str(tmp_path)])
    with (tmp_path / "detection.csv").open() as file:
        counts = {row["subset"]: int(row["instances"]) for row in csv.DictReader(file)}
    assert counts["masked"] == 4
    assert counts["brushed"] + counts["untouched"] == counts["all"] - 4


def test_broken_annotations_are_named_where_they_are_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "M30-mean-0"
    write = ["occlusion", "--task", "detection", "--limit", "2", "--shares", "0.3", "--write", "--workers", "0"]
    main([*write, "--data", "scenes", "--out", str(tmp_path)])
    truth = json.loads((folder / "instances.json").read_text())
    truth["annotations"][0]["bbox"] = [500, 500, 3, 3]
    (folder / "instances.json").write_text(json.dumps(truth))
    capsys.readouterr()
    for command in (write, ["eval", str(saved(tmp_path, "retinanet")), "--workers", "0"]):
        main([*command, "--data", str(folder), "--out", str(tmp_path / "again")])
        assert capsys.readouterr().err.count("instances.json: 1 broken entry is skipped: annotation 1: its box") == 1


def test_scenes_are_judged_by_the_truth_that_was_trained_or_asked_for(tmp_path: Path):
    files = saved(tmp_path, "retinanet"), saved(tmp_path, "retinanet", amodal=False)
    whole, seen = (find_checkpoint("", file) for file in files)
    opened = [open_for([whole], "scenes", "val"), open_for([seen], "scenes", "val"), open_for([], "scenes", "val", 1)]
    opened.append(open_for([whole, seen], "scenes", "val", visible=True))
    assert [images.amodal for images in opened if isinstance(images, SceneImages)] == [True, False, True, False]
    with pytest.raises(ValueError, match="evaluate them separately"):
        open_for([whole, seen], "scenes", "val")


def test_the_visible_truth_is_hidden_by_nothing(tmp_path: Path):
    main(["occlusion", "--task", "detection", "--data", "scenes", "--limit", "3", "--shares", "0.3", "--write",
          "--visible", "--fills", "black", "--workers", "0", "--out", str(tmp_path)])  # fmt: skip
    truth = json.loads((tmp_path / "M30-black-0" / "instances.json").read_text())
    scenes = SceneImages("val", 3)
    for image in truth["images"]:
        own = [a for a in truth["annotations"] if a["image_id"] == image["id"]]
        masks = decode([a["segmentation"] for a in own], (96, 96)).bool()
        assert (masks.sum(0) <= 1).all(), "no pixel shows two objects"
        objects = scenes.scene(image["id"]).objects
        for annotation, mask in zip(own, masks, strict=True):
            assert not (mask.numpy() & ~objects[annotation["id"] % 100 - 1].visible).any()


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
        (("detect", "{folder}/no.png", "--checkpoint", "{folder}/maskrcnn.safetensors"), "there is no image"),
        (("detect", "{folder}/a.png", "--checkpoint", "{folder}/no.safetensors"), "there is no checkpoint"),
        (
            ("detect", "{folder}/a.png", "{folder}/b/a.png", "--checkpoint", "{folder}/maskrcnn.safetensors"),
            "two images are called a",
        ),
        ((*DETECT, "{folder}/a.png", "--occlude", "--share", "5"), "share must be a number from 0 to 1, got 5"),
        ((*DETECT, "{folder}/a.png", "--threshold", "-1"), "threshold must be a number from 0 to 1, got -1"),
        ((*DETECT, "{folder}/thin.png", "--out", "{folder}"), "3000 x 1 pixels are thinner than 1 to 1000"),
        (DETECT, "name at least one image"),
        (("eval", "--data", "scenes"), "name at least one model"),
        (("occlusion", *2 * ("{folder}/maskrcnn.safetensors",), "--data", "scenes", "--limit", "2"), "is named twice"),
        ((*MASKRCNN, "--seeds", "0.5"), "whole numbers from"),
        ((*MASKRCNN, "--seeds", "inf"), "whole numbers from"),
        (("occlusion", "--task", "detection", "--data", "scenes"), "name at least one model"),
        ((*MASKRCNN, "--full", "--settings", "M30"), "exclude"),
        (
            ("occlusion", "{folder}/maskrcnn.safetensors", "--data", "scenes", "--settings", "PatchMask0.3"),
            "such as M30",
        ),
        (
            ("occlusion", "{folder}/maskrcnn.safetensors", "--data", "scenes", "--scales", "1,2"),
            "--scales is only for segmentation",
        ),
        ((*EVAL, "{folder}/none"), "there is no folder"),
        ((*EVAL, "scenes", "--fixed-steps", "2"), "--fixed-steps is only for classification"),
        ((*EVAL, "scenes", "--memory", "off"), "--memory is only for classification"),
        ((*EVAL, "scenes", "--size", "64"), "--size is only for classification"),
        ((*EVAL, "scenes", "--pretrained"), "--pretrained is only for classification"),
        ((*EVAL, "scenes", "--device", "abacus"), "the device 'abacus' cannot be used"),
    ],
)
def test_bad_input_is_one_sentence(arguments: tuple[str, ...], sentence: str, tmp_path: Path):
    saved(tmp_path, "maskrcnn")
    Image.new("RGB", (40, 40)).save(tmp_path / "a.png")
    Image.new("RGB", (3000, 1)).save(tmp_path / "thin.png")
    with pytest.raises(SystemExit) as stopped:
        main([argument.format(folder=tmp_path) for argument in arguments])
    assert isinstance(stopped.value.code, str)
    assert sentence in stopped.value.code
    assert "\n" not in stopped.value.code
