"""Checkpoints of the official repositories: their keys as ours, and their files as safetensors.

An official checkpoint holds the same weights as the model here, under other names and with 1 x 1 convolutions where we
have linear layers, so the translation is one to one.
"""

import argparse
import re
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import timm
import torch
from safetensors.torch import save_file
from timm.layers import Mlp
from torch import Tensor, nn

from prism.baselines import biformer, bixt, debiformer, paca
from prism.baselines.agents import DeformableRoutingAttention, Offsets
from prism.baselines.biformer import BiFormer
from prism.baselines.bixt import BiXT
from prism.baselines.channels_last import ConvMlp
from prism.baselines.debiformer import DeBiFormer
from prism.baselines.latents import CrossBlock, LatentBlock, Layer
from prism.baselines.paca import PacaViT
from prism.baselines.routing import BiLevelRoutingAttention
from prism.model.metadata import Metadata
from prism.model.weights import FLOATS, is_plain

# The released weights are not averages (EMA); a training checkpoint may hold both.
WRAPPERS = ("model", "state_dict", "model_ema", "state_dict_ema")
PREFIXES = ("module.", "_orig_mod.")  # of data-parallel and of compiled models
COMPUTED = "fourier_pos_encode.pos"  # BiXT stores its position code for one size; here it is computed for any

Names = dict[type[nn.Module], dict[str, str]]

_ROUTING = dict(qkv="qkv.qkv", proj="wo")
MEMBERS: dict[type[nn.Module], Names] = {
    BiFormer: {
        BiLevelRoutingAttention: _ROUTING,
        Mlp: dict(fc1="0", fc2="3"),
    },
    BiXT: {
        BiXT: dict(patch_embed="patch_embed.proj", position_proj="fourier_pos_encode.token_projection"),
        Layer: dict(cross_block="cross_attention_latents_token", latent_block="self_attention_latents"),
        LatentBlock: dict(qkv="attn.qkv", proj="attn.proj"),
        CrossBlock: dict(
            norm1_latents="norm1_lat",
            norm1_tokens="norm1_pat",
            norm2_latents="norm2_lat",
            norm2_tokens="norm2_pat",
            r_latents="attn.r_latents",
            rv_latents="attn.rv_latents",
            rv_tokens="attn.rv_patches",
            proj_latents="attn.proj_lat",
            proj_tokens="attn.proj_pat",
            mlp_latents="mlp_lat",
            mlp_tokens="mlp_pat",
        ),
    },
    PacaViT: {
        paca.Block: dict(norm1="norm1_before", norm2="norm2_before", clustering="attn.clustering.clustering"),
        paca.Clustering: dict(dwconv="0", fc1="2", fc2="4"),
        ConvMlp: dict(dwconv="dwconv.dwconv"),
    },
    DeBiFormer: {
        BiLevelRoutingAttention: _ROUTING,
        DeformableRoutingAttention: dict(
            qkv="qkv_conv.qkv",
            offsets="conv_offset_q",
            agent_query="proj_q",
            lepe="lepe1",
            agent_proj="unifyheads1",
            agent_norm1="norm2",
            agent_mlp="mlp",
            agent_norm2="norm",
            agent_key="proj_k",
            agent_value="proj_v",
            bias_table="rpe_table",
            proj="proj_out",
        ),
        Offsets: dict(dwconv="0", norm="1.norm", proj="3"),
        ConvMlp: dict(fc1="linear1.0", dwconv="dwc", fc2="linear2.0"),
    },
}
"""By network: our name of a module's member -> the official one. Others are called the same."""


def _in_pairs(match: re.Match[str]) -> str:
    """DeBiFormer's block 3 is the second half of the official block 1: its norm1 is called norm3 there."""
    stage, (pair, half), part = match[1], divmod(int(match[2]), 2), match[3]
    number = int(part[-1]) + 2 * half if part.startswith("norm") else half + 1
    return f"stages.{stage}.{pair}.{part.rstrip('12')}{number}."


Rule = tuple[str, str | Callable[[re.Match[str]], str]]
_HEAD: Rule = (r"^head\.fc\.", "head.")
_DOWNSAMPLE: Rule = (r"^stages\.(\d+)\.downsample\.", r"downsample_layers.\1.")
PLACES: dict[type[nn.Module], list[Rule]] = {
    BiFormer: [_HEAD, _DOWNSAMPLE, (r"^stages\.(\d+)\.blocks\.", r"stages.\1.")],
    BiXT: [],
    PacaViT: [
        _HEAD,
        (r"^stages\.0\.downsample\.", "patch_embed."),
        (r"^stages\.(\d+)\.downsample\.", r"transition\1."),
        (r"^stages\.(\d+)\.blocks\.", lambda match: f"stage{int(match[1]) + 1}."),
        (r"^stages\.(\d+)\.norm\.", lambda match: f"norm{int(match[1]) + 1}."),
    ],
    DeBiFormer: [_HEAD, _DOWNSAMPLE, (r"^stages\.(\d+)\.blocks\.(\d+)\.(\w+)\.", _in_pairs)],
}
"""By network: where our modules sit -> where the official ones do. Applied after the members are renamed."""


KNOWN = (*biformer.VARIANTS, *bixt.VARIANTS, *paca.VARIANTS, *debiformer.VARIANTS)


