from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from prism.data.images import Unreadable
from prism.data.label_maps import (
    VOC_CLASSES,
    VOID,
    LabelledImages,
    SegmentedFiles,
    fitted,
    open_segmentation,
    read_mask,
)
from prism.data.stream import ShuffledStream
from prism.tasks.segmentation.data import training_transform

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.2, 0.2)


def save(path: Path, numbers: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(numbers).save(path)
    return path


def image(width: int = 20, height: int = 12) -> np.ndarray:
    return np.full((height, width, 3), 90, np.uint8)


def mask(*numbers: int, width: int = 20, height: int = 12) -> np.ndarray:
    """A mask that holds the numbers, the last one wherever there is room."""
    found = np.full(height * width, numbers[-1], np.uint8)
    found[: len(numbers)] = numbers
    return found.reshape(height, width)


@pytest.fixture
def ade20k(tmp_path: Path) -> Path:
    for split in ("training", "validation"):
        save(tmp_path / "images" / split / "ADE_1.jpg", image())
        save(tmp_path / "annotations" / split / "ADE_1.png", mask(0, 1, 150))
    return tmp_path


@pytest.fixture
def voc(tmp_path: Path) -> Path:
    save(tmp_path / "JPEGImages" / "2007_1.jpg", image())
    indexed = Image.fromarray(mask(0, 255, 20))
    indexed.putpalette([200, 10, 10] * 256)  # colours that say nothing of the classes
    (tmp_path / "SegmentationClass").mkdir()
    indexed.save(tmp_path / "SegmentationClass" / "2007_1.png")
    (tmp_path / "val.txt").write_text("2007_1\n")
    return tmp_path


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    save(tmp_path / "images" / "train" / "a.png", image())
    save(tmp_path / "masks" / "train" / "a.png", mask(0, 1, 255, 2))
    (tmp_path / "classes.txt").write_text("sky\nsea\nland\n")
    return tmp_path


def test_ade20k_counts_from_one_and_leaves_zero_out(ade20k: Path):
    for split in ("train", "val", "validation"):
        samples = open_segmentation(str(ade20k), split)
        _, labels = samples[0]
        assert labels.ravel()[:3].tolist() == [VOID, 0, 149]
        assert len(samples.classes) == 150
    rows = ["Idx\tRatio\tTrain\tVal\tName", *(f"{n}\t0.1\t1\t1\tthing {n}, item" for n in range(1, 151))]
    (ade20k / "objectInfo150.txt").write_text("\n".join(rows))
    assert open_segmentation(str(ade20k), "val").classes[149] == "thing 150"


def test_voc_reads_indices_not_colours(voc: Path):
    samples = open_segmentation(str(voc), "val")
    _, labels = samples[0]
    assert labels.ravel()[:3].tolist() == [0, VOID, 20]
    assert samples.classes == list(VOC_CLASSES)
    assert len(VOC_CLASSES) == 21
    lists = voc / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True)
    (voc / "val.txt").rename(lists / "val.txt")  # where VOC itself keeps it
    assert len(open_segmentation(str(voc), "val")) == 1


def test_voc_is_not_taken_for_ade20k(voc: Path):
    """Its own Annotations/ are annotations/ too where case is ignored."""
    (voc / "annotations").mkdir()
    assert open_segmentation(str(voc), "val").classes == list(VOC_CLASSES)


def test_any_pair_of_folders(folders: Path):
    samples = open_segmentation(str(folders), "train")
    assert samples.classes == ["sky", "sea", "land"]
    assert samples[0][1].ravel()[:4].tolist() == [0, 1, VOID, 2]
    assert samples.name(0).endswith("a.png")
    (folders / "classes.txt").unlink()
    assert len(open_segmentation(str(folders), "train", classes=3).classes) == 3


