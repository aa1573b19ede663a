import sys
from io import BytesIO
from pathlib import Path

import datasets
import numpy as np
import pytest
from PIL import Image

from prism.data.images import Unreadable
from prism.data.scenes import SHAPES, Scenes
from prism.data.sources import Labelled, limited, open_images, original_index, splits


def store(path: Path, level: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (6, 4), level).save(path)
    return path


def level(image: Image.Image) -> int:
    """The grey of an image of one colour, which must have become RGB."""
    assert (image.mode, image.size) == ("RGB", (6, 4))
    return int(np.asarray(image)[0, 0, 0])


def seen(images: Labelled) -> list[tuple[int, int]]:
    return [(level(image), label) for image, label in (images[i] for i in range(len(images)))]


@pytest.fixture
def divided(tmp_path: Path) -> Path:
    """cat, dog and emu to train; dogs and emus to evaluate."""
    for number, name in enumerate(("cat", "dog", "emu")):
        store(tmp_path / "train" / name / "a.png", number)
    store(tmp_path / "val" / "dog" / "b.JPEG", 80)
    store(tmp_path / "val" / "emu" / "deep" / "er" / "c.png", 90)
    store(tmp_path / "val" / "emu" / "a.png", 70)
    return tmp_path


def test_scenes_are_the_generated_ones():
    for split in splits("scenes"):
        images = open_images("scenes", split, size=32, length=3, seed=5)
        image, label = images[2]
        expected, number = Scenes(split, 3, 32, 5)[2]
        assert np.array_equal(np.asarray(image), np.asarray(expected))
        assert (label, len(images), images.classes) == (number, 3, list(SHAPES))
        assert images.name(2) == f"scene 2 of {split}"
    assert [len(open_images("scenes", split)) for split in splits("scenes")] == [10_000, 1_000, 1_000]
    with pytest.raises(ValueError, match="split must be one of train, val, clean, not 'test'"):
        open_images("scenes", "test")


def test_a_split_that_lacks_a_class_keeps_the_numbers_of_the_others(divided: Path):
    train, val = (open_images(str(divided), split) for split in ("train", "val"))
    assert train.classes == val.classes == ["cat", "dog", "emu"]
    assert seen(train) == [(0, 0), (1, 1), (2, 2)]
    assert seen(val) == [(80, 1), (70, 2), (90, 2)]
    assert val.name(0) == str(divided / "val" / "dog" / "b.JPEG")
    assert splits(str(divided)) == ["train", "val"]


def test_a_class_that_was_never_trained_is_named(divided: Path):
    (divided / "val" / "fox").mkdir()
    with pytest.raises(ValueError, match=r"val has a class 'fox' that is not among cat, dog, emu$"):
        open_images(str(divided), "val")


def test_the_classes_that_a_model_knows_number_the_labels(divided: Path):
    known = ["emu", "dog", "cat"]
    val = open_images(str(divided), "val", classes=known)
    assert val.classes == known
    assert [known[label] for _, label in seen(val)] == ["dog", "emu", "emu"]
    held = open_images(str(divided), "held-out", classes=known)
    assert [known[label] for _, label in seen(held)] == ["cat"]
    with pytest.raises(ValueError, match=r"has a class 'emu' that is not among cat, dog$"):
        open_images(str(divided), "val", classes=["cat", "dog"])


def test_without_class_folders_to_train_on_a_split_names_its_own_classes(divided: Path):
    for name in ("cat", "dog", "emu"):
        (divided / "train" / name / "a.png").unlink()
        (divided / "train" / name).rmdir()
    (divided / "train" / "0000.tar").touch()  # shards, say
    assert open_images(str(divided), "val").classes == ["dog", "emu"]
    assert splits(str(divided)) == ["val"]


def test_empty_and_hidden_folders(divided: Path):
    (divided / "train" / "bee").mkdir()
    (divided / "train" / ".cache").mkdir()
    train = open_images(str(divided), "train")
    assert train.classes == ["bee", "cat", "dog", "emu"]
    assert [label for _, label in seen(train)] == [1, 2, 3]
    (divided / "test").mkdir()
    with pytest.raises(ValueError, match=f"there are no labelled images in {divided / 'test'}$"):
        open_images(str(divided), "test")
    (divided / "nothing").mkdir()
    with pytest.raises(ValueError, match=r"there are no labelled images in .*nothing"):
        open_images(str(divided / "nothing"), "")


