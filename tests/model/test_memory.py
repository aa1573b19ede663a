import pytest
import torch
from torch import Tensor
from vector_quantize_pytorch import VectorQuantize

from prism.model.memory import Codebook, SlotMemory, k_means, nearest


def started(num_codes: int = 6, dim: int = 3, decay: float = 0.8) -> Codebook:
    """A codebook that is past its start, all codes in use."""
    book = Codebook(num_codes, dim, decay).double()
    book.counts.copy_(torch.rand(num_codes) + 1)
    book.sums.copy_(book.codes * book.counts[:, None])
    book.updates.fill_(1)
    return book


def closest(features: Tensor, codes: Tensor) -> Tensor:
    return nearest(features, codes, codes.square().sum(-1))


def observe(book: Codebook, features: Tensor) -> Tensor:
    indices = closest(features, book.codes)
    book.collect(features, indices)
    return indices


def memory(literal: bool) -> SlotMemory:
    return SlotMemory(dim=4, code_dim=3, num_codes=8, beta=0.25, decay=0.9, literal=literal).double()


def test_nearest_by_loops():
    features, codes = torch.randn(2, 5, 3, dtype=torch.float64), torch.randn(7, 3, dtype=torch.float64)
    found = closest(features, codes)
    for b in range(2):
        for k in range(5):
            distances = [sum((features[b, k] - code) ** 2).item() for code in codes]
            assert found[b, k] == distances.index(min(distances))


def test_nearest_is_float32_under_autocast():
    """Two codes that bfloat16 cannot tell apart."""
    codes = torch.tensor([[100.0, 0.0], [100.1, 0.0]])
    features = torch.tensor([[100.09, 0.0], [100.01, 0.0]])
    with torch.autocast("cpu", torch.bfloat16):
        assert closest(features, codes).tolist() == [1, 0]


def test_update_matches_vector_quantize_pytorch():
    book = started(num_codes=6, dim=3, decay=0.8)
    quantiser = VectorQuantize(dim=3, codebook_size=6, decay=0.8, eps=1e-5, threshold_ema_dead_code=0).double().train()
    oracle = quantiser._codebook
    oracle.embed.data.copy_(book.codes[None])
    oracle.embed_avg.data.copy_(book.sums[None])
    oracle.cluster_size.data.copy_(book.counts[None])
    for _ in range(4):
        features = torch.randn(40, 3, dtype=torch.float64)
        indices = observe(book, features)
        _, expected, _ = quantiser(features[None])
        assert torch.equal(indices, expected.flatten())
        book.update()
        torch.testing.assert_close(book.codes, oracle.embed[0], rtol=0, atol=1e-6)  # it casts to float32 inside
        torch.testing.assert_close(book.counts, oracle.cluster_size[0], rtol=0, atol=1e-6)


def test_several_collections_are_one_update():
    whole, parts = started(), started()
    parts.load_state_dict(whole.state_dict())
    features = torch.randn(30, 3, dtype=torch.float64)
    observe(whole, features)
    for part in features.split(7):
        observe(parts, part)
    whole.update()
    parts.update()
    torch.testing.assert_close(whole.codes, parts.codes)
    assert whole.updates == parts.updates == 2


def test_a_file_without_sums_trains_on_as_one_with_them():
    whole, without = started(), started()
    observe(whole, torch.randn(30, 3, dtype=torch.float64))
    whole.update()
    without.load_state_dict({name: value for name, value in whole.state_dict().items() if name != "sums"})
    features = torch.randn(30, 3, dtype=torch.float64)
    for book in (whole, without):
        observe(book, features)
        book.update()
    torch.testing.assert_close(without.codes, whole.codes)
    torch.testing.assert_close(without.sums, whole.sums)


def test_update_without_collections_changes_nothing():
    book = started()
    before = {key: value.clone() for key, value in book.state_dict().items()}
    book.update()
    assert all(torch.equal(before[key], value) for key, value in book.state_dict().items())


def test_features_that_overflowed_are_left_out():
    clean, spoilt = started(), started()
    spoilt.load_state_dict(clean.state_dict())
    features = torch.randn(30, 3, dtype=torch.float64)
    observe(clean, features)
    observe(spoilt, torch.cat([features, torch.full((1, 3), torch.nan), torch.full((1, 3), torch.inf)]))
    clean.update()
    spoilt.update()
    assert torch.equal(clean.codes, spoilt.codes)


def test_first_update_starts_from_the_data():
    """Four tight clusters far from the initial codes: k-means puts codes on all of them, and none elsewhere."""
    centres = torch.tensor([[50.0, 0], [0, 50], [-50, 0], [0, -50]])
    features = (centres[:, None] + 0.1 * torch.randn(4, 32, 2)).flatten(0, 1)
    book = Codebook(num_codes=12, dim=2)
    observe(book, features)
    book.update()
    distance = torch.cdist(book.codes, centres)
    assert distance.min(1).values.max() < 1
    assert distance.min(0).values.max() < 1
    assert book.counts.sum() == len(features)


def test_start_with_fewer_features_than_codes():
    book = Codebook(num_codes=10, dim=2)
    features = torch.randn(3, 2)
    observe(book, features)
    book.update()
    assert book.codes.isfinite().all()
    assert torch.cdist(features, book.codes).min(1).values.max() < 1e-6
    for _ in range(3):  # the surplus codes restart as features arrive
        observe(book, torch.randn(20, 2))
        book.update()
    assert book.usage() == 1


