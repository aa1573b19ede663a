import csv
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor, nn

from prism.data.coco import CocoImages
from prism.data.images import unit_pixels
from prism.data.objects import SceneImages
from prism.metrics.average_precision import ground_truth
from prism.occlusion.fills import Fill
from prism.occlusion.masks import mask_generator
from prism.occlusion.settings import Job, Setting
from prism.reporting import tables
from prism.reporting.pages import publish
from prism.tasks.detection.covering import CoveredImages, cover, write_occluded
from prism.tasks.detection.evaluate import DetectionBenchmark, DetectorSubject, measure, settings_of
from prism.tasks.detection.report import PUBLISHED, paper_table, report

SHARES = (0.1, 0.3, 0.5, 0.7)


@st.composite
def objects(draw: st.DrawFn) -> Tensor:
    """Masks (n, H, W) of bool: blobs, lines and scattered pixels, that may overlap and may be empty."""
    height, width = draw(st.integers(4, 40)), draw(st.integers(4, 40))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    density = draw(st.sampled_from([0.02, 0.3, 0.9, 1.0]))
    masks = torch.rand(draw(st.integers(0, 4)), height, width, generator=generator) < density
    if len(masks):
        masks[0, height // 2 :] = False
    return masks


@settings(max_examples=150, deadline=None)
@given(objects(), st.sampled_from(SHARES), st.integers(0, 2**40), st.integers(0, 9))
def test_a_block_hides_exactly_its_share_of_its_object(masks: Tensor, share: float, image_id: int, seed: int):
    eligible = torch.ones(len(masks), dtype=torch.bool)
    found = cover(masks, eligible, share, mask_generator(image_id, seed))
    areas = masks.sum((1, 2)).tolist()
    assert len(found.chosen) == len({*found.chosen}) == min(2, sum(area >= 10 for area in areas))
    for place, own, by_other in zip(found.chosen, found.own, found.by_other, strict=True):
        assert own == round(share * areas[place])
        assert own + by_other == int((masks[place] & found.hidden).sum()), "the other block's part is told apart"
    if not found.chosen:
        assert not found.hidden.any()


@settings(max_examples=50, deadline=None)
@given(objects(), st.integers(0, 2**40), st.integers(0, 9))
def test_the_share_does_not_choose_the_objects(masks: Tensor, image_id: int, seed: int):
    eligible = torch.ones(len(masks), dtype=torch.bool)
    chosen = {tuple(cover(masks, eligible, share, mask_generator(image_id, seed)).chosen) for share in (0, *SHARES)}
    assert len(chosen) == 1


def test_crowds_are_not_hidden():
    masks = torch.ones(3, 8, 8, dtype=torch.bool)
    for seed in range(10):
        assert cover(masks, torch.tensor([False, True, False]), 0.3, mask_generator(0, seed)).chosen == [1]


def test_the_same_pixels_for_the_same_id_and_seed():
    """Whatever else the set holds: the same image at another place is hidden alike, another seed is not."""
    longer, shorter = (SceneImages("val", length, 64) for length in (8, 3))
    one, two = CoveredImages(longer, 0.5)[2], CoveredImages(shorter, 0.5)[2]
    assert torch.equal(one.image, two.image)
    assert torch.equal(one.cover.hidden, two.cover.hidden)
    assert not torch.equal(one.cover.hidden, CoveredImages(longer, 0.5, seed=1)[2].cover.hidden)


def test_only_hidden_pixels_change():
    images = SceneImages("val", 2, 64)
    clean, covered = CoveredImages(images, 0)[1], CoveredImages(images, 0.3, "black")[1]
    assert torch.equal(clean.image, unit_pixels(images[1][0]))
    hidden = covered.cover.hidden
    assert torch.equal(covered.image[:, ~hidden], clean.image[:, ~hidden])
    assert (covered.image[:, hidden] == 0).all()
    assert clean.masked == covered.masked
    assert not clean.cover.hidden.any()


def test_the_truth_is_amodal_or_what_is_left():
    images = SceneImages("val", 4, 64)
    before = ground_truth(images)["annotations"]
    amodal = [a for one in map(CoveredImages(images, 0.5).__getitem__, range(4)) for a in one.annotations]
    assert amodal == before
    view = CoveredImages(images, 0.5, visible=True)
    for index in range(4):
        one, (_, target) = view[index], images[index]
        left = {a["id"]: a for a in one.annotations}
        for id, mask in zip(target["ids"].tolist(), target["masks"].bool(), strict=True):
            rest = int((mask & ~one.cover.hidden).sum())
            assert left[id]["area"] == rest if rest else id not in left


def test_a_written_folder_holds_what_detectors_see(tmp_path: Path):
    images = SceneImages("val", 4, 64)
    view = CoveredImages(images, 0.3, "noise", seed=3)
    summary = write_occluded(view, tmp_path)
    read = CocoImages(tmp_path / "instances.json", tmp_path / "images")
    assert not read.broken
    assert (read.classes, read.categories) == (images.classes, images.categories)
    for index in range(len(view)):
        assert torch.equal(unit_pixels(read[index][0]), view[index].image), "to the last bit"
        found = {a["id"]: a for a in read.annotations(index)}
        assert [id for id, a in found.items() if a["masked"]] == sorted(view[index].masked)
        for id, own in zip(view[index].masked, view[index].cover.own, strict=True):
            assert found[id]["hidden"] == own == round(0.3 * found[id]["area"])
        for id, mask in zip(*(images[index][1][name] for name in ("ids", "masks")), strict=True):
            lost = found[int(id)]["hidden"] + found[int(id)]["hidden_by_other"]
            assert lost == int((mask.bool() & view[index].cover.hidden).sum()), "of masked objects and of others"
    assert summary["images"] == summary["two objects"] == 4
    assert summary["hidden by own block"] == pytest.approx(0.3, abs=0.01)


@pytest.mark.parametrize(("filling", "expected"), [("mean", "8db1a92fb0d9705b"), ("noise", "812d9e6f4e1c8dea")])
def test_pixels_are_the_same_on_every_machine(filling: Fill, expected: str):
    view = CoveredImages(SceneImages("val", 4, 64), 0.3, filling, seed=1)
    pixels = torch.stack([view[index].image for index in range(4)])
    assert sha256((pixels * 255).round().byte().numpy().tobytes()).hexdigest()[:16] == expected


class Knowing(nn.Module):
    """A detector that knows the truth, except of objects that lost pixels: it wants to see most of what it names."""

    def __init__(self, images: SceneImages):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(7))
        self.known = [(unit_pixels(images[index][0]), images[index][1]) for index in range(len(images))]

    def forward(self, images: list[Tensor]) -> list[dict[str, Any]]:
        found = []
        for image in images:
            clean, target = min(self.known, key=lambda known: float((known[0] - image).abs().sum()))
            changed = (clean != image).any(0)
            masks = target["masks"].bool()
            seen = torch.tensor([(mask & ~changed).sum() / mask.sum() > 0.8 for mask in masks])
            scores = torch.where(target["iscrowd"], 0.1, 0.9)[seen]
            found.append(
                dict(boxes=target["boxes"][seen], labels=target["labels"][seen], scores=scores, masks=masks[seen, None])
            )
        return found


