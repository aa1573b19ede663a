import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from pycocotools import mask as oracle

from prism.data import coco
from prism.data.annotations import decode
from prism.data.coco import CocoImages
from prism.data.images import Unreadable
from prism.data.objects import SceneImages, open_annotated
from prism.data.stream import ShuffledStream, listed
from prism.metrics.average_precision import ground_truth
from prism.tasks.detection.data import training_transform

WIDTH, HEIGHT = 20, 12
SQUARE = [[2, 3, 8, 3, 8, 9, 2, 9]]  # 6 x 6
COUNTS = [2 * HEIGHT + 3, 6, HEIGHT * (WIDTH - 2) - 9]  # a column of six pixels


def annotation(id: int, **others: Any) -> dict[str, Any]:
    found = dict(id=id, image_id=5, category_id=7, bbox=[2, 3, 6, 6], area=36, iscrowd=0, segmentation=SQUARE)
    return found | others


def written(folder: Path, annotations: list[Any], **others: Any) -> Path:
    """A set of two images, the second without objects; category ids have a gap."""
    (folder / "images").mkdir(exist_ok=True)
    for name in ("a.png", "b.png"):
        Image.fromarray(np.random.default_rng(0).integers(0, 255, (HEIGHT, WIDTH, 3), np.uint8)).save(
            folder / "images" / name
        )
    found = dict(
        images=[
            dict(id=5, file_name="a.png", width=WIDTH, height=HEIGHT),
            dict(id=9, file_name="b.png", width=WIDTH, height=HEIGHT),
        ],
        annotations=annotations,
        categories=[dict(id=90, name="late"), dict(id=7, name="early")],
    )
    file = folder / "instances_train.json"
    file.write_text(json.dumps(found | others))
    return file


def opened(folder: Path, annotations: list[Any], masks: bool = True, **others: Any) -> CocoImages:
    return CocoImages(written(folder, annotations, **others), folder / "images", masks)


def test_objects_become_targets(tmp_path: Path):
    images = opened(
        tmp_path,
        [
            annotation(4, category_id=90, segmentation=dict(size=[HEIGHT, WIDTH], counts=COUNTS), occluded=1),
            annotation(2, bbox=[15.5, 3, 10, 6], occluded=None),
            annotation(3, iscrowd=1, occluded=0),
        ],
    )
    assert (images.classes, images.categories, images.broken) == (["early", "late"], [7, 90], [])
    image, target = images[0]
    assert image.size == (WIDTH, HEIGHT)
    assert target["image_id"] == 5
    assert target["ids"].tolist() == [2, 3, 4], "in the order of ids, whatever that of the file"
    assert target["labels"].tolist() == [1, 1, 2], "without the gap"
    assert target["boxes"].tolist() == [[15.5, 3, WIDTH, 9], [2, 3, 8, 9], [2, 3, 8, 9]], "cut at the edge"
    assert target["iscrowd"].tolist() == [False, True, False]
    assert target["occluded"].tolist() == [-1, 0, 1], "-1 where nobody said"
    assert target["masks"].shape == (3, HEIGHT, WIDTH)
    assert target["masks"].sum((1, 2)).tolist() == [36, 36, 6]
    assert target["masks"][2, 3:9, 2].all()


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools, by numpy 2
def test_masks_of_every_kind_are_those_of_pycocotools(tmp_path: Path):
    outline = [[1.5, 1.2, 17.3, 2.9, 9.1, 10.7], [12, 6, 18, 6, 18, 10]]
    expected = oracle.merge(oracle.frPyObjects(outline, HEIGHT, WIDTH))
    compressed = dict(size=[HEIGHT, WIDTH], counts=expected["counts"].decode())
    found = opened(tmp_path, [annotation(1, segmentation=outline), annotation(2, segmentation=compressed)])
    for mask in found[0][1]["masks"]:
        assert (mask.numpy() == oracle.decode(expected)).all()


