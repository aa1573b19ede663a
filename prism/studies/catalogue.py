"""Every study by its name, in words alone: this file imports none of them, nor anything large.

A study called NAME is `prism/studies/NAME.py` and a line in `STUDIES`. Its docstring begins with what it is in the
paper and the question that it answers; it has the two functions that `prism.studies.study.Method` describes.
"""

import ast
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

Takes = Literal["classifiers", "ablated classifiers", "classifiers of several sizes", "detectors", "segmenters"]
RecipeName = Literal["scenes", "imagenette"]


@dataclass(frozen=True)
class Study:
    """One table or figure."""

    name: str
    title: str
    needs: str = "a PRISM classifier"
    takes: Takes = "classifiers"  # what is trained for it if no checkpoints are given
    module: str = ""  # by default the one of its name beside this file

    @property
    def path(self) -> str:
        return self.module or f"prism.studies.{self.name.replace('-', '_')}"

    @cached_property
    def _words(self) -> tuple[str, str]:
        """The first paragraph of the study's docstring, at its colon; read from the file, which is not run."""
        spec = find_spec(self.path)
        assert spec, f"there is no file {self.path}"
        said = ast.get_docstring(ast.parse(Path(str(spec.origin)).read_text())) or ""
        where, _, question = " ".join(said.partition("\n\n")[0].split()).partition(": ")
        return where, question

    @property
    def paper(self) -> str:
        """What it is in the paper; "" if it goes beyond."""
        return "" if self._words[0] == BEYOND else self._words[0]

    @property
    def answers(self) -> str:
        """The question."""
        return self._words[1]


BEYOND = "Beyond the paper"
STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        Study("table1", "Classification under occlusion", "classifiers; several runs per model give deviations"),
        Study("table2a", "Detection under occlusion", "detectors", "detectors"),
        Study("table2b", "Segmentation under occlusion", "segmenters", "segmenters"),
        Study("ablation", "Ablations", "PRISM classifiers trained with different max_steps", "ablated classifiers"),
        Study("halting", "Steps and occlusion"),
        Study("halting-training", "Steps over training", "PRISM weights next to the log of their training run"),
        Study("similarity", "Features of clean and occluded images", "a PRISM classifier and a baseline"),
        Study("slots", "Slots of a clean and an occluded image"),
        Study("prototypes", "What prototypes stand for", "a PRISM classifier with a quantised memory"),
        Study("recovery", "Recovery, step by step"),
        Study("resolution", "Size of images", "classifiers trained at several sizes", "classifiers of several sizes"),
        Study("cost", "Accuracy and its cost", "a PRISM classifier, and baselines to compare"),
        Study("memory", "The memory, and a perfect one"),
        Study("diagnosis", "Where the work is done"),
    )
}


def find_study(name: str) -> Study:
    if name not in STUDIES:
        raise ValueError(f"there is no study {name!r}; choose one of {', '.join(STUDIES)}, or all, or list")
    return STUDIES[name]


def overview() -> list[dict[str, Any]]:
    """What each study answers, what it is in the paper, and what it needs."""
    return [
        {"study": name, "answers": study.answers, "in the paper": study.paper or "beyond it", "needs": study.needs}
        for name, study in STUDIES.items()
    ]
