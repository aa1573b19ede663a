"""Two processes that share the images find what one finds, to the last bit."""

import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp
from accelerate import PartialState
from PIL import Image

from prism.cli import main
from prism.data.label_maps import LabelledImages, SegmentedScenes
from prism.data.objects import SceneImages
from prism.data.preprocessing import Preprocessing
from prism.data.scenes import SHAPES
from prism.data.sources import OwnImages, open_images
from prism.occlusion import OcclusionBenchmark, Setting, Subject
from prism.reporting.tables import Tables, write_csv
from prism.tasks.detection import evaluate as detection
from prism.tasks.detection.evaluate import DetectionBenchmark, DetectorSubject
from prism.tasks.detection.network import Design, build_network
from prism.tasks.segmentation import evaluate as segmentation
from prism.tasks.segmentation.network import SemanticFPN
from tests.model.small import small_prism

SETTINGS = (Setting("clean"), Setting("PatchMask", 0.6))
SMALL = dict(widths=(8, 12, 16, 24), slots=(5, 4, 4, 3), codes=16)


def command(folder: Path, out: Path) -> list[str]:
    return ["occlusion", "prism_nano", "resnet10t", "--data", str(folder / "data"), "--size", "32", "--batch", "2",
            "--workers", "0", "--device", "cpu", "--out", str(out)]  # fmt: skip


def rows_of_one_batch(folder: Path, processes: PartialState | None) -> list[dict[str, Any]]:
    """A batch of all images: the second process has none."""
    torch.manual_seed(0)
    subject = Subject("prism", "a", small_prism(num_classes=3))
    images = OwnImages(open_images(str(folder / "data"), ""), Preprocessing(32).unit)
    return OcclusionBenchmark(images, SETTINGS, processes=processes).run([subject])[0]


def detect(out: Path, processes: PartialState | None) -> list[dict[str, Any]]:
    """Of three batches the first process sees one and the second at two."""
    torch.manual_seed(0)
    images = SceneImages("val", 5, 64)
    design = Design("prism_nano", "maskrcnn", width=16, anchor=16, sizes=(64,), longest=64, proposals=20)
    network = build_network(design, len(SHAPES), **SMALL)
    torch.nn.init.normal_(network.detector.get_submodule("roi_heads.box_predictor.cls_score").bias, std=3.0)
    subject = DetectorSubject("prism", "Mask R-CNN", "a", network, True, images.categories)
    benchmark = DetectionBenchmark(images, detection.settings_of((0, 0.3)), batch=2, processes=processes)
    return written(detection.measure(benchmark, [subject], out / "detection", lambda _: None), out / "detection")


def segment(out: Path, processes: PartialState | None) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    samples = SegmentedScenes("val", 5, 32)
    network = SemanticFPN("prism_nano", samples.classes, 16, **SMALL)
    subjects, folder = [Subject("prism", "a", network)], out / "segmentation"
    how: dict[str, Any] = dict(classes=samples.classes, batch=2, folder=folder / "done", processes=processes)
    benchmark = segmentation.SegmentationBenchmark(LabelledImages(samples), **how)
    return written(segmentation.measure(benchmark, subjects, folder, lambda _: None), folder)


def written(tables: Tables, out: Path) -> list[dict[str, Any]]:
    for name, rows in tables.items():
        write_csv(rows, out / f"{name}.csv")
    return [dict(row) for rows in tables.values() for row in rows]


def worker(rank: int, port: int, folder: Path) -> None:
    """As a launcher would start it. Each process has a folder of its own, as on machines that share no disk."""
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
    (folder / f"rows {rank}").write_text(json.dumps(rows_of_one_batch(folder, PartialState(cpu=True))))
    for measure in (detect, segment):
        assert bool(measure(folder / f"rank {rank}", PartialState())) == (rank == 0)
    with (folder / f"said {rank}").open("w") as said, redirect_stdout(said), redirect_stderr(said):
        main(command(folder, folder / f"rank {rank}"))


@pytest.fixture
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("_one_thread")
def test_two_processes_equal_one(tmp_path: Path):
    random = np.random.default_rng(0)
    for number in range(7):
        path = tmp_path / "data" / "abc"[number % 3] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (40, 40, 3), np.uint8)).save(path)
    main(command(tmp_path, tmp_path / "alone"))
    shutil.copytree(tmp_path / "alone" / "predictions", tmp_path / "rank 0" / "predictions")
    for name in ("clean-mean-0", "OnlyOne112-mean-0"):  # the others are kept, on the first process's disk alone
        (tmp_path / "rank 0" / "predictions" / f"{name}.json").unlink()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(worker, (port, tmp_path), nprocs=2)
    for measure in (detect, segment):
        measure(tmp_path / "alone", None)
    of_detection = [f"detection/{name}.csv" for name in ("detection", "blocks", "subsets")]
    of_segmentation = [f"segmentation/{name}.csv" for name in ("segmentation", "classes")]
    for name in ("occlusion.csv", "table.csv", "significance.csv", *of_detection, *of_segmentation):
        assert (tmp_path / "rank 0" / name).read_text() == (tmp_path / "alone" / name).read_text()
    for path in (tmp_path / "alone" / "predictions").iterdir():
        assert (tmp_path / "rank 0" / "predictions" / path.name).read_text() == path.read_text()
    assert "report.html" in (tmp_path / "said 0").read_text()
    assert (tmp_path / "said 1").read_text() == ""
    assert not (tmp_path / "rank 1").exists()
    for rank in range(2):
        assert json.loads((tmp_path / f"rows {rank}").read_text()) == rows_of_one_batch(tmp_path, None)
