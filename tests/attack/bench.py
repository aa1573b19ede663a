"""Good inputs, each as small as it can be, that the campaign makes bad ones of."""

import json
import tarfile
from functools import cached_property
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

from prism.model.metadata import Metadata
from prism.tasks.segmentation.network import SemanticFPN
from tests.attack.outcome import attempt
from tests.export.test_refusals import MEAN, stranger

CLASSES = ["red", "green", "blue"]
SHAPES = ["disc", "ring", "triangle", "square"]
TINY = dict(widths=[8, 8, 8, 8], slots=[2, 2, 2, 2], codes=4, max_steps=2)
NETWORK = ["widths=(8,8,8,8)", "slots=(2,2,2,2)", "codes=4", "max_steps=2"]
TRAIN = [
    *(
        "train",
        "imagenette",
        "--model",
        "test_convnext",
        "--classes",
        "3",
        "--size",
        "32",
        "--steps",
        "2",
        "--batch",
        "2",
    ),
    *("--workers", "0", "--limit", "2", "--splits", "val", "--save-every", "1", "--no-hiding", "--jitter", "0"),
]


class Bench:
    """Files below `root`, made when they are first asked for."""

    def __init__(self, root: Path):
        self.root = root
        torch.manual_seed(0)

    @cached_property
    def picture(self) -> Path:
        return _image(self.root / "good.png", 0)

    @cached_property
    def classifier(self) -> Path:
        network = timm.create_model("test_convnext", num_classes=3)
        return self._saved(
            "classifier", network, Metadata(model="test_convnext", classes=CLASSES, preprocessing={"size": 32})
        )

    @cached_property
    def prism(self) -> Path:
        from prism.data.scenes import SHAPES

        arguments: Any = {key: tuple(value) if isinstance(value, list) else value for key, value in TINY.items()}
        network = timm.create_model("prism_nano", num_classes=len(SHAPES), **arguments)
        metadata = Metadata(model="prism_nano", network=TINY, classes=list(SHAPES), preprocessing={"size": 32})
        return self._saved("prism", network, metadata)

    @cached_property
    def segmenter(self) -> Path:
        network = SemanticFPN("test_convnext", CLASSES, 8)
        return self._saved("segmenter", network, network.metadata(32))

    @cached_property
    def detector(self) -> Path:
        from prism.tasks.detection.loading import describe
        from prism.tasks.detection.network import Design, build_network

        design = Design("test_convnext", width=8, anchor=8, sizes=(32,), longest=32)
        network = build_network(design, len(CLASSES))
        return self._saved("detector", network, describe(network, design, CLASSES, [1, 2, 3], {}))

    @cached_property
    def exported(self) -> Path:
        """For onnxruntime: the mean of each colour as the logits of three classes."""
        return stranger(self.root / "network.onnx", "side", [(*MEAN, "logits")], json.dumps(CLASSES))

    @cached_property
    def folders(self) -> Path:
        """ImageNet's layout, both splits."""
        for split in ("train", "val"):
            for number, name in enumerate(CLASSES):
                for index in range(2):
                    _image(self.root / "folders" / split / name / f"{index}.png", number)
        return self.root / "folders"

    @cached_property
    def run(self) -> Path:
        """A finished training."""
        found = attempt([*TRAIN, "--data", str(self.folders), "--out", str(self.root / "run")])
        assert found.kind == "success", found
        return self.root / "run"

    @cached_property
    def kept(self) -> tuple[list[str], str]:
        """The words of a measured occlusion, and its rows."""
        out = self.root / "kept"
        words = ["occlusion", str(self.classifier), "--data", str(self.folders), "--split", "val", "--workers", "0"]
        words += ["--settings", "PatchMask0.6", "--out", str(out)]
        found = attempt(words)
        assert found.kind == "success", found
        return words, (out / "scores.csv").read_text() if (out / "scores.csv").exists() else ""

    def coco(self) -> dict[str, Any]:
        """What describes two of the images below `objects`."""
        square = [[2, 3, 20, 3, 20, 12, 2, 12]]
        objects: list[dict[str, Any]] = [
            dict(id=n, image_id=1 + n % 2, category_id=7, bbox=[2, 3, 18, 9], area=162, iscrowd=0, segmentation=square)
            for n in range(4)
        ]
        objects[0]["segmentation"] = {"size": [18, 24], "counts": [24, 100, 18 * 24 - 124]}
        listed = [dict(id=n, file_name=f"{n}.png", width=24, height=18) for n in (1, 2)]
        return dict(images=listed, annotations=objects, categories=[dict(id=7, name="red"), dict(id=9, name="blue")])

    def objects(self, folder: Path, text: str) -> Path:
        for number in (1, 2):
            _image(folder / "images" / f"{number}.png", number)
        (folder / "instances_val.json").write_text(text, errors="surrogateescape")
        return folder

    def masks(self, folder: Path, mask: bytes) -> Path:
        """images/val beside masks/val: a good pair, and one whose mask is this."""
        for number in (1, 2):
            _image(folder / "images" / "val" / f"{number}.png", number)
        target = folder / "masks" / "val"
        target.mkdir(parents=True)
        Image.fromarray(np.arange(18 * 24, dtype=np.uint8).reshape(18, 24) % 3).save(target / "1.png")
        (target / "2.png").write_bytes(mask)
        (folder / "classes.txt").write_text("\n".join(CLASSES))
        return folder

    def shards(self, folder: Path, random: Random) -> Path:
        for split in ("train", "val"):
            (folder / split).mkdir(parents=True)
            with tarfile.open(folder / split / "0.tar", "w") as archive:
                for number in range(6):
                    label = random.choice([b"0", b"1", b"2"] * 6 + [b"9", b"-1", b"9" * 400, b"x", b""])
                    for name, data in ((f"{number}.cls", label), (f"{number}.png", _bytes(number))):
                        info = tarfile.TarInfo(name)
                        info.size = len(data)
                        archive.addfile(info, BytesIO(data))
            (folder / split / "sizes.json").write_text(json.dumps({"0.tar": 6}))
        return folder

    def saved(self, folder: Path) -> Path:
        """As `datasets` saves it."""
        import datasets

        features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=CLASSES)})
        rows = {"image": [_picture(n) for n in range(6)], "label": [0, 1, 2] * 2}
        own = datasets.Dataset.from_dict(rows, features)
        datasets.DatasetDict({"train": own, "val": own}).save_to_disk(folder)
        return folder

    def _saved(self, name: str, network: torch.nn.Module, metadata: Metadata) -> Path:
        path = self.root / f"{name}.safetensors"
        save_file(network.state_dict(), path, metadata.header())
        return path


def _picture(number: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(number).integers(0, 256, (18, 24, 3), np.uint8))


def _bytes(number: int) -> bytes:
    buffer = BytesIO()
    _picture(number).save(buffer, "PNG")
    return buffer.getvalue()


def _image(path: Path, number: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_bytes(number))
    return path