def test_what_is_not_there(divided: Path):
    with pytest.raises(FileNotFoundError, match=r"has no split 'test'; it has train, val$"):
        open_images(str(divided), "test")
    with pytest.raises(ValueError, match=r"holds splits, not classes: add --split val$"):
        open_images(str(divided), "")
    for ask in (splits, lambda data: open_images(data, "val")):
        with pytest.raises(FileNotFoundError, match=r"there is no folder .*/nowhere$"):
            ask(str(divided / "nowhere"))


def test_a_folder_of_classes_has_one_split_without_a_name(divided: Path):
    data = str(divided / "train")
    assert splits(data) == [""]
    assert seen(open_images(data, "")) == [(0, 0), (1, 1), (2, 2)]
    with pytest.raises(FileNotFoundError, match=r"train has no split 'val'; it has no splits$"):
        open_images(data, "val")


def test_a_class_may_be_called_train(tmp_path: Path):
    for name in ("bus", "train"):
        store(tmp_path / name / "a.png")
    assert open_images(str(tmp_path), "").classes == ["bus", "train"]


def test_what_cannot_be_read_is_named(divided: Path):
    bad = divided / "train" / "cat" / "a.png"
    bad.write_text("not an image")
    (divided / "train" / "dog" / "b.png").symlink_to("gone.png")
    train = open_images(str(divided), "train")
    for index, name in ((0, "cat/a.png cannot be read as an image"), (2, "there is no image .*dog/b.png")):
        with pytest.raises(Unreadable, match=name):
            train[index]
    assert level(train[1][0]) == 1


def test_a_folder_is_seen_once_whatever_links_lead_to_it(divided: Path):
    whole = seen(open_images(str(divided), "train"))
    for name in ("again", "twice"):
        (divided / "train" / "cat" / name).symlink_to(".")
        (divided / "train" / "dog" / name).symlink_to("..")
        (divided / "train" / "cat" / f"{name} lost").symlink_to(f"{name} lost")
    assert seen(open_images(str(divided), "train")) == whole