@pytest.fixture(scope="module")
def images() -> SceneImages:
    return SceneImages("val", 6, 64)


def subject(images: SceneImages, head: str = "Mask R-CNN", masks: bool = True) -> DetectorSubject:
    return DetectorSubject("knowing", head, "1", Knowing(images), masks, images.categories)


def test_the_benchmark_tells_masked_from_untouched(images: SceneImages):
    rows, blocks = DetectionBenchmark(images, settings=settings_of((0, 0.3))).run([subject(images)])
    found = {(row["setting"], row["subset"]): row for row in rows}
    for subset in ("all", "masked", "untouched"):
        assert found["clean", subset]["box AP"] == found["clean", subset]["mask recall75"] == 1
    assert found["M30", "masked"]["mask AP"] == found["M30", "masked"]["mask recall75"] == 0
    assert found["M30", "untouched"]["mask AP"] == 1
    assert found["M30", "brushed"]["instances"] > 0
    apart = [found["M30", subset]["instances"] for subset in ("masked", "brushed", "untouched")]
    assert sum(apart) == found["M30", "all"]["instances"]
    assert 0 < found["M30", "all"]["mask AP"] < 1
    assert found["clean", "masked"]["instances"] == found["M30", "masked"]["instances"] == 12
    assert [row["two objects"] for row in blocks] == [6, 6]


def test_images_with_fewer_than_two_objects_are_counted(tmp_path: Path):
    square = [[1, 1, 9, 1, 9, 9, 1, 9]]
    annotations = [
        dict(id=id, image_id=image, category_id=1, bbox=[1, 1, 8, 8], area=64, iscrowd=0, segmentation=square)
        for id, image in enumerate([0, 1, 1, 1], start=1)
    ]
    images = [dict(id=n, file_name="a.png", width=12, height=10) for n in range(3)]
    (tmp_path / "a.json").write_text(json.dumps(dict(images=images, annotations=annotations, categories=[dict(id=1)])))
    Image.new("RGB", (12, 10)).save(tmp_path / "a.png")
    benchmark = DetectionBenchmark(CocoImages(tmp_path / "a.json", tmp_path), batch=2)
    _, [blocks] = benchmark.measure([], Job(Setting("M", 30), "mean", 0))
    assert (blocks["two objects"], blocks["one object"], blocks["no object"], blocks["objects"]) == (1, 1, 1, 3)


def test_batches_and_workers_change_nothing(images: SceneImages):
    rows = [
        DetectionBenchmark(images, settings_of((0.5,)), batch=batch, workers=workers).run([subject(images)])
        for batch, workers in ((1, 0), (4, 1))
    ]
    assert rows[0] == rows[1]


