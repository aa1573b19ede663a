"""The loop of an exported file takes the steps it is told to, so that engines can be timed at the same means."""

from pathlib import Path

import pytest
import torch

from prism.export.engines import open_engine
from prism.export.exportable import program
from prism.export.formats import write_onnx
from prism.export.planned import Planned, numbered, runner
from prism.model.metadata import Metadata
from tests.model.small import random_images, small_prism

MEANS = (2.5, 3.7)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of two stages: a graph of any size takes seconds for each."""
    network = Planned(small_prism(widths=(8, 12), slots=(5, 4)).eval(), MEANS)
    path = tmp_path_factory.mktemp("planned") / "network.onnx"
    write_onnx(program(network, 64), network.names, path, Metadata())
    return path


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_planned_steps_reach_their_means_in_a_file(engine: str, file: Path):
    run = numbered(open_engine(engine, file, threads=1))
    taken = torch.cat([run(random_images(4, 64, 64))["steps"] for _ in range(25)])  # pyright: ignore[reportIndexIssue]
    assert taken.float().mean(0).tolist() == pytest.approx(MEANS, abs=1e-6)
    assert (taken.float() - torch.tensor(MEANS)).abs().max() < 1  # floor or ceiling


def test_an_unknown_engine_is_named():
    with pytest.raises(ValueError, match="unknown engine 'banana'; choose from eager"):
        runner("banana", 64, 1, Path())


def test_engines_share_a_file(tmp_path: Path):
    network = small_prism(widths=(8,), slots=(4,)).eval()
    for engine in ("onnxruntime", "openvino"):
        run = runner(engine, 64, 1, tmp_path)(network, [2])
        assert run(random_images(2, 64, 64))["steps"].tolist() == [[2], [2]]  # pyright: ignore[reportIndexIssue]
    assert len(list(tmp_path.iterdir())) == 1
