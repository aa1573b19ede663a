"""Runs of seconds: all that studies need, as small as it can be."""

from pathlib import Path

from prism.studies.results import Plan, Project
from tests.training.small import NETWORK

FEW = dict(steps=1, batch=4, length=8, limit=2)
TINY = Plan(
    classifier=dict(prism_network=(*NETWORK, "max_steps=2"), size=32, batch=4, steps=2, length=8, limit=2, log_every=1),
    ablated=dict(steps=1),
    sizes=(32, 64),
    detector=dict(sizes=(64,), longest=64, width=32, **FEW),
    segmenter=dict(size=32, width=16, **FEW),
    heads=("retinanet",),
    images=4,
    annotated_images=2,
    quick=True,
)


def tiny_project(folder: Path) -> Project:
    return Project("scenes", folder, TINY, batch=4, workers=0)