def test_a_limited_view_is_spread_over_the_set(divided: Path):
    for number in range(9):
        store(divided / "train" / "cat" / f"{number}.png", 100 + number)
    whole = open_images(str(divided), "train")  # 10, 1 and 1
    few = limited(whole, 4)
    places = [original_index(few, i) for i in range(4)]
    assert [place // 3 for place in places] == [0, 1, 2, 3]
    assert [few.name(i) for i in range(4)] == [whole.name(i) for i in places]
    assert seen(few) == [seen(whole)[i] for i in places]
    assert few.classes == whole.classes
    assert seen(limited(whole, 99)) == seen(whole)
    with pytest.raises(IndexError):
        few[4]
    with pytest.raises(ValueError, match="limit must be at least 1, got 0"):
        limited(whole, 0)


def test_a_limited_view_has_both_kinds_where_two_take_turns():
    few = limited(open_images("scenes", "val", 32, 1000), 500)  # every other scene hides its object
    assert 200 < sum(original_index(few, place) % 2 for place in range(500)) < 300


def encoded(level: int) -> bytes:
    buffer = BytesIO()
    Image.new("L", (6, 4), level).save(buffer, "PNG")
    return buffer.getvalue()


def table(labels: list, images: list | None = None, kind=None, **more: list) -> datasets.Dataset:
    images = images or [{"bytes": encoded(10 * n), "path": None} for n in range(len(labels))]
    features = {"scan": datasets.Image(), "species": kind or datasets.ClassLabel(names=["cat", "dog", "emu"])}
    features |= {name: datasets.Value("int64") for name in more}
    rows = {"scan": images, "species": labels, **more}
    return datasets.Dataset.from_dict(rows, features=datasets.Features(features))


def test_a_saved_data_set_with_splits(tmp_path: Path):
    path = str(store(tmp_path / "outside.png", 99))
    val = table([2, 0], [path, {"bytes": encoded(7), "path": "any.png"}], year=[1, 2])
    datasets.DatasetDict(train=table([0, 1, 2]), val=val).save_to_disk(tmp_path / "saved")
    data = str(tmp_path / "saved")
    assert splits(data) == ["train", "val"]
    assert seen(open_images(data, "train")) == [(0, 0), (10, 1), (20, 2)]
    images = open_images(data, "val")
    assert seen(images) == [(99, 2), (7, 0)]
    assert (images.classes, images.name(1)) == (["cat", "dog", "emu"], f"row 1 of {data}/val")
    with pytest.raises(FileNotFoundError, match="has no split 'test'; it has train, val"):
        open_images(data, "test")
    with pytest.raises(ValueError, match="holds splits, not classes: add --split val"):
        open_images(data, "")


def test_a_saved_data_set_without_splits(tmp_path: Path):
    table([1, 0]).with_format("torch").save_to_disk(tmp_path)
    assert splits(str(tmp_path)) == [""]
    images = open_images(str(tmp_path), "")
    assert seen(images) == [(0, 1), (10, 0)]
    assert type(images[0][1]) is int, "whatever format it was saved in"
    with pytest.raises(FileNotFoundError, match="has no split 'val'; it has no splits"):
        open_images(str(tmp_path), "val")


@pytest.mark.parametrize("content", ["5", "[]", "null", "{}", '{"splits": "val"}', '{"splits": [1]}', '{"splits": []}'])
def test_a_list_of_splits_of_the_wrong_shape_is_a_sentence(content: str, tmp_path: Path):
    datasets.DatasetDict(train=table([0, 1]), val=table([0])).save_to_disk(tmp_path)
    (tmp_path / "dataset_dict.json").write_text(content)
    with pytest.raises(ValueError, match=r"dataset_dict\.json does not describe a saved data set: splits must be"):
        open_images(str(tmp_path), "val")


def test_plain_numbers_are_labels_counted_in_training(tmp_path: Path):
    number = datasets.Value("int32")
    splits_ = {"train": table([3, 0], kind=number), "val": table([1], kind=number), "new": table([4], kind=number)}
    datasets.DatasetDict(splits_).save_to_disk(tmp_path)
    val = open_images(str(tmp_path), "val")
    assert (val.classes, seen(val)) == (["0", "1", "2", "3"], [(0, 1)])
    times = table([10**12], kind=datasets.Value("int64"))
    times.save_to_disk(tmp_path / "times")
    with pytest.raises(ValueError, match="'species' does not hold labels: its values go up to 1000000000000"):
        open_images(str(tmp_path / "times"), "")
    with pytest.raises(ValueError, match=r"new does not number its classes as .*train does"):
        open_images(str(tmp_path), "new")


def test_saved_labels_that_cannot_be_trusted(tmp_path: Path):
    alone = table([0], kind=datasets.ClassLabel(names=["dog"]))  # 0 was the cat in training
    datasets.DatasetDict(train=table([0, 1]), val=alone, test=table([1, -1])).save_to_disk(tmp_path)
    with pytest.raises(ValueError, match=r"val does not number its classes as .*train does"):
        open_images(str(tmp_path), "val")
    with pytest.raises(ValueError, match="test has labels without a class: -1"):
        open_images(str(tmp_path), "test")


def test_columns_that_cannot_be_told_apart_are_listed(tmp_path: Path):
    two = table([1, 2], kind=datasets.Value("int64"), year=[3, 4])
    two.save_to_disk(tmp_path / "two")
    two.remove_columns(["species", "year"]).save_to_disk(tmp_path / "none")
    with pytest.raises(ValueError, match=r"it has scan \(Image\), species \(Value\), year \(Value\)$"):
        open_images(str(tmp_path / "two"), "")
    with pytest.raises(ValueError, match=r"one column of images and one of labels; it has scan \(Image\)$"):
        open_images(str(tmp_path / "none"), "")


def test_saved_images_that_cannot_be_read_are_named(tmp_path: Path):
    table([0, 1], [{"bytes": b"text", "path": None}, None]).save_to_disk(tmp_path)
    images = open_images(str(tmp_path), "")
    for index, reason in enumerate(("row 0 of .* cannot be read as an image", "row 1 of .* has no image")):
        with pytest.raises(Unreadable, match=reason):
            images[index]


def test_a_missing_reader_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    table([0, 1]).save_to_disk(tmp_path)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ValueError, match=r"^datasets is not installed; in a clone of PRISM: pip install '.\[train\]'$"):
        open_images(str(tmp_path), "")
