"""WebDataset shards: tar files of images and labels, read from end to end, for data beyond one disk.

A sample is the members of one key: an image (jpg, jpeg, png or webp) and `cls`, its label in digits.

The shards of an epoch are shuffled and dealt to the processes, then to each one's workers: a worker is a lane, and
batch b comes from lane b mod lanes. So the batches depend on (seed, epoch, processes, workers) and on nothing else.
"""

import random
import re
import tarfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, count, islice
from math import prod
from pathlib import Path
from typing import Any
from zlib import crc32

import torch
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from prism.data.images import Unreadable, decode_image
from prism.data.sources import optional
from prism.data.stream import (
    ALONE,
    Batch,
    Collate,
    Ranks,
    Sample,
    Transform,
    check_batch,
    seed_of,
    seed_transforms,
    stacked,
)
from prism.model.checks import DIGITS, MOST, read_json, several, table, text, whole

SUFFIXES = ("jpg", "jpeg", "png", "webp")
LARGEST_MEMBER = 2**30  # bytes: more than any image that is read
MOST_SHARDS = 10**6
HOPELESS = 1000  # so many unreadable samples in a row are no accident

Raw = dict[str, Any]  # the members of a sample by suffix, and its __key__ and __url__


class BrokenShard(ValueError):
    """A shard that cannot be read to its end: unlike one unreadable image, this stops training too."""


