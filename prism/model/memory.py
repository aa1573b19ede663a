"""The slot memory (paper, section 3.2 and appendix A1.2): encode, look up the nearest prototype, decode.

B images, K slots, D channels of a slot's key and of its value, C channels of a code, M codes.
"""

from collections import deque
from typing import Literal, NamedTuple, get_args

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from prism.model.attention import at_least_float32

MemoryMode = Literal["vq", "continuous", "off"]

KMEANS_ROUNDS = 10
KMEANS_SAMPLES_PER_CODE = 16
DEAD_SHARE = 0.05  # a code used less than this fraction of the mean is dead
LAPLACE = 1e-5  # smoothing of counts, as in VQ-VAE
DERIVED = "codebook.sums"  # left out of exported files: it follows from the codes and their counts
MOST_PENDING = 64  # forwards kept for one update; bounds what a caller that never updates can pile up


class Codebook(nn.Module):
    """E in the paper: M prototypes that follow the mean of the features assigned to them.

    Looking up is pure. Training collects what was assigned, over all steps of a forward and all micro-batches of
    an optimiser step, and `update` alone moves the codes.
    """

    codes: Tensor
    counts: Tensor
    sums: Tensor
    updates: Tensor

    def __init__(self, num_codes: int, dim: int, decay: float = 0.99):
        super().__init__()
        self.decay = decay
        self.register_buffer("codes", torch.randn(num_codes, dim))  # replaced by k-means at the first update
        self.register_buffer("counts", torch.zeros(num_codes))
        self.register_buffer("sums", torch.zeros(num_codes, dim))
        self.register_buffer("updates", torch.zeros((), dtype=torch.long))
        self._pending: deque[tuple[Tensor, Tensor]] = deque(maxlen=MOST_PENDING)
        self.register_load_state_dict_pre_hook(_restore_sums)

    def squared_norms(self) -> Tensor:
        """||e_m||^2 of every code (M,): the part of a distance that no feature changes."""
        return at_least_float32(self.codes).square().sum(-1)

    def forward(self, indices: Tensor) -> Tensor:
        return F.embedding(indices, self.codes)

    def collect(self, features: Tensor, indices: Tensor) -> None:
        """Remember assignments for the next `update`: (..., C) features, (...) indices."""
        features = at_least_float32(features.detach())
        self._pending.append((features.reshape(-1, features.shape[-1]), indices.reshape(-1)))

    @torch.no_grad()
    def update(self) -> None:
        """Move the codes by what was collected since the last call; over all ranks, as one rank would.

        The first call starts from k-means. Later ones take an exponential moving average and restart dead codes
        from live features. Every rank must call it, also one that collected nothing.
        """
        features, indices = self._take_pending()
        sizes = _sum_over_ranks(_at_own_rank(len(features), self.counts.device))  # features on each rank
        if not (total := int(sizes.sum())):
            return
        generator = torch.Generator().manual_seed(int(self.updates))  # the same draw on every rank
        first = int(sizes[: _rank()].sum())  # this rank's features, among all in rank order
        if not self.updates:
            sample = _draw(features, KMEANS_SAMPLES_PER_CODE * len(self.codes), first, total, generator)
            codes, members = k_means(sample, len(self.codes), generator)
            counts = members * (total / len(sample))
            self._set(codes, counts, codes * counts[:, None])
        else:
            counts, sums = assignment_totals(features, indices, len(self.codes))
            counts = self.counts.lerp(_sum_over_ranks(counts).to(self.counts), 1 - self.decay)
            sums = self.sums.lerp(_sum_over_ranks(sums).to(self.sums), 1 - self.decay)
            self._set(sums / smoothed(counts)[:, None], counts, sums)
            self._restart_dead(features, first, total, generator)
        self.updates += 1

    def usage(self) -> Tensor:
        """Share of codes that are alive."""
        return 1 - self._dead().float().mean()

    def perplexity(self) -> Tensor:
        """exp of the entropy of use: M if all codes are used alike, 1 if one code takes everything."""
        share = self.counts / self.counts.sum().clamp_min(LAPLACE)
        return torch.special.entr(share).sum().exp()

    def _dead(self) -> Tensor:
        return self.counts <= DEAD_SHARE * self.counts.mean()

    def _restart_dead(self, features: Tensor, first: int, total: int, generator: torch.Generator) -> None:
        dead = self._dead().nonzero().squeeze(1)
        if not len(dead):
            return
        fresh = _draw(features, len(dead), first, total, generator).to(self.codes)
        dead = dead[: len(fresh)]
        self.codes[dead] = fresh
        self.counts[dead] = self.counts.mean()  # as lively as the average, so that it has time to find its place
        self.sums[dead] = fresh * self.counts[dead, None]

    def _set(self, codes: Tensor, counts: Tensor, sums: Tensor) -> None:
        self.codes.copy_(codes)
        self.counts.copy_(counts)
        self.sums.copy_(sums)

    def _take_pending(self) -> tuple[Tensor, Tensor]:
        features = [features for features, _ in self._pending]
        indices = [indices for _, indices in self._pending]
        self._pending.clear()
        if not features:
            return self.codes[:0], self.codes.new_zeros(0, dtype=torch.long)
        # an overflow in half precision, whose optimiser step is skipped, must not poison the averages
        sound = torch.cat(features).isfinite().all(-1)
        return torch.cat(features)[sound], torch.cat(indices)[sound]


