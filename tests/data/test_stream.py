import random
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from prism.data.images import Unreadable
from prism.data.stream import Batch, Ranks, ShuffledStream, listed, seed_of


class Numbers:
    """Sample n is (n, n % 3); some cannot be read."""

    def __init__(self, length: int, unreadable: Sequence[int] = ()):
        self.length, self.unreadable = length, unreadable

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[int, int]:
        if index in self.unreadable:
            raise Unreadable(f"number {index} cannot be read")
        return index, index % 3

    def name(self, index: int) -> str:
        return f"number {index}"


def noisy(number: int, label: int) -> tuple[torch.Tensor, int]:
    """(4,): the sample, and what each of the three generators says of it."""
    return torch.tensor([number, torch.rand(()).item(), np.random.rand(), random.random()]), label


def stream(length: int = 22, batch: int = 4, unreadable: Sequence[int] = (), **options) -> ShuffledStream:
    return ShuffledStream(Numbers(length, unreadable), noisy, batch, **options)


def same(one: list[Batch], other: list[Batch]) -> bool:
    return len(one) == len(other) and all(
        torch.equal(a.images, b.images) and torch.equal(a.targets, b.targets) and a[2:] == b[2:]
        for a, b in zip(one, other, strict=True)
    )


def numbers(batches: list[Batch]) -> list[int]:
    return [int(image[0]) for batch in batches for image in batch.images]


def test_workers_do_not_change_the_batches():
    alone, helped = (list(stream(unreadable=[5], workers=workers).epoch(3)) for workers in (0, 2))
    assert len(alone) == 5
    assert same(alone, helped)


def test_an_epoch_holds_each_sample_at_most_once_and_fills_its_batches():
    read = stream()
    batches = list(read.epoch(0))
    assert len(read) == len(batches) == 22 // 4
    assert len(set(numbers(batches))) == 20
    assert all(batch.targets.tolist() == [int(p[0]) % 3 for p in batch.images] for batch in batches)
    assert [n for batch in batches for n in batch.names] == [f"number {n}" for n in numbers(batches)]


def test_epochs_and_seeds_differ_and_repeat():
    first, again = list(stream(seed=1).epoch(0)), list(stream(seed=1).epoch(0))
    assert same(first, again)
    for other in (list(stream(seed=1).epoch(1)), list(stream(seed=2).epoch(0))):
        assert numbers(first) != numbers(other)
        views = [{int(p[0]): p[1:].tolist() for batch in epoch for p in batch.images} for epoch in (first, other)]
        assert all(views[0][n] != views[1][n] for n in views[0].keys() & views[1].keys())


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("grouped", [False, True])
def test_skipping_goes_on_exactly(workers: int, grouped: bool):
    read = stream(unreadable=[2, 9], workers=workers, groups=[n % 2 for n in range(22)] if grouped else None)
    whole = list(stream(unreadable=[2, 9], groups=read.groups).epoch(1))
    assert same(list(read.epoch(1, skip=3)), whole[3:])
    assert list(read.epoch(1, skip=len(read))) == []


def test_the_parts_of_the_processes_make_up_the_batch():
    alone = list(stream(batch=6).epoch(2))
    parts = [list(stream(batch=6, ranks=Ranks(rank, 2)).epoch(2)) for rank in range(2)]
    assert [len(part[0].names) for part in parts] == [3, 3]
    for whole, first, second in zip(alone, *parts, strict=True):
        assert torch.equal(whole.images, torch.cat([first.images, second.images]))
        assert torch.equal(whole.targets, torch.cat([first.targets, second.targets]))
        assert whole.names == first.names + second.names


def test_batches_hold_one_group_but_for_what_is_left_of_all():
    groups = [0] * 13 + [1] * 6 + [2] * 3
    read = stream(groups=groups)
    batches = list(read.epoch(0))
    assert len(read) == len(batches) == 22 // 4
    kinds = [{groups[n] for n in numbers([batch])} for batch in batches]
    assert (kinds.count({0}), kinds.count({1})) == (3, 1)
    [mixed] = [kind for kind in kinds if len(kind) > 1]
    assert 2 in mixed, "a group that fills no batch is trained too"
    orders = {tuple(groups[numbers([b])[0]] for b in read.epoch(epoch)) for epoch in range(6)}
    assert len(orders) > 1, "the groups take turns at random"


@pytest.mark.parametrize("workers", [0, 2])
def test_an_unreadable_sample_is_replaced_and_named(workers: int):
    whole = list(stream(length=8, workers=workers).epoch(0))
    holed = list(stream(length=8, unreadable=[6, 7], workers=workers).epoch(0))
    expected = {6: 0, 7: 0}  # the next that can be read, around the end
    assert numbers(holed) == [expected.get(n, n) for n in numbers(whole)]
    reasons = {6: ["number 6 cannot be read", "number 7 cannot be read"], 7: ["number 7 cannot be read"]}
    for before, after in zip(whole, holed, strict=True):
        assert after.skipped == [reason for n in numbers([before]) for reason in reasons.get(n, [])]
        assert after.names == [f"number {n}" for n in numbers([after])]


def test_data_of_which_nothing_can_be_read_is_an_error():
    with pytest.raises(ValueError, match="none of the 4 samples can be read; the first: number"):
        list(stream(length=4, unreadable=range(4)).epoch(0))


def test_what_cannot_be_shared_or_filled_is_refused():
    with pytest.raises(ValueError, match="a batch of 5 cannot be shared evenly by 2 processes"):
        stream(batch=5, ranks=Ranks(0, 2))
    with pytest.raises(ValueError, match="a batch of 4 needs as many samples, the data has 3"):
        stream(length=3)
    assert len(stream(length=4)) == 1


def test_lists_hold_what_cannot_be_stacked():
    def ragged(number: int, label: int) -> tuple[torch.Tensor, dict[str, int]]:
        return torch.zeros(number), {"label": label}

    (batch,) = ShuffledStream(Numbers(3), ragged, 3, collate=listed).epoch(0)
    assert sorted(len(image) for image in batch.images) == [0, 1, 2]
    assert [target["label"] for target in batch.targets] == [len(image) for image in batch.images]


def test_seeds_are_well_mixed():
    seeds = [seed_of(a, b, c) for a in range(8) for b in range(8) for c in range(8)]
    assert len(set(seeds)) == 8**3
    assert seed_of(1, 2) != seed_of(2, 1)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert np.mean([seed % 2 for seed in seeds]) == pytest.approx(0.5, abs=0.1)
