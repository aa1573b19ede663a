"""The four baselines compute what the official code computes: numbers measured from it, in float64, in reference.txt.

A line of the reference is a tensor's official name and shape, its mean, its standard deviation and element 7.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import timm
import torch
from torch import Tensor

from prism.baselines import official_state_dict
from tests.baselines import layouts
from tests.baselines.recipe import drawn_weights

NUMBER = r"(-?[\d.]+)"
LINE = re.compile(rf"^(\S+)\s+\(([\d, ]+)\)\s+mean\s+{NUMBER} std {NUMBER}(?: flat\[7\]\s+{NUMBER})?$")


class Reference(NamedTuple):
    tensors: dict[str, tuple[tuple[int, ...], list[float]]]
    rows: list[list[float]]  # the first five logits of both images


def read_reference(title: str) -> Reference:
    text = (Path(__file__).parent / "reference.txt").read_text()
    section = re.split(r"^### ", text, flags=re.MULTILINE)
    lines = next(part for part in section if part.startswith(title)).splitlines()[1:]
    tensors = {}
    for line in lines:
        if match := LINE.match(line):
            shape = tuple(int(side) for side in match[2].split(","))
            tensors[match[1]] = shape, [float(value) for value in match.groups()[2:] if value]
    rows = [[float(v) for v in line.split("[", 2)[2].rstrip("]").split(",")] for line in lines if line.startswith("y[")]
    return Reference(tensors, rows)


def bi_module(name: str) -> str:
    name = re.sub(r"^downsample_layers\.(\d)", r"stages.\1.downsample", name)
    return re.sub(r"^stages\.(\d)\.(\d)", r"stages.\1.blocks.\2", name)


def debi_module(name: str) -> str:
    """An official block is two of ours: its output is that of the second, its attn1 is in the first."""
    name = re.sub(r"^downsample_layers\.(\d)", r"stages.\1.downsample", name)
    found = re.match(r"^stages\.(\d)\.(\d)(?:\.attn([12]))?$", name)
    if not found:
        return name
    half = int(found[3] or 2) - 1
    return f"stages.{found[1]}.blocks.{2 * int(found[2]) + half}" + (".attn" if found[3] else "")


def paca_module(name: str) -> str:
    name = name.replace("patch_embed", "stages.0.downsample")
    name = re.sub(r"^transition(\d)", r"stages.\1.downsample", name)
    name = re.sub(r"^norm(\d)", lambda m: f"stages.{int(m[1]) - 1}.norm", name)
    return re.sub(r"^stage(\d)\.(\d)", lambda m: f"stages.{int(m[1]) - 1}.blocks.{m[2]}", name)


class Case(NamedTuple):
    model: str
    layout: Callable[..., layouts.Layout]
    entries: int  # of the official state dict
    tensors: int  # of the reference
    module: Callable[[str], str]  # an official module's name -> ours


CASES = {
    "biformer": Case("biformer_tiny", layouts.biformer, 264, 24, bi_module),
    "bixt": Case("bixt_tiny_patch16", layouts.bixt, 434, 10, lambda name: name),
    "paca": Case("pacavit_tiny", layouts.pacavit, 239, 27, paca_module),
    "debi": Case("debiformer_tiny", layouts.debiformer, 478, 21, debi_module),
}


def in_official_shape(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Our maps are channels last where the official ones are channels first, or lists of tokens where we have maps."""
    if x.ndim == 4 and tuple(x.shape) != shape:
        x = x.permute(0, 3, 1, 2) if len(shape) == 4 else x.flatten(1, 2)
    if x.ndim == 4 and len(shape) == 3:
        x = x.flatten(2).mT
    return x


@pytest.mark.parametrize("title", CASES)
def test_tensors_agree_with_the_official_code(title: str):
    case, reference = CASES[title], read_reference(title)
    layout = case.layout()
    assert len(layout) == case.entries
    assert len(reference.tensors) == case.tensors
    model = timm.create_model(case.model).double().eval()
    model.load_state_dict(official_state_dict(case.model, drawn_weights(layout)), strict=True)

    seen: dict[str, Any] = {}
    wanted = [name for name in reference.tensors if name != "logits"]
    for name in wanted:
        module, _, part = case.module(name.split("[")[0]), *name.partition("[")[1:]

        def keep(_module: Any, _inputs: Any, output: Any, name: str = name, part: str = part) -> None:
            seen[name] = output[int(part.rstrip("]"))] if part else output

        model.get_submodule(module).register_forward_hook(keep)
    images = torch.randn(2, 3, 224, 224, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        logits = model(images)

    for name, (shape, numbers) in reference.tensors.items():
        found = logits if name == "logits" else seen[name]
        if title == "bixt" and name == "patch_embed":
            found = found.flatten(2).mT
        found = in_official_shape(found, shape)
        assert tuple(found.shape) == shape, name
        measured = [found.mean(), found.std(), found.flatten()[7]][: len(numbers)]
        torch.testing.assert_close(
            torch.stack(measured), torch.tensor(numbers, dtype=torch.float64), rtol=1e-6, atol=6e-9, msg=name
        )
    torch.testing.assert_close(logits[:, :5], torch.tensor(reference.rows, dtype=torch.float64), rtol=1e-6, atol=1e-8)
