"""The campaign: kinds of bad inputs, each a function from a random number to a command and a verdict."""

import io
import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext, redirect_stdout, suppress
from functools import cache
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import onnx
import torch
from safetensors.torch import load_file, save_file

from prism.cli import VERBS, main
from prism.model.metadata import read_header
from tests.attack.bench import NETWORK, TRAIN, Bench
from tests.attack.mutation import NAMES, VALUES, images, mutate_bytes, mutate_json
from tests.attack.outcome import Outcome, attempt

WRONG = {
    "INT": ["-1", "0", "1.5", "nan", "inf", "banana", "", "9" * 30, "9" * 5000, "-9"],
    "FLOAT": ["nan", "inf", "-inf", "-1", "1e400", "banana", "", "-0.5"],
    "STR": ["", "banana", "nan", "-1", "0", ",", "1,,2", "1e400", "a=b", "x" * 5000, "caf\udce9", *NAMES],
    "PATH": ["missing", "folder", "pipe.safetensors", "text.safetensors", "", "text.safetensors/below"],
}
# one that runs and takes little time for each verb; {} are good files and an empty folder
GOOD = {
    "train scenes": "--dry-run --model test_convnext --size 32 --batch 2 --length 4 --workers 0 --out {out}",
    "train scenes-retinanet": "--dry-run --model test_convnext --sizes 32 --longest 32 --width 8 --out {out}",
    "train scenes-semfpn": "--dry-run --model test_convnext --size 32 --width 8 --out {out}",
    "eval": "{prism} --data scenes --limit 2 --workers 0 --out {out}",
    "occlusion": "{prism} --data scenes --limit 2 --workers 0 --settings PatchMask0.6 --out {out}",
    "predict": "{picture} --checkpoint {classifier} --out {out}",
    "detect": "{picture} --checkpoint {detector} --out {out}",
    "segment": "{picture} --checkpoint {segmenter} --out {out}",
    "slots": "--checkpoint {prism} --out {out}",
    "study": "slots {prism} --limit 2 --workers 0 --out {out}",
    "info": "test_convnext --size 32",
    "speed": "test_convnext --size 32 --batch 1 --repeats 2 --out {out}",
    "feed scenes": "--model test_convnext --size 32 --batch 2 --length 4 --workers 0 --device banana",
    "export": "{classifier} {out}/half.safetensors",
    "convert": "biformer_tiny {classifier} {out}/converted.safetensors",
    "recipes": "",
    "app": "--checkpoint {prism} --port 1",
}


