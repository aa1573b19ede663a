"""Every study by its name."""

from typing import Any

from prism.studies import (
    ablation,
    cost,
    diagnosis,
    halting,
    halting_training,
    prototypes,
    recovery,
    similarity,
    slots,
    table1,
    table2a,
    table2b,
)
from prism.studies.study import Study

MODULES = (
    table1,
    table2a,
    table2b,
    ablation,
    halting,
    halting_training,
    similarity,
    slots,
    prototypes,
    recovery,
    cost,
    diagnosis,
)
STUDIES: dict[str, Study] = {module.STUDY.name: module.STUDY for module in MODULES}


def find_study(name: str) -> Study:
    if name not in STUDIES:
        raise ValueError(f"no study is called {name!r}; there are {', '.join(STUDIES)}, and all and list")
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
