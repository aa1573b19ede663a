"""PRISM written straight from the paper: every token projected, every position dense, no image ever left out.

Slow, and independent of the package's helpers: the oracle that the fast form is held to. It shares the parameters of
a model, so that gradients can be compared too.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm

from prism.model.backbone import Prism


def positions(height: int, width: int, dim: int, dtype: torch.dtype) -> Tensor:
    """(N, D), position by position: [sin, cos] of the row's coordinate, then of the column's."""
    quarter = dim // 4
    frequencies = [0.5 * 20 ** (k / max(quarter - 1, 1)) for k in range(quarter)]
    field = []
    for i in range(height):
        for j in range(width):
            y, x = (i + 0.5) / height * 2 * math.pi, (j + 0.5) / width * 2 * math.pi
            waves = [f(w * c) for c in (y, x) for f in (math.sin, math.cos) for w in frequencies]
            field.append([math.sqrt(2) * wave for wave in waves])
    return torch.tensor(field, dtype=dtype)


def norm(x: Tensor, layer: nn.Module) -> Tensor:
    if isinstance(layer, nn.Identity):
        return x
    assert isinstance(layer, nn.LayerNorm)
    return layer_norm(x, (x.shape[-1],), layer.weight, layer.bias, layer.eps)


def gain(layer: nn.Module) -> Tensor | float:
    return layer.gain if hasattr(layer, "gain") else 1.0  # pyright: ignore[reportReturnType]


def memory(bank, where: Tensor, what: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Equations 3 and 4; the loss per image."""
    where, what = norm(where, bank.where_norm), norm(what, bank.what_norm)
    grouped = torch.cat([where, what], -1)
    if bank.mode == "off":
        return where, what, grouped.new_zeros(len(grouped))
    seen = grouped if bank.literal else grouped.detach()
    z = seen @ bank.encode.weight.T + bank.encode.bias
    if bank.mode == "vq":
        distances = ((z[:, :, None] - bank.codebook.codes) ** 2).sum(-1)  # (B, K, M)
        z_vq = bank.codebook.codes[distances.argmin(-1)]
    else:
        z_vq = z.detach()
    through = z + (z_vq - z).detach() if bank.mode == "vq" else z
    restored = through @ bank.decode.weight.T + bank.decode.bias
    reconstruction = ((seen - restored) ** 2).sum(-1)
    commitment = ((z - z_vq.detach()) ** 2).sum(-1)
    loss = (reconstruction + bank.beta * commitment).mean(-1)
    if not bank.literal:
        restored = grouped + (restored - grouped).detach()
    dim = where.shape[-1]
    return restored[..., :dim], restored[..., dim:], loss