def test_dead_codes_restart_from_live_features():
    book = started(num_codes=6, decay=0.5)
    book.codes[2] = 1000.0
    book.sums[2] = 1000.0 * book.counts[2]
    for _ in range(12):
        features = torch.randn(50, 3, dtype=torch.float64)
        observe(book, features)
        book.update()
    assert book.codes[2].abs().max() < 10
    assert book.usage() == 1
    assert book.perplexity() > 3


def test_perplexity_is_the_effective_number_of_codes():
    book = Codebook(4, 2)
    book.counts.copy_(torch.tensor([3.0, 3.0, 0.0, 0.0]))
    assert book.perplexity().item() == pytest.approx(2)
    assert book.usage().item() == pytest.approx(0.5)


def test_k_means_centres_are_means_of_their_members():
    features = torch.randn(60, 2, dtype=torch.float64)
    centres, members = k_means(features, 5, torch.Generator().manual_seed(0))
    assert members.sum() == 60
    for _ in range(20):  # let it settle, then every centre is the mean of what is nearest to it
        chosen = closest(features, centres)
        centres = torch.stack([features[chosen == m].mean(0) for m in range(5)])
    again, _ = k_means(centres, 5, torch.Generator().manual_seed(1))
    torch.testing.assert_close(again.sort(0).values, centres.sort(0).values)


def test_a_caller_that_never_updates_does_not_pile_up():
    book = Codebook(4, 2)
    for _ in range(500):
        observe(book, torch.randn(8, 2))
    assert sum(len(features) for features, _ in book._pending) <= 64 * 8


@pytest.mark.parametrize("literal", [False, True])
def test_restored_slots_and_loss_by_hand(literal: bool):
    bank = memory(literal)
    where, what = torch.randn(2, 3, 4, dtype=torch.float64), torch.randn(2, 3, 4, dtype=torch.float64)
    restored_where, restored_what, recall = bank(where, what, bank.codebook.squared_norms(), with_loss=True)
    for b in range(2):
        total = 0.0
        for k in range(3):
            pair = [where[b, k], what[b, k]]
            if not literal:
                pair = [(v - v.mean()) / (v.var(correction=0) + 1e-5).sqrt() for v in pair]
            grouped = torch.cat(pair)
            z = bank.encode.weight @ grouped + bank.encode.bias
            code = bank.codebook.codes[recall.codes[b, k]]
            restored = bank.decode.weight @ code + bank.decode.bias
            torch.testing.assert_close(torch.cat([restored_where[b, k], restored_what[b, k]]), restored)
            total += (grouped - restored).square().sum() + 0.25 * (z - code).square().sum()
        torch.testing.assert_close(recall.loss[b], total / 3)


def test_literal_gradient_is_straight_through_at_the_code():
    bank = memory(literal=True)
    where = torch.randn(1, 2, 4, dtype=torch.float64, requires_grad=True)
    what = torch.randn(1, 2, 4, dtype=torch.float64, requires_grad=True)
    wanted = torch.randn(1, 2, 8, dtype=torch.float64)
    restored_where, restored_what, _ = bank(where, what, bank.codebook.squared_norms(), with_loss=True)
    (torch.cat([restored_where, restored_what], -1) * wanted).sum().backward()
    expected = wanted @ bank.decode.weight @ bank.encode.weight  # as if the code were the latent
    torch.testing.assert_close(torch.cat([where.grad, what.grad], -1), expected)
    assert not bank.codebook.codes.requires_grad


def test_default_gradient_passes_the_memory_as_if_it_were_the_identity():
    bank = memory(literal=False)
    where = torch.randn(1, 2, 4, dtype=torch.float64, requires_grad=True)
    what = torch.randn(1, 2, 4, dtype=torch.float64, requires_grad=True)
    wanted = torch.randn(1, 2, 4, dtype=torch.float64)
    restored_where, _, recall = bank(where, what, bank.codebook.squared_norms(), with_loss=True)
    (restored_where * wanted).sum().backward()
    [expected] = torch.autograd.grad((bank.where_norm(where) * wanted).sum(), where)
    torch.testing.assert_close(where.grad, expected)
    assert bank.encode.weight.grad is None
    assert bank.decode.weight.grad is None
    where.grad = None
    recall.loss.sum().backward()  # the memory's own losses teach Enc and Dec, and nothing before them
    assert where.grad is None
    assert bank.encode.weight.grad.abs().sum() > 0
    assert bank.decode.weight.grad.abs().sum() > 0


def test_modes():
    bank = memory(literal=False)
    where, what = torch.randn(2, 3, 4, dtype=torch.float64), torch.randn(2, 3, 4, dtype=torch.float64)
    bank.mode = "off"
    off_where, off_what, recall = bank(where, what, bank.codebook.squared_norms(), with_loss=True)
    torch.testing.assert_close(off_where, bank.where_norm(where))
    torch.testing.assert_close(off_what, bank.what_norm(what))
    assert recall.codes is None
    assert recall.loss.abs().sum() == 0
    bank.mode = "continuous"
    restored_where, restored_what, recall = bank(where, what, bank.codebook.squared_norms(), with_loss=True)
    expected = bank.decode(bank.encode(torch.cat([off_where, off_what], -1)))
    torch.testing.assert_close(torch.cat([restored_where, restored_what], -1), expected)
    assert recall.codes is None
