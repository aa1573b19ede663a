"""A run of seconds: a small PRISM on a few small scenes."""

import sys
from dataclasses import replace
from pathlib import Path

from prism.tasks.classification.recipes import Classification, scenes
from prism.training.run import train_recipe as run

NETWORK = ("widths=(8,12,16,24)", "slots=(5,4,4,3)", "codes=16", "code_decay=0.5")


def small_recipe(out: Path, **changes) -> Classification:
    small = replace(scenes(), network=NETWORK, size=32, length=48, batch=8, epochs=2, workers=0, log_every=4, limit=16)
    return replace(small, **dict(out=out, splits=("val",)) | changes)


RESUMED = dict(save_every=1, average=0.8, keep=1, length=64, workers=1, mixup=0.2, epochs=3)

if __name__ == "__main__":
    run(small_recipe(Path(sys.argv[1]), **RESUMED))