def test_scenes_have_the_ground_and_ten_shapes():
    samples = open_segmentation("scenes", "val", 48, 8)
    found = np.unique(np.concatenate([samples[index][1].ravel() for index in range(8)]))
    assert len(samples.classes) == 11
    assert found.max() <= 10
    assert len(found) > 4
    image, labels = LabelledImages(samples)[0]
    assert image.shape == (3, 48, 48)
    assert 0 <= float(image.min()) < float(image.max()) <= 1
    assert labels.shape == (48, 48)


def spoil(root: Path, how: str) -> None:
    match how:
        case "size":
            save(root / "masks" / "train" / "a.png", mask(0, width=19))
        case "class":
            save(root / "masks" / "train" / "a.png", mask(0, 7, 1))
        case "no mask":
            save(root / "images" / "train" / "b.png", image())
        case "no image":
            save(root / "masks" / "train" / "b.png", mask(0))
        case "colour":
            save(root / "masks" / "train" / "a.png", image())
        case "twins":
            save(root / "images" / "train" / "a.jpg", image())
        case "text":
            (root / "masks" / "train" / "a.png").write_text("no mask")
        case "no classes":
            (root / "classes.txt").unlink()
        case "nameless":
            (root / "classes.txt").write_text("\n")
        case "empty":
            (root / "images" / "train" / "a.png").unlink()
            (root / "masks" / "train" / "a.png").unlink()


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("size", r"a\.png has 20 x 12 pixels, its mask .*a\.png has 19 x 12"),
        ("class", r"a\.png has a pixel of class 7; there are classes 0 to 2"),
        ("no mask", r"b\.png has no counterpart in .*masks"),
        ("no image", r"b\.png has no counterpart in .*images"),
        ("colour", r"a\.png is not a mask: .* mode RGB"),
        ("twins", r"a\.jpg and .*a\.png cannot be told apart"),
        ("text", r"a\.png cannot be read as a mask"),
        ("no classes", r"no .*classes\.txt"),
        ("nameless", "hold at most 255 classes, got 0"),
        ("empty", "no labelled images in"),
    ],
)
def test_bad_data_is_named(folders: Path, how: str, sentence: str):
    spoil(folders, how)
    with pytest.raises(ValueError, match=sentence):
        _ = open_segmentation(str(folders), "train")[0]


