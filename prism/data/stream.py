"""Batches for training: the same ones whatever the number of workers, processes, and interruptions.

Which samples a batch holds depends on (seed, epoch), and how a sample is augmented on (seed, epoch, index); nothing
else has a say. A run that was killed goes on with the very batch it would have seen, and two processes see the halves
of the batch that one would see.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, default_collate

from prism.data.images import Unreadable


class Ranks(NamedTuple):
    """Which of how many processes this is."""

    rank: int = 0
    world: int = 1


ALONE = Ranks()


class Sample(NamedTuple):
    """One training sample, its image and its target as the transform made them."""

    image: Any
    target: Any
    name: str
    skipped: tuple[str, ...] = ()  # why each sample that it stands in for could not be read


class Batch(NamedTuple):
    images: Any
    targets: Any
    names: list[str]
    skipped: list[str]


class Samples(Protocol):
    """(image as PIL reads it, target) by index. One that cannot be read raises Unreadable, which names it."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> tuple[Any, Any]: ...
    def name(self, index: int) -> str: ...


class Stream(Protocol):
    """What the training loop reads: this process's part of every batch of an epoch."""

    def __len__(self) -> int: ...
    def epoch(self, number: int, skip: int = 0) -> Iterator[Batch]: ...


Transform = Callable[[Any, Any], tuple[Any, Any]]
Collate = Callable[[Sequence[Sample]], Batch]


@dataclass
class ShuffledStream:
    """Random batches of an indexed data set, each sample once per epoch; what does not fill a batch is left out.

    `batch` is that of all processes together. `transform` augments a raw pair; it may draw from torch's, numpy's and
    Python's generators, which are seeded for each sample. An unreadable sample is replaced by the next one.
    """

    samples: Samples
    transform: Transform
    batch: int
    seed: int = 0
    ranks: Ranks = ALONE
    workers: int = 0
    collate: Collate | None = None
    groups: Sequence[int] | None = None

    def __post_init__(self) -> None:
        check_batch(self.batch, self.ranks, len(self.samples))

    def __len__(self) -> int:
        return len(self.samples) // self.batch

    def epoch(self, number: int, skip: int = 0) -> Iterator[Batch]:
        """From the batch after the first `skip` ones."""
        loader = DataLoader(
            _Transformed(self.samples, self.transform, self.seed, number),
            batch_sampler=self._own(self._batches(number)[skip:]),  # pyright: ignore[reportArgumentType]
            num_workers=self.workers,
            collate_fn=self.collate or stacked,
            pin_memory=torch.cuda.is_available(),
            prefetch_factor=4 if self.workers else None,
        )
        return iter(loader)

    def _batches(self, epoch: int) -> list[list[int]]:
        """Of the whole world. With `groups` (such as tall and wide), batches hold samples of one group; what is left
        of all groups makes up the last ones, so that a small group is not passed over."""
        generator = torch.Generator().manual_seed(seed_of(self.seed, epoch))
        order = torch.randperm(len(self.samples), generator=generator)
        if self.groups is None:
            return _full_batches(order.tolist(), self.batch)
        group = torch.tensor(self.groups)[order]
        parts = [order[group == g].tolist() for g in group.unique()]
        left = [index for part in parts for index in part[len(part) // self.batch * self.batch :]]
        batches = [batch for part in (*parts, left) for batch in _full_batches(part, self.batch)]
        return [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]

    def _own(self, batches: list[list[int]]) -> list[list[int]]:
        """This process's stretch of each: stretches in rank order make up the batch."""
        share = self.batch // self.ranks.world
        first = self.ranks.rank * share
        return [indices[first : first + share] for indices in batches]


def check_batch(batch: int, ranks: Ranks, samples: int) -> None:
    if batch % ranks.world:
        raise ValueError(f"a batch of {batch} cannot be shared evenly by {ranks.world} processes")
    if samples < batch:
        raise ValueError(f"a batch of {batch} needs as many samples, the data has {samples}")


def seed_of(*numbers: int) -> int:
    """One 63-bit seed for several numbers, well mixed: (1, 2) and (2, 1) are strangers."""
    low, high = np.random.SeedSequence([len(numbers), *numbers]).generate_state(2)
    return (int(high) << 32 | int(low)) & (2**63 - 1)


def seed_everything(seed: int) -> None:
    torch.manual_seed(seed)
    seed_transforms(seed)


def seed_transforms(seed: int) -> None:
    """The same for what runs on a CPU only: asking after every accelerator takes longer than to decode an image."""
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def stacked(samples: Sequence[Sample]) -> Batch:
    """Images of one size, and targets that are numbers or of one size, as two tensors."""
    batch = listed(samples)
    return batch._replace(images=torch.stack(batch.images), targets=default_collate(batch.targets))


def listed(samples: Sequence[Sample]) -> Batch:
    """Images of many sizes and targets of any kind, as lists."""
    return Batch(
        [sample.image for sample in samples],
        [sample.target for sample in samples],
        [sample.name for sample in samples],
        [reason for sample in samples for reason in sample.skipped],
    )


@dataclass
class _Transformed(Dataset[Sample]):
    samples: Samples
    transform: Transform
    seed: int
    epoch: int

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Sample:
        skipped: list[str] = []
        for offset in range(len(self.samples)):
            at = (index + offset) % len(self.samples)
            try:
                image, target = self.samples[at]
            except Unreadable as error:
                skipped.append(str(error))
                continue
            seed_transforms(seed_of(self.seed, self.epoch, index))
            return Sample(*self.transform(image, target), self.samples.name(at), tuple(skipped))
        raise ValueError(f"none of the {len(self.samples)} samples can be read; the first: {skipped[0]}")


def _full_batches(order: list[int], batch: int) -> list[list[int]]:
    return [order[first:end] for first, end in pairwise(range(0, len(order) + 1, batch))]
