import json
import sys
import tarfile
from collections import Counter
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import pytest
import torch
from PIL import Image

from prism.data import shards
from prism.data.images import Unreadable, decode_image
from prism.data.shards import BrokenShard, ShardedImages, ShardStream, count_samples, find_shards
from prism.data.stream import ALONE, Batch, Ranks


def read_shards(paths: Sequence[str], ranks: Ranks = ALONE):
    return iter(ShardedImages(paths, lambda image: image, ranks))


def encoded(number: int) -> bytes:
    buffer = BytesIO()
    Image.new("RGB", (3, 2), (number, 0, 0)).save(buffer, "PNG")
    return buffer.getvalue()


def pack(path: Path, members: dict[str, bytes]) -> str:
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, BytesIO(content))
    return str(path)


def stored(folder: Path, sizes: Sequence[int], unreadable: Sequence[int] = ()) -> list[str]:
    """Shards of numbered samples: the number is the key, the red of the image, and the label."""
    paths, first = [], 0
    for place, size in enumerate(sizes):
        members: dict[str, bytes] = {}
        for number in range(first, first + size):
            members[f"{number:03}.cls"] = str(number).encode()
            members[f"{number:03}.png"] = b"not an image" if number in unreadable else encoded(number)
        paths.append(pack(folder / f"train-{place:03}.tar", members))
        first += size
    return paths


def noisy(image: Image.Image, label: int) -> tuple[torch.Tensor, int]:
    red = image.getpixel((0, 0))[0]  # pyright: ignore
    return torch.tensor([red, torch.rand(()).item()]), label


def stream(paths: list[str], batch: int = 2, samples: int = 24, **options) -> ShardStream:
    return ShardStream(paths, noisy, batch, samples, **options)


def numbers(batches: list[Batch]) -> list[int]:
    for batch in batches:
        assert batch.images[:, 0].tolist() == batch.targets.tolist()
        assert [int(name[:3]) for name in batch.names] == batch.targets.tolist()
    return [number for batch in batches for number in batch.targets.tolist()]


