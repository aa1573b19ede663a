"""What a command is told about its batches is obeyed."""

import pytest

from prism.data.objects import SceneImages
from prism.occlusion import OcclusionBenchmark
from prism.occlusion.runner import Benchmark
from prism.tasks.detection.evaluate import DetectionBenchmark
from prism.tasks.registry import TASKS, find_task
from prism.tasks.segmentation.evaluate import SegmentationBenchmark
from prism.tasks.task import Conditions


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("benchmark", [OcclusionBenchmark, DetectionBenchmark, SegmentationBenchmark])
def test_a_batch_is_as_large_as_asked_for(name: str, benchmark: type[Benchmark]):
    """Detection and segmentation once took at most 8, whatever was asked for."""
    usual = find_task(name).batch
    for asked, taken in ((None, usual), (2 * usual, 2 * usual), (1, 1)):
        images = SceneImages("val", 3 * taken, 32)
        found = benchmark(images=images, **Conditions(batch=asked).arguments(usual)).own_batches(len(images))  # pyright: ignore
        assert [len(places) for places in found] == [taken] * 3