def test_an_image_without_objects(tmp_path: Path):
    image, target = opened(tmp_path, [annotation(1)])[1]
    assert target["boxes"].shape == (0, 4)
    assert target["masks"].shape == (0, HEIGHT, WIDTH)
    assert training_transform()(image, target)[1]["labels"].shape == (0,)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (annotation(3, segmentation=dict(size=[HEIGHT, WIDTH], counts=[HEIGHT * WIDTH])), "its mask is empty"),
        (annotation(3, segmentation=[[1, 1, 2, 2]]), "its mask is empty"),
        (annotation(3, segmentation=[]), "it has no mask"),
        (annotation(3, segmentation=dict(size=[4, 4], counts=[4, 4, 8])), "its mask is 4 x 4, not 20 x 12"),
        (annotation(3, segmentation=dict(size=[HEIGHT, WIDTH], counts="zzz")), "its mask cannot be read"),
        (annotation(3, segmentation="square"), "its mask"),
        (annotation(3, bbox=[30, 3, 6, 6]), "lies outside the image of 20 x 12"),
        (annotation(3, bbox=[2, 3, 0, 6]), "has no area"),
        (annotation(3, bbox=[2, 3]), "is not four numbers"),
        (annotation(3, bbox=[2, 3, True, 6]), "is not four numbers"),
        (annotation(3, bbox=[8, 3, 1e-9, 6]), "has no area within the image"),  # in float32
        (annotation(3, bbox=[WIDTH - 1e-9, 3, 6, 6]), "has no area within the image"),
        (annotation(3, bbox=[2, 3, 10**400, 6]), "is not four numbers"),
        (annotation(3, area=10**400), "is not a number of at least 0"),
        (annotation(3, segmentation=[[1, 1, 2, 2, 1e30, 5]]), "its mask has an outline beyond 200 pixels"),
        (annotation(3, category_id=10**400), "is not listed"),
        (annotation(3, area="large"), "its area 'large' is not a number of at least 0"),
        (annotation(3, area=float("nan")), "its area nan is not"),
        (annotation(3, area=-1), "its area -1 is not"),
        (annotation(3, category_id=8), "its category 8 is not listed"),
        (annotation(3, image_id=6), "its image 6 is not listed"),
        (annotation(1), "its id is taken"),
        ({"bbox": [1, 2, 3, 4]}, "it has no id"),
    ],
)
def test_a_broken_annotation_is_named_counted_and_skipped(bad: dict[str, Any], reason: str, tmp_path: Path):
    images = opened(tmp_path, [annotation(1), bad, annotation(2)])
    assert len(images.broken) == 1
    assert reason in images.broken[0]
    assert images.summary().startswith("instances_train.json: 1 broken entry is skipped: annotation")
    assert images[0][1]["ids"].tolist() == [1, 2]


def test_what_nobody_asked_for_is_left_behind(tmp_path: Path):
    """COCO's library reads further keys, JSON has no NaN, and a writer may give up where a reader did not."""
    deep: Any = []
    for _ in range(400):
        deep = [deep]
    more = dict(ignore="banana", score=float("nan"), lvis_mark=deep, occluded=1, masked="yes", hidden=float("nan"))
    images = [dict(id=5, file_name="a.png", width=WIDTH, height=HEIGHT, licence=deep)]
    found = opened(tmp_path, [annotation(1, **more), annotation(2, bbox=deep)], images=images,
                      categories=[dict(id=7, name=deep)])  # fmt: skip
    assert {*found.annotations(0)[0]} == {*annotation(1), "occluded"}
    assert {*found.image(0)} == {"id", "file_name", "width", "height"}
    assert found.classes == ["7"]
    assert len(found.summary()) < 200