def _restore_sums(book: nn.Module, state: dict[str, Tensor], prefix: str, *_: object) -> None:
    """Of a file that leaves them out: see `DERIVED`."""
    codes, counts = state.get(f"{prefix}codes"), state.get(f"{prefix}counts")
    if codes is not None and counts is not None:
        state.setdefault(f"{prefix}sums", codes * smoothed(counts)[:, None])


def update_codebooks(module: nn.Module) -> None:
    """Move every codebook inside `module`: call it once, right after the optimiser's step."""
    for child in module.modules():
        if isinstance(child, Codebook):
            child.update()


class Recall(NamedTuple):
    """What the memory did with the slots of one step."""

    codes: Tensor | None  # (B, K), m in the paper; None where no code was looked up
    latents: Tensor | None  # (B, K, C), z in the paper, detached
    loss: Tensor | None  # (B,), the image's term of L_vq


class SlotMemory(nn.Module):
    """Enc, VQ and Dec over the concatenated key and value of a slot.

    By default each of the two is layer-normalised first, the memory learns from its own losses on detached inputs,
    and the rest of the network is trained through it as if it were the identity: with ordinary gradients the
    losses shrink what slots carry. `literal=True` is the paper's text: straight-through at the code, no norm,
    nothing detached.
    """

    def __init__(
        self,
        dim: int,
        code_dim: int,
        num_codes: int,
        beta: float,
        decay: float,
        literal: bool,
        by_evidence: bool = False,
    ):
        super().__init__()
        self.mode: MemoryMode = "vq"
        self.beta, self.literal = beta, literal
        self.where_norm = nn.Identity() if literal else nn.LayerNorm(dim)
        # a slot that saw little is small, and is to stay so
        self.what_norm = nn.Identity() if literal else nn.LayerNorm(dim, eps=0.1 if by_evidence else 1e-5)
        self.encode = nn.Linear(2 * dim, code_dim)
        self.codebook = Codebook(num_codes, code_dim, decay)
        self.decode = nn.Linear(code_dim, 2 * dim)

    def forward(
        self, where: Tensor, what: Tensor, squared_norms: Tensor, with_loss: bool
    ) -> tuple[Tensor, Tensor, Recall]:
        """Grouped keys and values (B, K, D) each -> the restored ones, and what was recalled.

        `squared_norms` are the codebook's, which no step changes.
        """
        where, what = self.where_norm(where), self.what_norm(what)
        if self.mode == "off":
            return where, what, Recall(None, None, where.new_zeros(where.shape[0]) if with_loss else None)
        grouped = torch.cat([where, what], dim=-1)  # (B, K, 2D)
        seen = grouped if self.literal else grouped.detach()
        latents, codes = self.encode(seen), None  # (B, K, C), z in the paper
        chosen = latents
        if self.mode == "vq":
            codes = nearest(latents, self.codebook.codes, squared_norms)
            prototypes = self.codebook(codes).to(latents.dtype)  # z_vq in the paper
            chosen = latents + (prototypes - latents).detach() if torch.is_grad_enabled() else prototypes
        restored = self.decode(chosen)
        loss = None
        if with_loss:
            loss = slot_error(seen, restored) + self.beta * slot_error(latents, chosen.detach())
        if torch.is_grad_enabled() and not self.literal:
            restored = grouped + (restored - grouped).detach()
        where, what = (half.contiguous() for half in restored.chunk(2, dim=-1))
        return where, what, Recall(codes, latents.detach() if codes is not None else None, loss)