def test_what_is_not_there_is_named(ade20k: Path, tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        open_segmentation(str(tmp_path / "nowhere"), "val")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no labels: expected"):
        open_segmentation(str(tmp_path / "empty"), "val")
    with pytest.raises(FileNotFoundError, match=r"testing; .*images has training, validation"):
        open_segmentation(str(ade20k), "testing")


def test_a_list_that_names_a_missing_file(voc: Path):
    (voc / "val.txt").write_text("2007_1\n2007_2\n")
    with pytest.raises(FileNotFoundError, match=r"names 2007_2, but there is no .*JPEGImages.2007_2\.jpg"):
        open_segmentation(str(voc), "val")
    with pytest.raises(FileNotFoundError, match=r"no split 'train': there is neither .*train\.txt"):
        open_segmentation(str(voc), "train")


def test_ade20k_with_a_class_beyond_its_last(ade20k: Path):
    save(ade20k / "annotations" / "training" / "ADE_1.png", mask(0, 151))
    with pytest.raises(ValueError, match="pixel of class 151; there are classes 1 to 150"):
        _ = open_segmentation(str(ade20k), "train")[0]


def test_masks_of_other_depths(tmp_path: Path):
    deep = np.array([[0, 1], [2, 300]], np.uint16)
    assert read_mask(save(tmp_path / "deep.png", deep)).tolist() == deep.tolist()
    assert read_mask(save(tmp_path / "bits.png", np.eye(2, dtype=bool))).tolist() == [[1, 0], [0, 1]]
    with pytest.raises(Unreadable):
        read_mask(tmp_path / "missing.png")


def coloured(labels: np.ndarray) -> Image.Image:
    """An image whose red is its label."""
    return Image.fromarray(np.stack([labels * 100, labels * 0, labels * 0], -1).astype(np.uint8))


def blocks(side: int, height: int, width: int) -> np.ndarray:
    rows, columns = np.indices((height, width)) // side
    return ((rows + columns) % 3).astype(np.uint8)


@pytest.mark.parametrize("fit", [None, (64, 48)])
def test_training_moves_image_and_labels_together(fit: tuple[int, int] | None):
    view = training_transform(40, MEAN, STD, fit, distortion=False)
    labels = blocks(11, 37, 53)
    agree = []
    for seed in range(12):
        torch.manual_seed(seed)
        image, numbers = view(coloured(labels), labels)
        assert image.shape == (3, 40, 40)
        assert numbers.shape == (40, 40)
        assert image.dtype == torch.float32
        red = 255 * (image[0] * STD[0] + MEAN[0])
        known = numbers != VOID
        agree.append(((red / 100).round() == numbers)[known].float().mean())
    assert min(agree) > 0.8  # all but the blocks' blurred edges
    assert torch.stack(agree).mean() > 0.88


def test_labels_are_not_shifted_against_the_image():
    view = training_transform(16, MEAN, STD, scales=(0.5, 0.5), flip=False, distortion=False)
    labels = np.zeros((32, 32), np.uint8)
    labels[:, 15:] = 1  # pixel 7 of the half is made of pixels 14 and 15
    _, numbers = view(coloured(labels), labels)
    assert numbers[0].tolist() == [0] * 7 + [1] * 9


def test_what_is_beyond_the_image_is_void_and_has_the_mean_colour():
    view = training_transform(64, MEAN, STD, scales=(0.5, 0.5), flip=False)
    torch.manual_seed(1)
    image, numbers = training_transform(64, MEAN, STD, scales=(0.5, 0.5), distortion=False)(
        coloured(blocks(5, 40, 50)), blocks(5, 40, 50)
    )
    assert int((numbers != VOID).sum()) == 20 * 25
    assert image[:, numbers == VOID].abs().max() < 0.02  # of rounding to whole colours
    torch.manual_seed(1)
    distorted, _ = view(coloured(blocks(5, 40, 50)), blocks(5, 40, 50))
    assert not torch.equal(distorted, image)


def test_scales_reach_from_half_to_double():
    view = training_transform(100, MEAN, STD, distortion=False)
    labels = blocks(5, 40, 40)
    sides = []
    for _ in range(60):
        known = view(coloured(labels), labels)[1] != VOID
        sides.append(int(known.any(0).sum()))
    assert 20 <= min(sides) < 28
    assert 68 < max(sides) <= 80


def test_fitting_keeps_the_shape():
    assert fitted((375, 500), (256, 256)) == (192, 256)
    assert fitted((192, 256), (256, 256)) == (192, 256)
    assert fitted((512, 683), (2048, 512)) == (512, 683)
    assert fitted((100, 1000), (2048, 512)) == (205, 2048)
    assert fitted((7, 5), None) == (7, 5)


def test_batches_are_the_same_on_any_number_of_workers():
    samples = open_segmentation("scenes", "train", 32, 8)
    view = training_transform(32, MEAN, STD)
    batches = [next(iter(ShuffledStream(samples, view, 4, workers=workers).epoch(0))) for workers in (0, 2)]
    assert batches[0].images.shape == (4, 3, 32, 32)
    assert batches[0].targets.shape == (4, 32, 32)
    assert torch.equal(batches[0].images, batches[1].images)
    assert torch.equal(batches[0].targets, batches[1].targets)


def test_more_classes_than_a_byte_tells_are_refused():
    names = [str(number) for number in range(256)]
    assert len(SegmentedFiles([], names[:-1]).classes) == 255
    with pytest.raises(ValueError, match="at most 255 classes, got 256"):
        SegmentedFiles([], names)
