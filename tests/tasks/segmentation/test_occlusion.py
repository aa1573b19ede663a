import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

from prism.cli import main
from prism.data.images import unit_pixels
from prism.data.label_maps import VOC_CLASSES, VOID, LabelledImages, open_segmentation, read_mask
from prism.data.sources import OwnImages, limited, open_images, original_index
from prism.metrics.iou import scores
from prism.occlusion.benchmark import CLEAN, Occluded, Setting, Subject
from prism.occlusion.masks import mask_generator, patch_mask
from prism.reporting.figures import class_colours
from prism.tasks.segmentation.evaluate import CURVE, PAPER_SETTINGS, OccludedImages, SegmentationBenchmark, count_pixels
from prism.tasks.segmentation.network import SemanticFPN
from prism.tasks.segmentation.report import PUBLISHED, paper_table

NAMES = ["red", "green", "blue"]
SMALL = dict(widths=(8, 12, 16, 24), slots=(5, 4, 4, 3), codes=16)


class Stripes:
    """Stripes of pure colours; the label is the colour. Sizes differ, and the first row is void."""

    def __init__(self, length: int = 7):
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        width = 42 + 14 * (index % 2)
        labels = (torch.arange(width) // 14 + index).remainder(3).expand(28, width).clone()
        image = nn.functional.one_hot(labels, 3).permute(2, 0, 1).float()
        labels[0] = VOID
        return image, labels.to(torch.uint8)


class Colour(nn.Module):
    """Says of each pixel which colour it has; of one that has none, the first."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(()))
        self.seen: list[Tensor] = []

    def forward(self, images: Tensor) -> Tensor:
        self.seen.append(images)
        return self.gain * images


def batches(size: int, length: int = 7) -> list[list[int]]:
    return [[*range(length)][first : first + size] for first in range(0, length, size)]


def plain(name: str, model: nn.Module, run: str = "a") -> Subject:
    return Subject(name, run, model, mean=(0, 0, 0), std=(1, 1, 1))


def test_the_paper_hides_30_per_cent_and_the_curve_10_to_70():
    assert [setting.name for setting in PAPER_SETTINGS] == ["clean", "PatchMask0.3"]
    assert [setting.name for setting in CURVE] == ["clean", *(f"PatchMask0.{tenth}" for tenth in range(1, 8))]


def test_an_image_shows_what_the_mask_leaves():
    setting = Setting("PatchMask", 0.3)
    image, labels, hidden = OccludedImages(Stripes(), setting, "mean", 5, (0.1, 0.2, 0.3))[2]
    clean, truth = Stripes()[2]
    assert torch.equal(hidden, patch_mask((28, 42), 0.3, mask_generator(2, 5)))
    assert torch.equal(labels, truth)
    assert torch.equal(image[:, ~hidden], clean[:, ~hidden])
    assert image[:, hidden].T.unique(dim=0).tolist() == [pytest.approx([0.1, 0.2, 0.3])]
    untouched = OccludedImages(Stripes(), CLEAN)[2]
    assert torch.equal(untouched.image, clean)
    assert not untouched.hidden.any()
    assert torch.equal(OccludedImages(Stripes(), setting, "texture", 5)[2].hidden, hidden)


def test_a_limit_does_not_change_what_is_hidden():
    """Nor which images are held out: these are a set of their own."""
    samples = open_segmentation("scenes", "val", 32, 9)
    setting = Setting("PatchMask", 0.5)
    whole, few = (OccludedImages(LabelledImages(data), setting) for data in (samples, limited(samples, 3)))
    for place in range(3):
        assert torch.equal(few[place].image, whole[original_index(limited(samples, 3), place)].image)
    images = open_images("scenes", "val", 32, 9)
    parts = (OwnImages(data, unit_pixels) for data in (images, limited(images, 3)))
    seen, some = (Occluded(part, setting, "mean", 0, (0, 0, 0)) for part in parts)
    for place in range(3):
        assert torch.equal(some[place][0], seen[original_index(limited(images, 3), place)][0])
    held = open_images("scenes", "held-out", 32, 20)
    assert [original_index(held, place) for place in range(4)] == [0, 1, 2, 3]
    assert original_index([7, 7, 7], 2) == 2, "any data set will do"


def test_every_model_sees_the_same_pixels_in_any_batch_and_with_any_workers():
    view = OccludedImages(Stripes(), Setting("PatchMask", 0.5), "black")
    one, other, again = Colour(), Colour(), Colour()
    left = count_pixels([plain("one", one), plain("other", other)], view, 3, batches(1), 0, "cpu")
    assert all(torch.equal(a, b) for a, b in zip(one.seen, other.seen, strict=True))
    right = count_pixels([plain("one", again)], view, 3, batches(4), 2, "cpu")
    for a, b in zip(left["one", "a"], right["one", "a"], strict=True):
        assert torch.equal(a, b)
    assert max(len(images) for images in again.seen) > 1


def test_scores_are_split_into_what_was_seen_and_what_was_not():
    view = OccludedImages(Stripes(), Setting("PatchMask", 0.3), "black")
    [counts] = count_pixels([plain("colour", Colour())], view, 3, batches(4), 0, "cpu").values()
    found = scores(counts)
    assert found["visible mIoU"] == 1
    # of hidden pixels it always says the first class, which is right for about a third of them
    assert found["hidden mIoU"] == pytest.approx(1 / 9, abs=0.05)
    assert found["hidden mIoU"] < found["mIoU"] < 1  # pyright: ignore
    hidden = sum(int(view[i].hidden[view[i].labels != VOID].sum()) for i in range(len(view)))
    assert int(counts.pixels[1].sum()) == hidden


def test_rows_and_their_fall():
    benchmark = SegmentationBenchmark(Stripes(), CURVE, NAMES, fills=("black", "grey"), seeds=(0, 1))
    rows, of_classes = benchmark.run([plain("colour", Colour())])
    assert len(rows) == 1 + 7 * 2 * 2
    assert len(of_classes) == 3 * len(rows)
    assert rows[0]["mIoU"] == rows[0]["pixel accuracy"] == rows[0]["boundary IoU"] == 1
    assert rows[0]["hidden mIoU"] is None
    own = [row["mIoU"] for row in rows if row["fill"] in ("", "black") and row["mask seed"] in ("", 0)]
    assert own == sorted(own, reverse=True)
    seeds = [row["mIoU"] for row in rows if row["setting"] == "PatchMask0.3" and row["fill"] == "black"]
    assert seeds[0] != seeds[1]


def test_an_interrupted_run_goes_on(tmp_path: Path):
    colour = Colour()
    subjects = [plain("colour", colour)]
    expected = SegmentationBenchmark(Stripes(), classes=NAMES).run(subjects)
    kept = SegmentationBenchmark(Stripes(), classes=NAMES, folder=tmp_path)

    def stop(text: str) -> None:
        if text.startswith("PatchMask"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kept.run(subjects, stop)
    assert [path.name for path in tmp_path.iterdir()] == ["clean-mean-0.json"]
    colour.seen.clear()
    assert kept.run(subjects) == tuple(map(list, expected))
    assert sum(map(len, colour.seen)) == 7, "PatchMask alone"
    (tmp_path / "clean-mean-0.json").write_text("cut sh")
    assert kept.run(subjects) == tuple(map(list, expected))
    colour.seen.clear()
    SegmentationBenchmark(Stripes(6), classes=NAMES, folder=tmp_path).run(subjects)  # other images
    nn.init.constant_(colour.gain, -1)  # another model
    assert kept.run(subjects)[0][0]["mIoU"] == 0
    assert sum(map(len, colour.seen)) == 2 * (6 + 7)


def test_the_table_is_the_papers_with_its_rows_marked():
    rows = [
        {"model": "a", "setting": "clean", "fill": "", "mIoU": 0.5},
        {"model": "a", "setting": "PatchMask0.3", "fill": "mean", "mIoU": 0.30},
        {"model": "a", "setting": "PatchMask0.3", "fill": "mean", "mIoU": 0.32},
        {"model": "a", "setting": "PatchMask0.3", "fill": "black", "mIoU": 0.1},
    ]
    ours, *theirs = paper_table(rows, {"a": (15_400_000, 35.04e9)}, "mean")
    occluded = "31.0 ± 1.41"
    assert ours == {"model": "a", "Param.": "15.4 M", "FLOPs": "35.0 G", "mIoU C": "50.0", "mIoU Occ.": occluded}
    assert [row["model"] for row in theirs] == [f"{name} (paper, ADE20K)" for name in PUBLISHED]
    assert theirs[-1]["mIoU Occ."] == "39.7"


@pytest.mark.parametrize(
    ("subjects", "images", "sentence"),
    [
        ([plain("m", Colour())], Stripes(0), "empty"),
        ([plain("m", Colour()), plain("m", Colour())], Stripes(), "is named twice"),
        ([plain("m", Colour()), plain("m", nn.Conv2d(3, 3, 1), "b")], Stripes(), "b is not of the size of"),
        ([plain("two", nn.Conv2d(3, 2, 1))], Stripes(), "two knows 2 classes, the data has 3"),
        ([plain("m", nn.Sequential(Colour(), nn.Threshold(2, float("nan"))))], Stripes(), "m gave a score"),
    ],
)
def test_bad_use_is_named(subjects: list[Subject], images: Stripes, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        SegmentationBenchmark(images, classes=NAMES).run(subjects)


def test_rows_are_kept_for_one_truth_alone(tmp_path: Path):
    """The mask of one image among many changes, not one of those that stand for all."""
    for kind in ("images", "masks"):
        (tmp_path / kind / "val").mkdir(parents=True)
    for number in range(5):
        Image.new("RGB", (16, 16)).save(tmp_path / "images" / "val" / f"{number}.png")
        Image.new("L", (16, 16), 0).save(tmp_path / "masks" / "val" / f"{number}.png")
    samples = open_segmentation(str(tmp_path), "val", classes=3)
    images = LabelledImages(samples)
    benchmark = SegmentationBenchmark(images, (CLEAN,), NAMES, folder=tmp_path / "done")
    found = []
    for label in (0, 1):
        Image.new("L", (16, 16), label).save(tmp_path / "masks" / "val" / "1.png")
        found.append(benchmark.run([plain("colour", Colour())])[0][0]["pixel accuracy"])
    assert found == pytest.approx([1, 0.8])
    assert LabelledImages(limited(samples, 5)).fingerprint() == images.fingerprint()


def test_models_can_be_trained_after_they_were_judged():
    model = nn.Conv2d(3, 3, 1)
    SegmentationBenchmark(Stripes(3), classes=NAMES, device="cpu:0").run([plain("m", model)])
    model(torch.rand(2, 3, 8, 8)).sum().backward()


def test_colours_of_neighbouring_classes_differ():
    colours = class_colours(29)
    assert len(np.unique(colours[:29].round(2), axis=0)) == 29
    assert colours[VOID].tolist() == [1, 1, 1]
    assert class_colours(150).min() >= 0
    assert class_colours(150).max() <= 1


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    network = SemanticFPN("prism_nano", VOC_CLASSES, 16, **SMALL)
    path = tmp_path / "runs" / "best.safetensors"
    path.parent.mkdir()
    save_file(network.state_dict(), path, network.metadata(48, (48, 48)).header())
    return path


@pytest.fixture
def voc(tmp_path: Path) -> Path:
    root = tmp_path / "voc"
    for folder in ("JPEGImages", "SegmentationClass"):
        (root / folder).mkdir(parents=True)
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 255, (40, 50 + number, 3), np.uint8)
        Image.fromarray(pixels).save(root / "JPEGImages" / f"{number}.jpg")
        Image.fromarray((pixels[..., 0] // 13).astype(np.uint8)).save(root / "SegmentationClass" / f"{number}.png")
    (root / "val.txt").write_text("0\n1\n2\n")
    return root


def test_command_makes_every_file(weights: Path, voc: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "out"
    main(["occlusion", str(weights), "--data", str(voc), "--workers", "0", "--seeds", "0,1",
          "--device", "cpu", "--limit", "2", "--out", str(out)])  # fmt: skip
    shown = capsys.readouterr().out
    assert "35.6 G" in shown
    assert "report.html" in shown
    with (out / "segmentation.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["setting"] for row in rows] == ["clean", "PatchMask0.3", "PatchMask0.3"]
    assert {row["images"] for row in rows} == {"2"}
    assert "PRISM (paper, ADE20K)" in (out / "table.md").read_text()
    for name in ("classes.csv", "segmentation.png", "examples.png"):
        assert (out / name).stat().st_size > 0
    page = (out / "report.html").read_text()
    assert page.count("data:image/png") == 2
    for heading in ("mIoU", "Curves", "Examples", "All rows", "Classes"):
        assert f"<h2>{heading}</h2>" in page


def test_eval_of_a_segmenter(weights: Path, voc: Path, tmp_path: Path):
    main(["eval", str(weights), "--data", str(voc), "--workers", "0", "--batch", "2", "--out", str(tmp_path)])
    with (tmp_path / "segmentation.csv").open() as file:
        [row] = csv.DictReader(file)
    assert (row["split"], row["images"]) == ("val", "3")
    assert 0 <= float(row["mIoU"]) <= 1


def test_segment_draws_an_overlay_and_an_index_mask(weights: Path, voc: Path, tmp_path: Path):
    out = tmp_path / "seen"
    image = voc / "JPEGImages" / "2.jpg"
    main(["segment", str(image), "--checkpoint", str(weights), "--flip", "--scales", "1,1.5", "--out", str(out)])
    mask = read_mask(out / "2-mask.png")
    assert mask.shape == (40, 52)
    assert mask.max() < 21
    with Image.open(out / "2-overlay.png") as overlay:
        assert min(overlay.size) > 300


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("segment", "{voc}/JPEGImages/9.jpg", "--checkpoint", "{weights}"), "there is no image"),
        (("segment", "--checkpoint", "{weights}"), "name at least one image"),
        (("segment", "{voc}/a.jpg", "{voc}/b/a.jpg", "--checkpoint", "{weights}"), "two images are called a"),
        (("segment", "{voc}/JPEGImages/0.jpg", "--checkpoint", "{voc}/no.safetensors"), "there is no checkpoint"),
        (("segment", "{voc}/JPEGImages/0.jpg", "--checkpoint", "{weights}", "--stride", "8"), "needs a window"),
        (("occlusion", "{weights}", "--data", "scenes"), "knows 21 classes, which are not the 11 of"),
        (("occlusion", "{weights}", "--data", "{voc}/none"), "there is no folder"),
        (("occlusion", "{weights}", "--data", "{voc}", "--split", "test"), "has no split 'test'"),
        (("occlusion", "--task", "segmentation", "--data", "{voc}"), "name at least one model"),
        (
            ("occlusion", "{weights}", "--task", "detection", "--data", "{voc}"),
            "is for segmentation, not for detection",
        ),
        (("occlusion", "prism_nano", "{weights}", "--data", "{voc}"), "prism_nano has no weights"),
        (("occlusion", "{weights}", "--data", "{voc}", "--write"), "--write is only for detection"),
    ],
)
def test_bad_input_is_one_sentence(arguments: tuple[str, ...], sentence: str, weights: Path, voc: Path):
    with pytest.raises(SystemExit) as stopped:
        main([argument.format(weights=weights, voc=voc) for argument in arguments])
    message = stopped.value.code
    assert isinstance(message, str)
    assert sentence in message
    assert "\n" not in message