def same(one: list[Batch], other: list[Batch]) -> bool:
    return len(one) == len(other) and all(
        torch.equal(a.images, b.images) and a[2:] == b[2:] for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("buffer", [1, 3, 1000])
@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_of_even_shards_holds_each_sample_once(tmp_path: Path, buffer: int, workers: int):
    read = stream(stored(tmp_path, [6] * 4), buffer=buffer, workers=workers)
    batches = list(read.epoch(0))
    assert len(read) == len(batches) == 12
    assert sorted(numbers(batches)) == list(range(24))
    assert same(batches, list(read.epoch(0)))


def test_epochs_and_seeds_are_shuffled_differently(tmp_path: Path):
    paths = stored(tmp_path, [6] * 4)
    runs = [list(stream(paths, seed=seed).epoch(epoch)) for seed, epoch in ((0, 0), (0, 1), (1, 0))]
    orders = {tuple(numbers(run)) for run in runs}
    assert len(orders) == 3
    assert tuple(range(24)) not in orders
    starts = {numbers(list(stream(paths, buffer=1).epoch(epoch)))[0] for epoch in range(8)}
    assert len(starts) > 1, "not only samples, shards are shuffled too"
    views = [{row[0]: row[1] for batch in run for row in batch.images.tolist()} for run in runs]
    assert all(views[0][n] != views[1][n] != views[2][n] for n in range(24))


def test_a_buffer_mixes_shards(tmp_path: Path):
    paths = stored(tmp_path, [6] * 4)
    for buffer, mixed in ((1, False), (24, True)):
        order = numbers(list(stream(paths, buffer=buffer).epoch(0)))
        assert (len({n // 6 for n in order[:6]}) > 1) == mixed
    first = {numbers([next(stream(paths, batch=1).epoch(epoch))])[0] % 6 for epoch in range(12)}
    assert len(first) > 2, "the first sample is drawn from a full buffer"


def test_a_sample_is_augmented_by_its_key_alone(tmp_path: Path):
    paths = stored(tmp_path, [6] * 4)
    readers = [stream(paths), stream(paths, workers=2), stream(paths, ranks=Ranks(1, 2), buffer=1)]
    alone, helped, second = ({tuple(r) for b in reader.epoch(4) for r in b.images.tolist()} for reader in readers)
    assert alone == helped
    assert second < alone
    assert len({noise for _, noise in alone}) == 24


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_skipping_goes_on_exactly(tmp_path: Path, workers: int):
    read = stream(stored(tmp_path, [2, 9, 4, 5, 4], [3, 4, 12]), workers=workers, seed=7)
    whole = list(read.epoch(2))
    for skip in (1, 2, 5, 12) if workers else range(13):
        assert same(list(read.epoch(2, skip)), whole[skip:])


def test_skipped_images_are_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    decoded = []
    monkeypatch.setattr(shards, "decode_image", lambda *args: decoded.append(args) or decode_image(*args))
    assert len(list(stream(stored(tmp_path, [12, 12])).epoch(0, skip=9))) == 3
    assert len(decoded) == 6


def test_processes_share_the_shards(tmp_path: Path):
    paths = stored(tmp_path, [6] * 4)
    parts = [list(stream(paths, batch=4, ranks=Ranks(rank, 2)).epoch(0)) for rank in range(2)]
    assert [len(batch.names) for batch in parts[0]] == [2] * 6
    assert sorted(numbers(parts[0]) + numbers(parts[1])) == list(range(24))


@pytest.mark.parametrize("workers", [0, 2])
def test_uneven_shards_give_every_process_as_many_full_batches(tmp_path: Path, workers: int):
    paths = stored(tmp_path, [1, 3, 15, 5])
    parts = [list(stream(paths, 6, ranks=Ranks(rank, 2), workers=workers).epoch(0)) for rank in range(2)]
    assert [[len(batch.names) for batch in part] for part in parts] == [[3] * 4] * 2
    assert not {*numbers(parts[0])} & {*numbers(parts[1])}


def test_a_lane_repeats_a_sample_only_when_it_has_given_all(tmp_path: Path):
    paths = stored(tmp_path, [2, 3])
    times = Counter(numbers(list(stream(paths, samples=14, batch=1).epoch(0))))
    assert sorted(times) == list(range(5))
    assert {*times.values()} == {2, 3}
    order = numbers(list(stream(paths[1:], samples=12, batch=1).epoch(0)))
    rounds = {tuple(order[start : start + 3]) for start in range(0, 12, 3)}
    assert {tuple(sorted(turn)) for turn in rounds} == {(2, 3, 4)}
    assert len(rounds) > 1, "each round is shuffled anew"


def test_more_workers_than_shards_are_not_used(tmp_path: Path):
    paths = stored(tmp_path, [12, 12])
    assert same(list(stream(paths, workers=9).epoch(0)), list(stream(paths, workers=2).epoch(0)))


@pytest.mark.parametrize("workers", [0, 2])
def test_an_unreadable_sample_is_replaced_and_named(tmp_path: Path, workers: int):
    whole = list(stream(stored(tmp_path, [6] * 4), workers=workers).epoch(0))
    paths = stored(tmp_path, [6] * 4, [8])
    holed = list(stream(paths, workers=workers).epoch(0))
    before, after = numbers(whole), numbers(holed)
    (place,) = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    assert before[place] == 8
    assert 8 not in after
    reason = f"008 of {paths[1]} cannot be read as an image: UnidentifiedImageError"
    assert [batch.skipped for batch in holed] == [[reason] if 8 in numbers([batch]) else [] for batch in whole]


def test_shards_without_a_readable_image_are_an_error(tmp_path: Path):
    paths = stored(tmp_path, [4], range(4))
    with pytest.raises(BrokenShard, match=r"1000 samples in a row cannot be read; the first: 00\d of .*train-000.tar"):
        next(stream(paths, samples=4).epoch(0))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_torn_shard_is_named_wherever_it_is_torn(tmp_path: Path, workers: int):
    paths = stored(tmp_path, [3, 3])
    with tarfile.open(paths[1]) as archive:
        (*_, last) = archive
    whole = Path(paths[1]).read_bytes()
    end = last.offset_data + 512
    for cut in (0, 100, last.offset, last.offset + 200, last.offset_data, last.offset_data + 20, end):
        Path(paths[1]).write_bytes(whole[:cut])
        with pytest.raises(BrokenShard, match=rf"^the shard {paths[1]} cannot be read: [\w ]+$"):
            list(stream(paths, samples=6, workers=workers).epoch(0))
        if workers:
            return  # what is to be seen is that the sentence arrives as it is
    Path(paths[1]).write_bytes(whole[: end + 512])
    assert len(list(read_shards(paths))) == 6, "a block of zeros is an end"
    Path(paths[1]).write_bytes(whole[: last.offset] + b"\1" * 512 + whole[last.offset + 512 :])
    with pytest.raises(BrokenShard, match="cannot be read: invalid header"):
        list(read_shards(paths))


def test_what_is_no_shard_is_named(tmp_path: Path):
    text = tmp_path / "text.tar"
    text.write_text("a letter " * 100)
    empty = pack(tmp_path / "empty.tar", {})
    twice = tmp_path / "twice.tar"
    with tarfile.open(twice, "w") as archive:
        archive.addfile(tarfile.TarInfo("1.cls"))
        archive.addfile(tarfile.TarInfo("1.cls"))
    expected = {
        str(text): "cannot be read: ",
        empty: "holds no samples",
        str(twice): "cannot be read: 1.cls: duplicate file name",
        str(tmp_path / "gone.tar"): "cannot be read: No such file or directory",
        "ghost://somewhere/a.tar": "cannot be read: ghost://somewhere/a.tar: no gopen handler defined",
    }
    for shard, reason in expected.items():
        for read in (lambda shard: list(read_shards([shard])), lambda shard: next(stream([shard]).epoch(0))):
            with pytest.raises(BrokenShard) as error:
                read(shard)
            assert str(error.value).startswith(f"the shard {shard} {reason}")


def test_a_command_may_print_a_shard(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    paths = stored(tmp_path, [12, 12])
    piped = [f"pipe:cat {path}" for path in paths]
    plain = list(stream(paths).epoch(0))
    assert all(torch.equal(a.images, b.images) for a, b in zip(stream(piped).epoch(0), plain, strict=True))
    reader = read_shards([f"pipe:cat {paths[0]}; yes; exit 5"])  # more than is wanted, and not all of that is read
    assert next(reader)[1] == 0
    reader.close()
    broken = f"pipe:head -c 3000 {paths[0]}; exit 3"
    for shard in (broken, f"pipe:cat {tmp_path}/gone.tar"):
        with pytest.raises(BrokenShard, match=f"the shard {shard} cannot be read"):
            list(read_shards([shard]))
    assert "gone.tar" in capfd.readouterr().err


def test_evaluation_reads_in_order_and_stops_at_what_it_cannot_read(tmp_path: Path):
    paths = stored(tmp_path, [2, 3], [4])
    reader = read_shards(paths)
    found = [next(reader) for _ in range(4)]
    assert [label for _, label, _ in found] == [image.getpixel((0, 0))[0] for image, *_ in found] == [0, 1, 2, 3]
    with pytest.raises(Unreadable, match=f"004 of {paths[1]} cannot be read as an image"):
        next(reader)


def test_two_processes_read_each_sample_once(tmp_path: Path):
    paths = stored(tmp_path, [2, 3])
    labels = [[label for _, label, _ in read_shards(paths, Ranks(rank, 2))] for rank in range(2)]
    assert labels == [[0, 2, 4], [1, 3]]


def test_members_of_a_sample(tmp_path: Path):
    image = Image.new("RGB", (3, 2))
    files = {}
    for number, (suffix, kind) in enumerate({"jpg": "JPEG", "JPEG": "JPEG", "webp": "WEBP"}.items()):
        buffer = BytesIO()
        image.save(buffer, kind)
        files |= {f"a/{number}.{suffix}": buffer.getvalue(), f"a/{number}.cls": b"7\n", f"a/{number}.txt": b"words"}
    path = pack(tmp_path / "a.tar", files)
    assert [label for _, label, _ in read_shards([path])] == [7] * 3
    for members in ({"1.png": encoded(0)}, {"1.cls": b"7"}, {"1.png": encoded(0), "1.cls": b"cat"}):
        path = pack(tmp_path / "b.tar", members)
        with pytest.raises(Unreadable, match=f"1 of {path} has no image or no label in digits"):
            list(read_shards([path]))


def test_shards_are_found(tmp_path: Path):
    (tmp_path / "val").mkdir()
    beside, inside = stored(tmp_path, [1] * 3), stored(tmp_path / "val", [1] * 2)
    assert find_shards(str(tmp_path), "train") == beside
    assert find_shards(str(tmp_path), "val") == inside
    assert find_shards(str(tmp_path), "test") is None
    assert find_shards("scenes", "train") is None
    assert find_shards(f"{tmp_path}/train-{{000..002}}.tar", "train") == beside
    assert find_shards(f"{tmp_path}/{{split}}-{{000..002}}.tar", "train") == beside
    assert find_shards("pipe:curl http://a/{split}-{8..10}.tar", "val") == [
        f"pipe:curl http://a/val-{n}.tar" for n in (8, 9, 10)
    ]
    with pytest.raises(FileNotFoundError, match=f"there is no shard {tmp_path}/train-003.tar"):
        find_shards(f"{tmp_path}/train-{{000..005}}.tar", "train")
    (tmp_path / "pipes-0.tar").mkdir()
    with pytest.raises(ValueError, match=r"the shard .*pipes-0\.tar is not a regular file"):
        find_shards(str(tmp_path), "pipes")


def test_how_many_samples_there_are_is_read_beside_the_shards(tmp_path: Path):
    paths = stored(tmp_path, [3, 5])
    with pytest.raises(ValueError, match=r"train-000.tar holds is not known: give the number of samples, or put a siz"):
        ShardStream(paths, noisy, 2)
    (tmp_path / "sizes.json").write_text(json.dumps({"train-000.tar": 3, "train-001.tar": 5, "val-000.tar": 9}))
    assert len(ShardStream(paths, noisy, 2)) == 4
    assert count_samples(paths[1:]) == 5
    (tmp_path / "sizes.json").unlink()
    part = {"filenames": ["train-000.tar", "train-001.tar"], "shard_lengths": [3, 5], "num_samples": 8}
    (tmp_path / "_info.json").write_text(json.dumps({"splits": {"train": part}}))
    assert count_samples(paths) == 8
    with pytest.raises(ValueError, match=r"http://a/b.tar holds is not known"):
        count_samples(["http://a/b.tar"])


def test_what_cannot_be_shared_or_filled_is_refused(tmp_path: Path):
    paths = stored(tmp_path, [3])
    with pytest.raises(ValueError, match="a batch of 5 cannot be shared evenly by 2 processes"):
        stream(paths, 5, ranks=Ranks(0, 2))
    with pytest.raises(ValueError, match="2 processes need as many shards, the data has 1"):
        stream(paths, 4, ranks=Ranks(0, 2))
    with pytest.raises(ValueError, match="a batch of 4 needs as many samples, the data has 3"):
        stream(paths, 4, samples=3)


def test_a_missing_reader_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "webdataset", None)
    with pytest.raises(ValueError, match=r"^webdataset is not installed; .* pip install '.\[train\]'$"):
        stream(stored(tmp_path, [3]))


def test_a_label_beyond_the_classes_is_skipped_in_training_and_stops_evaluation(tmp_path: Path):
    paths = stored(tmp_path, [4])
    [*batches] = ShardStream(paths, noisy, 2, 4, classes=2).epoch(0)
    assert all(target < 2 for batch in batches for target in batch.targets)
    assert any("but there are 2 classes" in reason for batch in batches for reason in batch.skipped)
    with pytest.raises(Unreadable, match="has the label 2, but there are 2 classes"):
        [*ShardedImages(paths, lambda image: image, classes=2)]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("sizes.json", "5", "it must be an object, got 5"),
        ("sizes.json", '{"a.tar": "many"}', "it must be a whole number"),
        ("sizes.json", "[" * 100_000, "is not JSON: it is nested too deeply"),
        ("_info.json", "[]", "must list filenames and shard_lengths"),
        ("_info.json", '{"splits": {"train": {"filenames": ["a"], "shard_lengths": []}}}', "must list filenames"),
        ("_info.json", '{"splits": 3}', "must list filenames"),
    ],
)
def test_counts_of_the_wrong_shape_are_a_sentence(name: str, content: str, said: str, tmp_path: Path):
    paths = stored(tmp_path, [2])
    for other in ("sizes.json", "_info.json"):
        (tmp_path / other).unlink(missing_ok=True)
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=said):
        count_samples(paths)


def test_more_than_any_memory_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ValueError, match=r"stands for more than 1,000,000 shards"):
        find_shards("a-{0..9}-{0..999999999}.tar", "train")
    monkeypatch.setattr(shards, "LARGEST_MEMBER", 2)
    with pytest.raises(ValueError, match=r"cannot be read: its member .* has 0\.0 GB"):
        [*read_shards(stored(tmp_path, [2]))]
