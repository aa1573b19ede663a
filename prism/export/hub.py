"""A folder that timm loads by `create_model("local-dir:FOLDER", pretrained=True)`, and the Hugging Face Hub shows."""

import json
import tempfile
from pathlib import Path
from typing import Any

import timm
import torch
from timm.models import save_for_hf
from torch import nn

from prism.data.preprocessing import Preprocessing
from prism.metrics.complexity import parameters
from prism.model.backbone import Prism
from prism.model.metadata import Metadata
from prism.reporting.files import write_text

LICENCE = "apache-2.0"


def write_folder(network: nn.Module, out: Path, metadata: Metadata) -> None:
    """config.json, model.safetensors and README.md, once timm has loaded them to the same answers."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file: --to hub writes a folder")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out) as place:
        folder = Path(place)
        save_for_hf(
            network,
            place,
            model_config={"pretrained_cfg": _card(network, metadata)},
            model_args=dict(metadata.network),
            safe_serialization=True,
        )
        write_text(folder / "README.md", model_card(network, metadata))
        _check(network, folder)
        for file in folder.iterdir():
            file.replace(out / file.name)


def push(folder: Path, repository: str) -> str:
    """Upload the folder; who may do so is what huggingface_hub was told by `hf auth login`. Returns its address."""
    from huggingface_hub import HfApi

    try:
        api = HfApi(library_name="timm", library_version=timm.__version__)
        made = api.create_repo(repository, exist_ok=True)
        api.upload_folder(repo_id=made.repo_id, folder_path=folder, commit_message=f"Add {repository.split('/')[-1]}")
        return str(made)
    except Exception as error:  # the hub's own, and those of whatever library it speaks to the network by
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ValueError(f"could not upload to {repository}: {reason}") from None


def model_card(network: nn.Module, metadata: Metadata) -> str:
    """What the file of weights says about itself, in words; what it does not say is not made up."""
    said = dict(metadata.training)
    hidden = said.pop("hidden in training", "not recorded")
    preprocessing = Preprocessing.from_metadata(metadata)
    names = metadata.names
    figures = [f"| {key} | {value} |" for key, value in said.items()]
    prism = isinstance(network, Prism)
    lines = [
        "---",
        f"license: {LICENCE}",
        "library_name: timm",
        "pipeline_tag: image-classification",
        "tags: [image-classification, timm]",
        "---",
        f"# {metadata.model}{f', {metadata.tag}' if metadata.tag else ''}",
        "",
        f"{parameters(network) / 1e6:.2f} M parameters"
        + (f"; takes up to {network.max_steps} steps per stage, as many as an image needs." if prism else "."),
        "",
        "```python",
        *(["import prism  # registers the model: pip install prism-vision"] if prism else []),
        "import timm",
        'model = timm.create_model("local-dir:FOLDER", pretrained=True).eval()',
        "```",
        "",
        "## Data",
        f"{len(names)} classes: {', '.join(names[:20])}{', ...' if len(names) > 20 else ''}.",
        f"Images of {preprocessing.size} px, crop {preprocessing.crop}, {preprocessing.interpolation}, "
        f"mean {list(preprocessing.mean)}, std {list(preprocessing.std)}.",
        "",
        "## Training",
        f"Hidden in training: {hidden}.",
        "",
        *(["| | |", "|---|---|", *figures, ""] if figures else []),
        "## Licence",
        f"{LICENCE}. The licence of the images that it was trained on may forbid uses that this one allows.",
    ]
    return "\n".join(lines) + "\n"


def _card(network: Any, metadata: Metadata) -> dict[str, Any]:
    """timm's own, with what the weights were trained with."""
    seen = Preprocessing.from_metadata(metadata)
    own = {
        key: value for key, value in network.pretrained_cfg.items() if key in ("first_conv", "classifier", "pool_size")
    }
    return own | {
        "tag": metadata.tag or "prism",
        "num_classes": network.num_classes,
        "input_size": [3, seen.size, seen.size],
        "crop_pct": seen.crop,
        "interpolation": seen.interpolation,
        "mean": list(seen.mean),
        "std": list(seen.std),
        "license": LICENCE,
        "label_names": metadata.classes,
    }


def _check(network: nn.Module, folder: Path) -> None:
    json.loads((folder / "config.json").read_text())
    loaded = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    wanted, found = network.state_dict(), loaded.state_dict()
    if spoilt := next((key for key in wanted if key not in found or not found[key].equal(wanted[key])), None):
        raise ValueError(f"timm loads different weights from those written, in {spoilt!r}: nothing written")
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        if isinstance(network, Prism) and not loaded(images).equal(network(images)):
            raise ValueError("timm builds a different network from the trained one: nothing written")
