"""Beyond the paper: how many images were there?"""

from prism.studies import study as s


def measure(inputs: s.Inputs, out: s.Path, progress: s.Progress) -> s.Tables:
    found = inputs.classifiers()
    return {"toy": [{"model": subject.name, "images": len(found.images)} for subject in found.subjects]}


def report(tables: s.Tables, out: s.Path) -> list[s.Section]:
    figure = s.Figure()
    figure.subplots().plot([row["images"] for row in tables["toy"]])
    return s.told("There were some.", tables["toy"], "Their number.", figure, out / "toy.png")
