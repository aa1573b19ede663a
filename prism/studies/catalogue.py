"""Every study by its name, imported when it is made. A new one is a file with a STUDY and its name here."""

import ast
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prism.studies.study import Study

# in the order of the results page
MODULES = {
    "table1": "prism.studies.table1",
    "table2a": "prism.studies.table2a",
    "table2b": "prism.studies.table2b",
    "ablation": "prism.studies.ablation",
    "halting": "prism.studies.halting",
    "halting-training": "prism.studies.halting_training",
    "similarity": "prism.studies.similarity",
    "slots": "prism.studies.slots",
    "prototypes": "prism.studies.prototypes",
    "recovery": "prism.studies.recovery",
    "cost": "prism.studies.cost",
    "diagnosis": "prism.studies.diagnosis",
}


class _Studies(Mapping[str, "Study"]):
    def __getitem__(self, name: str) -> "Study":
        return import_module(MODULES[name]).STUDY

    def __iter__(self) -> Iterator[str]:
        return iter(MODULES)

    def __len__(self) -> int:
        return len(MODULES)


STUDIES: Mapping[str, "Study"] = _Studies()


def find_study(name: str) -> "Study":
    if name not in MODULES:
        raise ValueError(f"no study is called {name!r}; there are {', '.join(MODULES)}, and all and list")
    return STUDIES[name]


def overview() -> list[dict[str, Any]]:
    """What each study answers, what it is in the paper, and what it needs: read off its file, without importing it."""
    rows = []
    for name, module in MODULES.items():
        _, _, answers, paper, needs = _first_words(module)
        rows.append({"study": name, "answers": answers, "in the paper": paper or "beyond it", "needs": needs})
    return rows


def _first_words(module: str) -> list[str]:
    """The texts that `STUDY = Study(...)` begins with: name, title, answers, paper, needs."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    for node in ast.parse(Path(spec.origin).read_text()).body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and ast.unparse(node.targets[0]) == "STUDY"
        ):
            return [ast.literal_eval(argument) for argument in node.value.args[:5]]
    raise ValueError(f"{module} has no STUDY")