class Campaign:
    """`run(number)` makes the same attempt whenever it is called with the same number."""

    def __init__(self, root: Path, seed: int, without: Sequence[str] = ()):
        self.root, self.seed, self.bench, self.without = root, seed, Bench(root), without
        os.chdir(root)
        Path("folder").mkdir()
        Path("text.safetensors").write_text("text")
        os.mkfifo("pipe.safetensors")
        kinds: dict[Callable[[Random, Path], tuple[list[str], Outcome]], int] = {
            self.image: 8,
            self.metadata: 6,
            self.options: 8,
            self.annotations: 4,
            self.masks: 3,
            self.kept: 1,
            self.tensors: 3,
            self.exported: 2,
            self.shards: 1,
            self.saved: 1,
            self.folder: 1,
        }
        self.kinds = [kind for kind, times in kinds.items() for _ in range(times) if kind.__name__ not in without]

    def run(self, number: int) -> tuple[str, list[str], Outcome]:
        random = Random(f"{self.seed} {number}")
        kind, place = random.choice(self.kinds), self.root / str(number)
        place.mkdir()
        try:
            words, outcome = kind(random, place)
            return kind.__name__, words, outcome
        finally:
            torch.set_num_threads(1)
            shutil.rmtree(place, ignore_errors=True)

    # ---- kinds

    def image(self, random: Random, place: Path) -> tuple[list[str], Outcome]:
        path = place / f"{random.choice(NAMES).replace('/', '')}.{random.choice(['jpg', 'png', 'webp', 'tif'])}"
        path.write_bytes(images(random)())
        verb, file = random.choice([("predict", self.bench.classifier)] * 4 + [("segment", self.bench.segmenter)])
        return self._told([verb, str(path), "--checkpoint", str(file), "--out", str(place / "out")], place)

    def annotations(self, random: Random, place: Path) -> tuple[list[str], Outcome]:
        data = self.bench.objects(place / "data", mutate_json(self.bench.coco(), random))
        words = [
            "occlusion",
            "--task",
            "detection",
            "--data",
            str(data),
            "--write",
            "--settings",
            "M30",
            "--workers",
            "0",
        ]
        return self._told([*words, "--out", str(place / "out")], place)

    def masks(self, random: Random, place: Path) -> tuple[list[str], Outcome]:
        data = self.bench.masks(place / "data", images(random)())
        words = ["eval", str(self.bench.segmenter), "--data", str(data), "--workers", "0", "--out", str(place / "out")]
        return self._told(words, place)

    def metadata(self, random: Random, place: Path) -> tuple[list[str], Outcome]:
        """What a file says of its weights: one value of it, or one of a JSON document within it, is another."""
        task = random.choice(["classifier", "classifier", "segmenter", "detector", "prism"])
        source = getattr(self.bench, task)
        header = {key: json.loads(value) for key, value in read_header(source).items()}
        key = random.choice([*header])
        if random.random() < 0.7 and isinstance(header[key], dict):
            header[key][random.choice([*header[key], "pretrained", "checkpoint_path"])] = random.choice(VALUES)
        else:
            header[key] = random.choice([*VALUES, "prism_nano.x", "vit_giant_patch14_224", "hf-hub:a/b"])
        texts = {key: json.dumps(value) for key, value in header.items()}
        if random.random() < 0.2:
            texts[key] = mutate_json(header, random)
        if random.random() < 0.1:
            texts = {
                "model": "prism_nano",
                "network": f"{random.choice(['widths', 'codes', 'url'])}={random.choice(VALUES)}",
            }
        save_file(load_file(source), place / "w.safetensors", texts)
        return self._shown(task, place / "w.safetensors", place)

    def tensors(self, random: Random, place: Path) -> tuple[list[str], Outcome]:
        task = random.choice(["classifier", "segmenter", "detector"])
        source, path = getattr(self.bench, task), place / "w.safetensors"
        weights = load_file(source)
        name = random.choice([*weights])
        match random.randrange(7):
            case 0:
                del weights[name]
            case 1:
                weights[name] = weights[name].to(random.choice([torch.int8, torch.bool, torch.uint8, torch.int64]))
            case 2:
                weights[name] = weights[name].flatten().clone()
            case 3:
                weights[name] = torch.full_like(weights[name], random.choice([float("nan"), float("inf"), 1e38]))
            case 4:
                weights[f"{name}.more"] = torch.zeros(2)
            case 5:
                weights[name] = torch.zeros(random.choice([(), (0,), (1,) * 8, (7, 0, 3)]))
            case _:
                pass
        save_file(weights, path, read_header(source))
        if random.random() < 0.4:
            path.write_bytes(mutate_bytes(path.read_bytes(), random))
        return self._shown(task, path, place)

    def exported(self, random: Random, place: Path) -> tuple[list[str], Outcome]:
        """A file for another engine, with other metadata or other bytes."""
        made = onnx.load(self.bench.exported)
        entry = random.choice(made.metadata_props)
        if random.random() < 0.5:
            entry.value = mutate_json({"": json.loads(entry.value)}, random)[5:-1]
        whole = made.SerializeToString()
        path = place / "network.onnx"
        path.write_bytes(whole if random.random() < 0.4 else mutate_bytes(whole, random))
        words = ["predict", "--engine", "onnx", str(path), str(self.bench.picture), "--out", str(place / "out")]
        return self._told(words, place)

    def options(self, random: Random, place: Path) -> tuple[list[str], Outcome]:
        """A good command with one or two options that are not, by what its own help says of their types."""
        verb = random.choice([verb for verb in GOOD if verb not in self.without])
        words = [word.format(**self._files(place)) for word in f"{verb} {GOOD[verb]}".split()]
        for name, kinds in random.sample(options_of(verb), min(random.choice([1, 1, 2]), len(options_of(verb)))):
            kind = random.choice(kinds)
            wrong = random.choice(WRONG.get(kind, ["banana"]))
            if wrong and random.random() < 0.8:
                words.append(f"--{name}={wrong}" if random.random() < 0.5 else f"--{name}")
                words += [wrong] if words[-1] == f"--{name}" else []
            else:
                words.append(f"--{name}")
        with mock.patch("prism.app.server.serve") if verb == "app" else nullcontext():
            return self._told(words, place)

    def shards(self, random: Random, place: Path) -> tuple[list[str], Outcome]:
        data = self.bench.shards(place / "data", random)
        path = random.choice([*data.rglob("*.*")])
        if random.random() < 0.7:
            whole = path.read_bytes()
            path.write_bytes(
                mutate_json(json.loads(whole), random).encode()
                if path.suffix == ".json"
                else mutate_bytes(whole, random)
            )
        return self._told([*TRAIN, "--data", str(data), "--out", str(place / "out")], place)

    def saved(self, random: Random, place: Path) -> tuple[list[str], Outcome]:
        data = self.bench.saved(place / "data")
        path = random.choice([path for path in data.rglob("*.*") if path.is_file()])
        whole = path.read_bytes()
        text = path.suffix == ".json" and random.random() < 0.7
        path.write_bytes(mutate_json(json.loads(whole), random).encode() if text else mutate_bytes(whole, random))
        words = ["eval", str(self.bench.classifier), "--data", str(data), "--split", "val", "--workers", "0"]
        return self._told([*words, "--out", str(place / "out")], place)

    def folder(self, random: Random, place: Path) -> tuple[list[str], Outcome]:
        """A finished run in which a file is damaged, gone, or a folder: it is gone on with, or refused."""
        out = shutil.copytree(self.bench.run, place / "run")
        path = random.choice([path for path in sorted(out.rglob("*")) if path.is_file()])
        whole = path.read_bytes()
        path.unlink()
        match random.randrange(5):
            case 0:
                path.mkdir()
            case 1:
                path.write_bytes(random.choice([b"", b"5", b"[]", b"null", b"{}", b"\xff\xfe", b"[" * 100_000]))
            case 2:
                pass
            case _:
                path.write_bytes(mutate_bytes(whole, random))
        steps = ["--steps", "3"] if random.random() < 0.2 else []
        return self._told([*TRAIN, "--data", str(self.bench.folders), "--out", str(out), *steps], place)

    def kept(self, random: Random, place: Path) -> tuple[list[str], Outcome]:
        """A damaged prediction is measured again, to the same rows."""
        words, _ = self.bench.kept
        out = shutil.copytree(words[-1], place / "out")
        path = random.choice(sorted(out.rglob("*.json")))
        path.write_bytes(mutate_bytes(path.read_bytes(), random))
        words, outcome = self._told([*words[:-1], str(out)], place)
        tables = [(file, Path(self.bench.kept[0][-1]) / file.name) for file in sorted(out.glob("*.csv"))]
        if outcome.kind == "success" and any(a.read_bytes() != b.read_bytes() for a, b in tables):
            outcome = outcome._replace(kind="unsound", said="another result than that of whole predictions")
        return words, outcome

    # ---- help

    def _shown(self, task: str, weights: Path, place: Path) -> tuple[list[str], Outcome]:
        verb = {"classifier": "predict", "segmenter": "segment", "detector": "detect"}.get(task)
        out = ["--out", str(place / "out")]
        if verb is None:
            return self._told(["eval", str(weights), "--data", "scenes", "--limit", "2", "--workers", "0", *out], place)
        return self._told([verb, str(self.bench.picture), "--checkpoint", str(weights), *out], place)

    def _told(self, words: list[str], place: Path) -> tuple[list[str], Outcome]:
        return words, attempt(words, place / "out")

    def _files(self, place: Path) -> dict[str, Any]:
        good = ("picture", "classifier", "prism", "segmenter", "detector")
        return {name: getattr(self.bench, name) for name in good} | {"out": place / "out", "network": NETWORK}


@cache
def options_of(verb: str) -> list[tuple[str, list[str]]]:
    """The options of a command and the types of their values, as its help lists them."""
    printed = io.StringIO()
    with redirect_stdout(printed), mock.patch.dict(os.environ, {"COLUMNS": "400"}), suppress(SystemExit):
        main([*verb.split(), "--help"])
    found = re.findall(r"--([a-z][a-z0-9-]*)((?: [^ a-z][^ ]*)*)", printed.getvalue())
    return [(name, re.findall(r"INT|FLOAT|STR|PATH", kinds) or [""]) for name, kinds in found if name != "help"]


assert {verb.split()[0] for verb in GOOD} == {*VERBS}, "a new verb is attacked too: give one good command of it"