def test_boxes_alone_do_for_boxes(tmp_path: Path):
    images = opened(tmp_path, [annotation(1, segmentation=[])], masks=False)
    assert not images.broken
    assert "masks" not in images[0][1]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("not json", "is not JSON"),
        ("[" * 100_000, "is not JSON: it is nested too deeply"),
        (
            '{"images": [{"id": 1, "width": %s, "height": 2, "file_name": "a"}], ' % ("9" * 400)
            + '"annotations": [], "categories": []}',
            "an image has no width",
        ),
        ("[1, 2]", "is not a COCO JSON: it has no list of images"),
        ('{"images": [], "annotations": []}', "it has no list of categories"),
        ('{"images": [], "annotations": [], "categories": []}', "it lists no category"),
        ('{"images": [{"id": 1}], "annotations": [], "categories": []}', "an image has no width and height"),
        (
            '{"images": [], "annotations": [], "categories": [{"id": 1, "name": "cat"}, {"id": 1, "name": "dog"}]}',
            "is not a COCO JSON: two categories have the id 1",
        ),
    ],
)
def test_what_is_not_coco_is_refused_in_a_sentence(text: str, sentence: str, tmp_path: Path):
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(ValueError, match=sentence) as raised:
        CocoImages(tmp_path / "other.json", tmp_path)
    assert "other.json" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_image_without_a_file_is_left_out_with_its_annotations(tmp_path: Path):
    file = written(tmp_path, [annotation(1), annotation(2, image_id=9), annotation(3)])
    (tmp_path / "images" / "a.png").unlink()
    images = CocoImages(file, tmp_path / "images", limit=2)
    assert images.broken == [
        "image 5: there is no file a.png",
        "annotation 1: its image 5 has no file",
        "annotation 3: its image 5 has no file",
    ]
    assert images.summary().startswith("instances_train.json: 3 broken entries are skipped: image 5: there is no")
    assert [target["image_id"] for _, target in images] == [9]
    truth = ground_truth(images)
    assert [image["id"] for image in truth["images"]] == [9]
    assert [found["id"] for found in truth["annotations"]] == [2]