class Weight(NamedTuple):
    key: str  # of ours
    shape: torch.Size
    counts: bool  # whole numbers, such as the batches that a norm has seen


@cache
def official_layout(name: str) -> dict[str, Weight]:
    """Official key -> our weight, for all weights of a baseline."""
    if name not in KNOWN:
        raise ValueError(f"no official checkpoints are known for {name!r}, only for {', '.join(KNOWN)}")
    with torch.device("meta"):
        model = timm.create_model(name)
    return {
        _official_key(model, key): Weight(key, value.shape, not value.is_floating_point())
        for key, value in model.state_dict().items()
    }


def _official_key(model: nn.Module, key: str) -> str:
    module, parts = model, []
    for part in key.split("."):
        parts.append(MEMBERS[type(model)].get(type(module), {}).get(part, part))
        module = getattr(module, part)
    official = ".".join(parts)
    for pattern, replacement in PLACES[type(model)]:
        official = re.sub(pattern, replacement, official)
    return official


def official_state_dict(name: str, state: Mapping[str, Any]) -> dict[str, Tensor]:
    """The weights of an official checkpoint under our keys; a key that the model does not know is kept as it is.

    The checkpoint may be wrapped (`model`, `state_dict`, `model_ema`, `state_dict_ema`) and its keys prefixed.
    """
    layout, found = official_layout(name), {}
    for official, value in _unwrapped(state).items():
        weight = layout.get(official)
        if official == COMPUTED:
            continue
        if weight and len(weight.shape) == 2 and value.shape[2:] == (1, 1):  # a 1 x 1 convolution
            value = value.flatten(1)
        key = weight.key if weight else official
        if key in found:
            raise ValueError(f"{key!r} appears twice, under the official name and under ours")
        found[key] = value
    return found


def _unwrapped(state: Mapping[str, Any]) -> dict[str, Tensor]:
    if not isinstance(state, Mapping):
        raise ValueError(f"expected named tensors, got {type(state).__name__}")
    while wrapper := next((key for key in WRAPPERS if isinstance(state.get(key), Mapping)), None):
        state = state[wrapper]
    weights: dict[str, Tensor] = {}
    for key, value in state.items():
        if not isinstance(key, str) or not isinstance(value, Tensor):
            raise ValueError(f"expected named tensors, got {type(value).__name__} at {key!r}")
        name = key
        while prefix := next((prefix for prefix in PREFIXES if name.startswith(prefix)), None):
            name = name.removeprefix(prefix)
        if name in weights:
            raise ValueError(f"{name!r} appears twice, with and without a prefix")
        weights[name] = value
    return weights


def convert(name: str, file: str | Path, out: str | Path) -> None:
    """Write the weights of an official checkpoint as a safetensors file that loads into the model `name`."""
    file, out = Path(file), Path(out)
    layout = official_layout(name)
    if out.suffix != ".safetensors":
        raise ValueError(f"the output must be a .safetensors file, got {out}")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {out.parent}")
    try:
        state = _unwrapped(_read(file))
        if odd := next((key for key, value in state.items() if not is_plain(value)), None):
            raise ValueError(f"{odd!r} is sparse, quantised or without its numbers")
        weights = official_state_dict(name, state)
        _check_fits(layout, weights)
    except ValueError as error:
        raise ValueError(f"{file} is not a checkpoint of {name}: {error}") from None
    cfg = timm.get_pretrained_cfg(name)
    assert cfg is not None
    shown = dict(
        size=cfg.input_size[-1], crop=cfg.crop_pct, interpolation=cfg.interpolation, mean=cfg.mean, std=cfg.std
    )
    metadata = Metadata(model=name, preprocessing=shown, training={"source": file.name})
    from prism.reporting.files import write_whole  # here, as `import prism` brings the networks alone

    # Copied, as tensors of a torch file may share their memory, which safetensors refuses.
    copies = {key: value.detach().clone(memory_format=torch.contiguous_format) for key, value in weights.items()}
    write_whole(out, lambda unfinished: save_file(copies, unfinished, metadata.header()))


def _read(file: Path) -> Any:
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}")
    try:
        with torch.serialization.safe_globals([argparse.Namespace]), warnings.catch_warnings(action="ignore"):
            found = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # a file of another kind can fail anywhere in the reader
        if foreign := re.search(r"GLOBAL (\S+) was not an allowed global", str(error)):
            raise ValueError(f"it holds a pickled {foreign[1]}, which is not loaded for safety") from None
        raise ValueError("it cannot be read by torch.load with weights_only=True") from None
    return found


def _check_fits(layout: Mapping[str, Weight], weights: Mapping[str, Tensor]) -> None:
    """Name the first key, as the official model calls it, in which a checkpoint differs from the model."""
    for official, (key, shape, counts) in layout.items():
        if key not in weights:
            raise ValueError(f"{official!r} is missing")
        if weights[key].shape != shape:
            raise ValueError(f"{official!r} has shape {tuple(weights[key].shape)}, expected {tuple(shape)}")
        if not counts and weights[key].dtype not in FLOATS:
            raise ValueError(f"{official!r} holds {str(weights[key].dtype).removeprefix('torch.')} instead of weights")
    known = {weight.key for weight in layout.values()}
    if extra := next((key for key in weights if key not in known), None):
        raise ValueError(f"{extra!r} is not in the model")
