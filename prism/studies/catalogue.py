"""Every study by its name, in words alone: this file imports none of them, nor anything large.

A study called NAME is `prism/studies/NAME.py` with the two functions that `prism.studies.study.Method` describes, and
an entry here.
"""

from dataclasses import dataclass
from typing import Any, Literal

Takes = Literal["classifiers", "ablated classifiers", "detectors", "segmenters"]
RecipeName = Literal["scenes", "imagenette"]


@dataclass(frozen=True)
class Study:
    """One table or figure."""

    name: str
    title: str
    answers: str  # the question
    paper: str  # what it is in the paper; "" if it goes beyond
    needs: str  # in words
    takes: Takes = "classifiers"  # what is trained for it if no checkpoints are given
    module: str = ""  # by default the one of its name beside this file

    @property
    def path(self) -> str:
        return self.module or f"prism.studies.{self.name.replace('-', '_')}"


STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        Study(
            "table1",
            "Classification under occlusion",
            "how accurate are classifiers when patches, a block, or all but a block are hidden?",
            "Table 1",
            "classifiers; several runs per model give deviations",
        ),
        Study(
            "table2a",
            "Detection under occlusion",
            "how much AP do detectors lose when a share of two objects per image is hidden?",
            "Table 2(a)",
            "detectors",
            "detectors",
        ),
        Study(
            "table2b",
            "Segmentation under occlusion",
            "how much mIoU do segmenters lose when patches are hidden, and how well do they label hidden pixels?",
            "Table 2(b)",
            "segmenters",
            "segmenters",
        ),
        Study(
            "ablation",
            "Ablations",
            "what do more steps in training, the memory, and dynamic halting gain under occlusion?",
            "Table 3",
            "PRISM classifiers trained with different max_steps",
            "ablated classifiers",
        ),
        Study(
            "halting",
            "Steps and occlusion",
            "does PRISM take more steps when more is hidden, and in which stages?",
            "Figure 3A",
            "a PRISM classifier",
        ),
        Study(
            "halting-training",
            "Steps over training",
            "how do the steps of each stage change during training?",
            "Figure A1",
            "PRISM weights next to the log of their training run",
        ),
        Study(
            "similarity",
            "Features of clean and occluded images",
            "do features of an occluded image stay closer to those of the clean one than a baseline's do?",
            "Figure 3B",
            "a PRISM classifier and a baseline",
        ),
        Study(
            "slots",
            "Slots of a clean and an occluded image",
            "which slot wins which part of an image in each stage and step, and does occlusion change it?",
            "",
            "a PRISM classifier",
        ),
        Study(
            "prototypes",
            "What prototypes stand for",
            "which parts of images recall each code of the memory?",
            "",
            "a PRISM classifier with a quantised memory",
        ),
        Study(
            "recovery",
            "Recovery, step by step",
            "does each step bring the features of an occluded image closer to those of the clean one?",
            "",
            "a PRISM classifier",
        ),
        Study(
            "cost",
            "Accuracy and its cost",
            "what do steps cost in GMACs and in measured time, and how much accuracy do they gain?",
            "",
            "a PRISM classifier, and baselines to compare",
        ),
        Study(
            "diagnosis",
            "Where the work is done",
            "how much do slots, memory and FFN contribute, and how decided are slots?",
            "",
            "a PRISM classifier",
        ),
    )
}


def find_study(name: str) -> Study:
    if name not in STUDIES:
        raise ValueError(f"there is no study {name!r}; choose one of {', '.join(STUDIES)}, or all, or list")
    return STUDIES[name]


def overview() -> list[dict[str, Any]]:
    """What each study answers, what it is in the paper, and what it needs."""
    return [
        {
            "study": study.name,
            "answers": study.answers,
            "in the paper": study.paper or "beyond it",
            "needs": study.needs,
        }
        for study in STUDIES.values()
    ]