def step(
    phi, x: Tensor, slots: Tensor, p: Tensor, grid: tuple[int, int], e: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Phi: equations 1 to 5, then the two FFNs with residuals. `e` is the evidence of each token, (B, N)."""
    w_q, w_k, w_v = phi.to_query.weight, phi.to_key.weight, phi.to_value.weight
    scale = 1 / math.sqrt(x.shape[-1])
    e = torch.ones(x.shape[:2], dtype=x.dtype) if e is None else e
    normed = norm(x, phi.token_norm) * e[..., None]
    keys = (normed + p) @ w_k.T
    queries = norm(slots, phi.slot_norm) @ w_q.T
    logits = torch.einsum("bkd,bnd->bkn", queries, keys) * scale
    attention = logits.exp() / logits.exp().sum(1, keepdim=True)  # over slots
    weights = attention / attention.sum(2, keepdim=True)  # over tokens
    # content is the mean of what was seen, and shrinks with how little that is; positions are those of all tokens
    seen = torch.einsum("bkn,bn->bk", weights, e)[..., None]
    content = torch.einsum("bkn,bnd->bkd", weights, normed) / (seen + 0.1 * (1 - seen))
    where = (content + torch.einsum("bkn,nd->bkd", weights, p)) @ w_k.T
    what = content @ w_v.T
    where, what, loss = memory(phi.memory, where, what)
    asked = torch.einsum("nd,bkd->bnk", p @ w_q.T, where) * scale
    answered = asked.exp() / asked.exp().sum(2, keepdim=True)
    x = x + gain(phi.token_scale) * torch.einsum("bnk,bkd->bnd", answered, what)
    slots = slots + gain(phi.slot_scale) * where
    ffn = phi.token_ffn
    hidden = (norm(x, ffn.norm) @ ffn.expand.weight.T * e[..., None]).transpose(1, 2).unflatten(2, grid)
    hidden = gelu(ffn.mix(hidden.contiguous())).flatten(2).transpose(1, 2)
    x = x + hidden @ ffn.contract.weight.T + ffn.contract.bias
    ffn = phi.slot_ffn
    hidden = gelu(norm(slots, ffn.norm) @ ffn.expand.weight.T + ffn.expand.bias)
    return x, slots + hidden @ ffn.contract.weight.T + ffn.contract.bias, loss


def contrast(image: Tensor) -> Tensor:
    """Of each 3 x 3 window the squared range over itself and 1e-5; of each pixel the least of its windows."""
    height, width = image.shape[2:]
    evidence = torch.ones(len(image), height, width, dtype=image.dtype)
    for top in range(height - 2):
        for left in range(width - 2):
            window = (..., slice(top, top + 3), slice(left, left + 3))
            spread = (image[window].amax((2, 3)) - image[window].amin((2, 3))).square().mean(1)
            evidence[window] = torch.minimum(evidence[window], (spread / (spread + 1e-5))[:, None, None])
    return evidence


def gathered(image: Tensor, evidence: Tensor, side: int) -> tuple[Tensor, Tensor]:
    """Each side x side cell with its holes filled by the mean of what was seen in it, and whether anything was."""
    batch, channels, height, width = image.shape
    whole = torch.zeros(batch, channels, height + -height % side, width + -width % side, dtype=image.dtype)
    known = torch.zeros(batch, 1, *whole.shape[2:], dtype=image.dtype)
    whole[:, :, :height, :width], known[:, 0, :height, :width] = image, evidence
    filled, merged = torch.zeros_like(whole), []
    for top in range(0, height, side):
        for left in range(0, width, side):
            cell = (..., slice(top, top + side), slice(left, left + side))
            weight = known[cell] + 1e-4
            mean = (whole[cell] * weight).sum((2, 3), keepdim=True) / weight.sum((2, 3), keepdim=True)
            weight = weight.clamp(max=1)
            filled[cell] = weight * whole[cell] + (1 - weight) * mean
            merged.append(known[cell].amax((1, 2, 3)))
    return filled, torch.stack(merged, 1).unflatten(1, (whole.shape[2] // side, whole.shape[3] // side))


def stage(module, image: Tensor, e: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor, Tensor, Tensor]:
    """Map, evidence, ponder loss, VQ loss and steps per image, each image's state carried on to the last step of all.

    `e` is the evidence of the given map, (B, H, W); None for an image.
    """
    side = getattr(module.tokeniser, "side", None)
    if side:
        image, e = gathered(image, contrast(image) if e is None else e, side)
    patches = module.tokeniser.conv(image.contiguous())
    batch, dim, *grid = patches.shape
    x = norm(patches.flatten(2).transpose(1, 2), module.tokeniser.norm)
    known = None if e is None else e.flatten(1)
    x = x if known is None else x * known[..., None]
    p = positions(*grid, dim, x.dtype)  # pyright: ignore[reportCallIssue]
    slots = module.initial_slots.expand(batch, -1, -1)
    result, ponder, vq = torch.zeros_like(x), x.new_zeros(batch), x.new_zeros(batch)
    spent = x.new_zeros(batch)
    halted = torch.zeros(batch, dtype=torch.bool)
    steps = torch.zeros(batch, dtype=torch.long)
    for t in range(1, module.max_steps + 1):
        x, slots, loss = step(module.step, x, slots, p, (grid[0], grid[1]), known)
        probability = torch.sigmoid(x.mean(1) @ module.halting.fc.weight[0] + module.halting.fc.bias)
        stops = ~halted & ((spent + probability >= 0.99) | torch.tensor(t == module.max_steps))
        share = torch.where(stops, 1 - spent, probability) * ~halted
        result = result + share[:, None, None] * x
        ponder, vq = ponder + t * share, vq + loss * ~halted
        steps += ~halted
        spent, halted = spent + probability, halted | stops
    return norm(result, module.norm).transpose(1, 2).unflatten(2, (grid[0], grid[1])), e, ponder, vq, steps


def prism(model: Prism, images: Tensor) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """Logits, L_ponder, L_vq, and the steps of each stage."""
    x, e, ponder, vq, steps = images, None, 0.0, 0.0, []
    for module in model.stages:
        x, e, stage_ponder, stage_vq, stage_steps = stage(module, x, e)
        ponder, vq = ponder + stage_ponder.mean(), vq + stage_vq.mean()
        steps.append(stage_steps)
    weight = torch.ones(len(x), *x.shape[2:], dtype=x.dtype) if e is None else e + 1e-4
    pooled = (x * weight[:, None]).sum((2, 3)) / weight[:, None].sum((2, 3))
    return pooled @ model.head.fc.weight.T + model.head.fc.bias, ponder, vq, steps  # pyright: ignore