def test_files_are_found_wherever_their_names_lead(tmp_path: Path):
    """Into a folder, out of one, by a link; a folder, a link to nothing and what cannot be a name are no files."""
    there = ["a.png", "./b.png", "in/c.png", "../out/d.png", str(tmp_path / "out" / "d.png"), "link.png"]
    absent = ["z.png", "in/a.png", "no/a.png", "a.png/a.png", "in", "", "dangling.png", "\0.png", "\0/a.png"]
    images = [dict(id=n, file_name=name, width=WIDTH, height=HEIGHT) for n, name in enumerate([*there, *absent])]
    file = written(tmp_path, [], images=images)
    for name in ("images/in/c.png", "out/d.png"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes((tmp_path / "images" / "a.png").read_bytes())
    (tmp_path / "images" / "link.png").symlink_to(tmp_path / "out" / "d.png")
    (tmp_path / "images" / "dangling.png").symlink_to(tmp_path / "nothing.png")
    images = CocoImages(file, tmp_path / "images")
    assert [target["image_id"] for _, target in images] == [*range(len(there))]
    assert len(images.broken) == len(absent)


def test_a_file_that_is_not_listed_may_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As where case is ignored, or a folder may be read from but not listed."""
    monkeypatch.setattr(coco, "_files", lambda _: set())
    assert len(opened(tmp_path, [annotation(1)])) == 2


def test_without_any_image_the_file_is_refused(tmp_path: Path):
    file = written(tmp_path, [annotation(1)])
    (tmp_path / "other").mkdir()
    with pytest.raises(ValueError, match=r"^none of the images in .*instances_train\.json is in .*other$"):
        CocoImages(file, tmp_path / "other")


def test_an_image_that_goes_missing_is_named_and_training_takes_the_next(tmp_path: Path):
    images = opened(tmp_path, [annotation(1)])
    (tmp_path / "images" / "a.png").unlink()
    with pytest.raises(Unreadable, match=r"a\.png"):
        images[0]
    stream = ShuffledStream(images, training_transform(), batch=2, collate=listed)
    batch = next(stream.epoch(0))
    assert len(batch.images) == 2
    assert len(batch.skipped) == 1
    assert "a.png" in batch.skipped[0]


def test_an_image_of_another_size_is_unreadable(tmp_path: Path):
    images = opened(tmp_path, [annotation(1)])
    Image.new("RGB", (WIDTH + 1, HEIGHT)).save(tmp_path / "images" / "a.png")
    with pytest.raises(Unreadable, match=r"21 x 12, not as instances_train\.json says"):
        images[0]


def test_a_mirrored_image_is_mirrored_with_all_it_has(tmp_path: Path):
    image, target = opened(tmp_path, [annotation(1), annotation(2, iscrowd=1)])[0]
    seen = {}
    for seed in range(20):
        torch.manual_seed(seed)
        pixels, found = training_transform()(image, target)
        assert len(found["boxes"]) == 1, "the crowd is left out"
        left, top, right, bottom = found["boxes"][0].int().tolist()
        assert found["masks"][0].sum() == found["masks"][0, top:bottom, left:right].sum() == 36
        seen[left] = pixels
    assert [*sorted(seen)] == [2, WIDTH - 8]
    assert torch.equal(seen[2].flip(-1), seen[WIDTH - 8])


def test_groups_tell_tall_from_wide(tmp_path: Path):
    sizes = [(100, 100), (400, 300), (300, 400), (160, 90), (90, 160), (104, 100)]
    images = [dict(id=n, file_name="a.png", width=w, height=h) for n, (w, h) in enumerate(sizes)]
    assert opened(tmp_path, [], images=images).groups() == [0, 1, -1, 2, -2, 0]


def test_coco_and_voc_layouts_are_found(tmp_path: Path):
    written(tmp_path, [annotation(1)])
    images = open_annotated(str(tmp_path), "train")
    assert isinstance(images, CocoImages)
    assert images.folder.name == "images"
    (tmp_path / "coco" / "annotations").mkdir(parents=True)
    (tmp_path / "images").rename(tmp_path / "coco" / "val2017")
    (tmp_path / "instances_train.json").rename(tmp_path / "coco" / "annotations" / "instances_val2017.json")
    assert open_annotated(str(tmp_path / "coco"), "val").name(0).endswith("val2017/a.png")
    with pytest.raises(FileNotFoundError, match="has no split 'test'"):
        open_annotated(str(tmp_path / "coco"), "test")


def test_scenes_in_the_detection_view():
    whole, seen = (SceneImages("val", 6, 64, amodal=amodal) for amodal in (True, False))
    for index in range(len(whole)):
        scene = whole.scene(index)
        (_, amodal), (_, visible) = whole[index], seen[index]
        for place, item in enumerate(scene.objects):
            assert (amodal["masks"][place].bool().numpy() == item.amodal).all()
            assert (visible["masks"][place].bool().numpy() == item.visible).all()
            assert amodal["boxes"][place].tolist() == [*item.box]
            assert visible["boxes"][place].tolist() == [*item.visible_box]
            assert int(amodal["occluded"][place]) == (item.hidden > 0.3)
            assert bool(amodal["iscrowd"][place]) == (item.hidden > 0.75)
            assert int(amodal["labels"][place]) == item.label + 1
    ids = [a["id"] for a in ground_truth(whole)["annotations"]]
    assert len(ids) == len({*ids})
    assert min(ids) > 0, "COCO takes 0 for 'not matched'"


def test_a_fingerprint_is_of_all_annotations(tmp_path: Path):
    objects = [annotation(1), annotation(2)]
    images = opened(tmp_path, objects)
    first = images.fingerprint()
    assert images.fingerprint() == first
    for change in (dict(bbox=[2, 3, 6, 5]), dict(area=35), dict(category_id=90), dict(id=3), dict(occluded=1)):
        assert opened(tmp_path, [objects[0], objects[1] | change]).fingerprint() != first
    os.utime(images.name(0), ns=(1, 1))
    assert images.fingerprint() != first, "another file of the same name"
    made = (("val", 3), ("val", 4), ("clean", 3), ("val", 3, 64), ("val", 3, 96, 1), ("val", 3, 96, 0, False))
    scenes = [SceneImages(*arguments) for arguments in made]
    assert len({images.fingerprint() for images in scenes}) == len(scenes)


def test_no_images_cannot_be_asked_for(tmp_path: Path):
    written(tmp_path, [])
    for data in ("scenes", str(tmp_path)):
        with pytest.raises(ValueError, match="limit must be at least 1, got 0"):
            open_annotated(data, "train", limit=0)
        with pytest.raises(ValueError, match="length must be at least 1, got 0"):
            open_annotated(data, "train", length=0)


def test_limit_is_spread_over_the_set(tmp_path: Path):
    images = [dict(id=n, file_name="a.png", width=WIDTH, height=HEIGHT) for n in range(10)]
    file = written(tmp_path, [], images=images)
    for limit, expected in ((3, [0, 3, 6]), (20, [*range(10)])):
        images = CocoImages(file, tmp_path / "images", limit=limit)
        assert [images.image(index)["id"] for index in range(len(images))] == expected


def test_decoding_nothing_gives_nothing():
    assert decode([], (3, 4)).shape == (0, 3, 4)