def slot_error(a: Tensor, b: Tensor) -> Tensor:
    """Squared distance summed over channels, averaged over the slots of an image: (B, K, C) -> (B,)."""
    return (at_least_float32(a) - at_least_float32(b)).square().sum(-1).mean(-1)


def nearest(features: Tensor, codes: Tensor, squared_norms: Tensor) -> Tensor:
    """argmin over m of ||z - e_m||^2, in float32 or better: (..., C) features -> (...) indices.

    A feature's own norm does not change the order, so it is left out.
    """
    with torch.autocast(features.device.type, enabled=False):
        features, codes = at_least_float32(features), at_least_float32(codes)
        distances = torch.addmm(squared_norms, features.flatten(0, -2), codes.mT, alpha=-2)  # (..., M)
        return distances.argmin(-1).view(features.shape[:-1])


def assignment_totals(features: Tensor, indices: Tensor, num_codes: int) -> tuple[Tensor, Tensor]:
    """How many features each code was given (M,), and their sum (M, C)."""
    counts = torch.bincount(indices, minlength=num_codes).to(features.dtype)
    return counts, features.new_zeros(num_codes, features.shape[-1]).index_add(0, indices, features)


def smoothed(counts: Tensor) -> Tensor:
    """Laplace-smoothed counts with the same total, so that no code is divided by zero."""
    total = counts.sum()
    return (counts + LAPLACE) / (total + len(counts) * LAPLACE) * total


def k_means(features: Tensor, num_codes: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Centres (M, C) and their members (M,). With fewer features than codes the surplus has no members."""
    centres = _spread(features, num_codes, generator)
    members = torch.zeros(num_codes)
    for _ in range(KMEANS_ROUNDS):
        members, sums = assignment_totals(features, nearest(features, centres, centres.square().sum(-1)), num_codes)
        centres = torch.where(members[:, None] > 0, sums / members.clamp_min(1)[:, None], centres)
    return centres, members


def _spread(features: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """k-means++: each next feature is drawn in proportion to its squared distance to those drawn before."""
    distance, chosen = torch.ones(len(features)), []
    for _ in range(count):
        weights = distance.clamp_min(1e-12)  # all zero once every distinct feature is taken
        chosen.append(int(torch.multinomial(weights, 1, generator=generator)))
        new = (features - features[chosen[-1]]).square().sum(-1).cpu()
        distance = new if len(chosen) == 1 else distance.minimum(new)
    return features[chosen]


def _draw(features: Tensor, count: int, first: int, total: int, generator: torch.Generator) -> Tensor:
    """`count` features drawn without replacement from those of all ranks, the same on every rank.

    The draw is over positions in rank order, so the split over ranks does not change it. Each rank fills in the
    rows it holds and leaves the others zero; the sum over ranks is the sample.
    """
    chosen = torch.randperm(total, generator=generator)[:count].to(features.device) - first
    held = (chosen >= 0) & (chosen < len(features))
    sample = features.new_zeros(len(chosen), features.shape[-1])
    sample[held] = features[chosen[held]]
    return _sum_over_ranks(sample)


def _rank() -> int:
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def _at_own_rank(value: int, device: torch.device) -> Tensor:
    ranks = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    sizes = torch.zeros(ranks, dtype=torch.long, device=device)
    sizes[_rank()] = value
    return sizes


def _sum_over_ranks(x: Tensor) -> Tensor:
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        dist.all_reduce(x)
    return x


def checked_mode(mode: str) -> MemoryMode:
    if mode not in get_args(MemoryMode):
        raise ValueError(f"memory must be one of {', '.join(get_args(MemoryMode))}, got {mode!r}")
    return mode  # pyright: ignore[reportReturnType]