def test_detectors_can_be_trained_after_they_were_judged(images: SceneImages):
    tested = subject(images)
    DetectionBenchmark(images, settings=settings_of((0,)), device="cpu:0").run([tested])
    sum(weight.sum() for weight in tested.network.parameters()).backward()


def test_an_interrupted_run_goes_on(images: SceneImages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    subjects = [subject(images)]
    expected = DetectionBenchmark(images, settings=settings_of((0, 0.3))).run(subjects)
    kept = DetectionBenchmark(images, settings=settings_of((0, 0.3)), folder=tmp_path)

    def stop(text: str) -> None:
        if text.startswith("M30"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kept.run(subjects, stop)
    assert [path.name for path in tmp_path.iterdir()] == ["clean-mean-0.json"]
    assert kept.run(subjects) == expected
    with monkeypatch.context() as reading:
        reading.setattr(DetectionBenchmark, "measure", None)
        assert kept.run(subjects) == expected, "read, not measured"
    visible = DetectionBenchmark(images, settings=settings_of((0, 0.3)), visible=True, folder=tmp_path)
    assert visible.run(subjects) != expected, "another question"


def test_rows_are_kept_for_one_truth_alone(tmp_path: Path):
    """An annotation of one image among many changes, not one of those that stand for all."""
    scenes = SceneImages("val", 5, 64)
    for folder in ("one", "two"):
        write_occluded(CoveredImages(scenes, 0), tmp_path / folder)
    file = tmp_path / "two" / "instances.json"
    truth = json.loads(file.read_text())
    changed = next(a for a in truth["annotations"] if a["image_id"] == 1 and not a["iscrowd"])
    changed["category_id"] = changed["category_id"] % 10 + 1
    file.write_text(json.dumps(truth))
    found = []
    for folder in ("one", "two"):
        images = CocoImages(tmp_path / folder / "instances.json", tmp_path / folder / "images")
        benchmark = DetectionBenchmark(images, settings=settings_of((0,)), folder=tmp_path / "kept")
        found.append(benchmark.run([subject(scenes)])[0][0]["box AP"])
    assert found[0] == 1
    assert found[1] < 1


@pytest.mark.parametrize(
    ("share", "name"), [(0, "clean"), (0.3, "M30"), (0.07, "M7"), (0.29, "M29"), (0.3049, "M30.49"), (1, "M100")]
)
def test_settings_are_told_apart_by_name(share: float, name: str):
    [setting] = settings_of((share,))
    assert setting.name == name
    assert Setting.parse(name).hidden_share == setting.hidden_share == pytest.approx(share)


def test_the_command_s_files(images: SceneImages, tmp_path: Path):
    subjects = [subject(images), subject(images, "RetinaNet", masks=False)]
    found = measure(DetectionBenchmark(images, seeds=(0, 1)), subjects, tmp_path, lambda _: None)
    publish(found, report, tmp_path, "Detection")
    sizes = {(row["backbone"], row["head"]): row["parameters"] for row in found["detection"]}
    main = paper_table(found["detection"], sizes, "mean")
    assert main[0]["RetinaNet C"] == main[0]["Mask R-CNN C b"] == main[0]["Mask R-CNN C m"] == "100.0"
    assert "±" in main[0]["Mask R-CNN M30 m"]
    assert [line["model"] for line in main[1:]] == [f"{name} (paper, COCO)" for name in PUBLISHED]
    assert main[-1]["RetinaNet M30"] == "38.8"
    for name in ("detection.csv", "blocks.csv", "subsets.csv", "detection.png", "examples.png"):
        assert (tmp_path / name).stat().st_size > 0
    with (tmp_path / "detection.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["setting"] for row in rows} == {"clean", "M10", "M30", "M50", "M70"}
    assert len(rows) == 2 * 5 * (1 + 4 * 2), "detectors, subsets, settings and seeds"
    with (tmp_path / "subsets.csv").open() as file:
        lines = {(line["detector"], line["objects"], line["score"]): line for line in csv.DictReader(file)}
    assert ("knowing, RetinaNet", "all", "mask AP") not in lines, "it has no masks"
    assert lines["knowing, Mask R-CNN", "masked", "mask AP"]["clean"] == "100.0"
    page = (tmp_path / "report.html").read_text()
    for head in ("RetinaNet", "Mask R-CNN"):
        assert f"<h2>{head}</h2>" in page


def test_a_table_without_one_of_the_heads(images: SceneImages):
    rows, _ = DetectionBenchmark(images, settings=settings_of((0,))).run([subject(images, "RetinaNet", masks=False)])
    (ours, *_) = paper_table(rows, {("knowing", "RetinaNet"): 7}, "mean")
    assert ours["RetinaNet C"] == "100.0"
    assert ours["Mask R-CNN C b"] == ours["RetinaNet M30"] == ""
    assert tables.markdown([ours])


def test_a_share_above_one_is_refused(images: SceneImages):
    with pytest.raises(ValueError, match=r"share must lie between 0 and 1, got 1\.5"):
        CoveredImages(images, 1.5)
