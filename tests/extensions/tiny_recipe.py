"""A toy recipe of an existing task."""

from dataclasses import replace

from prism.tasks.classification.recipes import Classification, scenes


def tiny_scenes() -> Classification:
    """Two steps on scenes.

    `prism train tiny-scenes`.
    """
    return replace(scenes(), model="resnet10t", size=32, batch=4, length=8, limit=4, workers=0)