class ShardStream:
    """Random batches of sharded samples. `shards` are paths, urls, or "pipe:" and a command that prints a tar file.

    `batch` is that of all processes together, and `samples` is how many all shards hold: an epoch is as many batches
    as they fill, in every process. Where a lane's shards hold fewer, it begins them again; where they hold more, the
    rest is left out, a different one each epoch. `buffer` is how many samples a lane holds to draw from at random. An
    unreadable sample is replaced by the next one.
    """

    def __init__(
        self,
        shards: Sequence[str],
        transform: Transform,
        batch: int,
        samples: int | None = None,
        seed: int = 0,
        ranks: Ranks = ALONE,
        workers: int = 0,
        buffer: int = 1000,
        collate: Collate | None = None,
        classes: int | None = None,
    ):
        samples = count_samples(shards) if samples is None else samples
        check_batch(batch, ranks, samples)
        if len(shards) < ranks.world:
            raise ValueError(f"{ranks.world} processes need as many shards, the data has {len(shards)}")
        optional("webdataset")
        self.shards, self.transform, self.seed, self.ranks = list(shards), transform, seed, ranks
        self.buffer, self.collate, self.classes = buffer, collate or stacked, classes
        self.workers = min(workers, len(shards) // ranks.world)  # a lane without a shard would have nothing to give
        self.lanes = max(1, self.workers)
        self.share, self._length = batch // ranks.world, samples // batch

    def __len__(self) -> int:
        return self._length

    def epoch(self, number: int, skip: int = 0) -> Iterator[Batch]:
        """From the batch after the first `skip` ones, whose images are not decoded."""
        loader = DataLoader(
            _Lanes(self, number, skip),
            batch_size=None,
            num_workers=self.workers,
            collate_fn=_as_it_is,
            pin_memory=torch.cuda.is_available(),
            prefetch_factor=4 if self.workers else None,
        )
        return map(_raised, loader)

    def lane(self, epoch: int, skip: int, worker: int) -> Iterator[Batch]:
        """What this worker gives. Worker 0 is asked first, so it takes the lane of the first batch not skipped."""
        lane = (worker + skip) % self.lanes
        done = len(range(lane, skip, self.lanes))
        samples = self._viewed(islice(self._raw(epoch, lane), done * self.share, None), epoch)
        for _ in range(lane, len(self), self.lanes)[done:]:
            yield self.collate(list(islice(samples, self.share)))

    def _raw(self, epoch: int, lane: int) -> Iterator[Raw]:
        """Without end. Every round holds each sample of the lane once."""
        order = random.Random(seed_of(self.seed, epoch)).sample(self.shards, len(self.shards))
        own = order[self.ranks.rank :: self.ranks.world][lane :: self.lanes]
        for turn in count():
            seed = seed_of(self.seed, epoch, self.ranks.rank, lane, turn)
            shuffle = optional("webdataset").shuffle(self.buffer, initial=self.buffer, seed=seed)
            yield from shuffle(chain.from_iterable(map(_samples, own)))

    def _viewed(self, raw: Iterator[Raw], epoch: int) -> Iterator[Sample]:
        """One for each raw sample. What stands in for an unreadable one keeps its own turn as well: otherwise how many
        samples a batch uses up could not be known without decoding them, and none could be skipped.
        """
        ahead: deque[Raw] = deque()
        while True:
            sample = _first_readable(ahead, raw, self.classes)
            seed_transforms(
                seed_of(self.seed, epoch, crc32(ahead.popleft()["__key__"].encode(errors="surrogateescape")))
            )
            image, target = self.transform(sample.image, sample.target)
            yield sample._replace(image=image, target=target)


class ShardedImages(IterableDataset[tuple[Any, int, str]]):
    """(transformed image, label, name) of a process's part of all samples, for evaluation; an unreadable one stops it.

    Every process and worker reads all shards and decodes its own samples only.
    """

    def __init__(
        self,
        shards: Sequence[str],
        transform: Callable[[Image.Image], Any],
        ranks: Ranks = ALONE,
        classes: int | None = None,
    ):
        optional("webdataset")
        self.shards, self.transform, self.ranks, self.classes = list(shards), transform, ranks, classes

    def __iter__(self) -> Iterator[tuple[Any, int, str]]:
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        first, step = self.ranks.rank * workers + worker, self.ranks.world * workers
        for raw in islice(chain.from_iterable(map(_samples, self.shards)), first, None, step):
            image, label = _decoded(raw, self.classes)
            yield self.transform(image), label, _name(raw)


def find_shards(data: str, split: str) -> list[str] | None:
    """The shards that are `data`, or None if it is something else.

    A folder holds them as split/*.tar or split-*.tar. A path, url or pipe may have braces, a-{000..127}.tar; in it
    {split} stands for the split, and without that it is what it is for every split.
    """
    if (".tar" in data or data.startswith("pipe:")) and not Path(data).is_dir():
        ranges = [(int(first), int(last)) for first, last in re.findall(r"\{(-?\d+)\.\.(-?\d+)", data)]
        if prod(1 + abs(last - first) for first, last in ranges) > MOST_SHARDS:  # it would list them all
            raise ValueError(f"{data[:200]} stands for more than {MOST_SHARDS:,} shards")
        shards = list(optional("braceexpand").braceexpand(data.replace("{split}", split)))
        if missing := [shard for shard in shards if ":" not in shard and not Path(shard).is_file()]:
            raise FileNotFoundError(f"there is no shard {missing[0]}")
        return shards
    folder = Path(data)
    shards = [*(folder / split).glob("*.tar")] or [*folder.glob(f"{split}-*.tar")]
    if strange := next((shard for shard in shards if not shard.is_file()), None):
        raise ValueError(f"the shard {strange} is not a regular file")
    return sorted(map(str, shards)) or None


def count_samples(shards: Sequence[str]) -> int:
    """As told beside them by a sizes.json (open_clip's: samples by file) or an _info.json (timm's)."""
    known: dict[Path, int] = {}
    for folder in {Path(shard).parent for shard in shards}:
        if (folder / "sizes.json").is_file():
            known |= {folder / file: size for file, size in _sizes(folder / "sizes.json").items()}
        if (folder / "_info.json").is_file():
            known |= {folder / file: size for file, size in _info_sizes(folder / "_info.json").items()}
    if unknown := [shard for shard in shards if Path(shard) not in known]:
        raise ValueError(
            f"how many samples {unknown[0]} holds is not known: give the number of samples, or put a sizes.json "
            'beside the shards, such as {"train-0000.tar": 1000}'
        )
    return sum(known[Path(shard)] for shard in shards)


SAMPLES = whole(0, 10**12)


def _sizes(path: Path) -> dict[str, int]:
    found = read_json(path)
    if reason := table(found) or next(filter(None, map(SAMPLES, found.values())), ""):
        raise ValueError(f"{path} must hold samples by file: it {reason}")
    return found


def _info_sizes(path: Path) -> dict[str, int]:
    found: Any = read_json(path)
    sizes: dict[str, int] = {}
    parts = found.get("splits") if isinstance(found, dict) else None
    for part in parts.values() if isinstance(parts, dict) else [None]:
        listed: Any = part if isinstance(part, dict) else {}
        names, counts = listed.get("filenames"), listed.get("shard_lengths")
        if several(text, 0, MOST)(names) or several(SAMPLES, len(names), len(names))(counts):
            raise ValueError(f"{path} must list filenames and shard_lengths of its splits")
        sizes |= dict(zip(names, counts, strict=True))
    return sizes


class _Lanes(IterableDataset[Batch | BrokenShard]):
    """A worker's lane. What is wrong with a shard is handed over: raised there, it would arrive as a traceback."""

    def __init__(self, stream: ShardStream, epoch: int, skip: int):
        self.stream, self.epoch, self.skip = stream, epoch, skip

    def __iter__(self) -> Iterator[Batch | BrokenShard]:
        info = get_worker_info()
        try:
            yield from self.stream.lane(self.epoch, self.skip, info.id if info else 0)
        except BrokenShard as error:
            yield error


class _Member(tarfile.TarInfo):
    """Only a block of zeros ends an archive; tarfile takes any broken header for the end, and the rest would be lost
    without a word."""

    @classmethod
    def frombuf(cls, buf: Any, encoding: str, errors: str) -> "_Member":
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if bytes(buf) == bytes(tarfile.BLOCKSIZE):
                raise
            raise tarfile.ReadError(str(error)) from None


def _samples(shard: str) -> Iterator[Raw]:
    empty = True
    try:
        for raw in optional("webdataset.tariterators").group_by_keys(_members(shard)):
            yield raw
            empty = False
    except ModuleNotFoundError:
        raise
    except Exception as error:  # whatever a decompressor raises
        reason = getattr(error, "strerror", None) or next(iter(error.args), "") or type(error).__name__
        raise BrokenShard(f"the shard {shard} cannot be read: {reason}") from None
    if empty:
        raise BrokenShard(f"the shard {shard} holds no samples")


def _members(shard: str) -> Iterator[Raw]:
    """As group_by_keys wants them."""
    opener = optional("webdataset.gopen")
    with opener.gopen(shard) as stream:
        # a command that stops early is seen by the broken archive, and one that we stop early did nothing wrong
        opener.set_options(stream, ignore_errors=True)
        with tarfile.open(fileobj=stream, mode="r|*", tarinfo=_Member) as archive:
            for member in archive:
                if member.size > LARGEST_MEMBER:  # a small archive may unpack to more than any memory
                    raise ValueError(f"its member {member.name} has {member.size / 1e9:.1f} GB")
                if content := archive.extractfile(member):
                    yield {"fname": member.name, "data": content.read(), "__url__": shard}


def _first_readable(ahead: deque[Raw], raw: Iterator[Raw], classes: int | None) -> Sample:
    """Of those ahead, which grow as needed."""
    skipped: list[str] = []
    for place in range(HOPELESS):
        if place == len(ahead):
            ahead.append(next(raw))
        try:
            return Sample(*_decoded(ahead[place], classes), _name(ahead[place]), tuple(skipped))
        except Unreadable as error:
            skipped.append(str(error))
    raise BrokenShard(f"{HOPELESS} samples in a row cannot be read; the first: {skipped[0]}")


def _decoded(raw: Raw, classes: int | None) -> tuple[Image.Image, int]:
    content = next((raw[suffix] for suffix in SUFFIXES if suffix in raw), None)
    label = raw.get("cls", b"").strip()
    if content is None or not label.isdigit():
        members = ", ".join(suffix for suffix in raw if not suffix.startswith("__"))
        raise Unreadable(f"{_name(raw)} has no image or no label in digits among its members: {members}")
    if len(label) > DIGITS or (classes is not None and int(label) >= classes):
        raise Unreadable(f"{_name(raw)} has the label {label.decode()[:80]}, but there are {classes} classes")
    return decode_image(content, _name(raw)), int(label)


def _name(raw: Raw) -> str:
    return f"{raw['__key__']} of {raw['__url__']}"


def _as_it_is(batch: Any) -> Any:
    return batch


def _raised(batch: Batch | BrokenShard) -> Batch:
    if isinstance(batch, BrokenShard):
        raise batch
    return batch
