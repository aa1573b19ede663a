"""Beyond the paper: how many images are there?"""

from prism.studies import study as s


def measure(inputs: s.Inputs, out: s.Path, progress: s.Progress) -> s.Tables:
    return {"count": [{"images": len(inputs.classifiers().images)}]}


def report(tables: s.Tables, out: s.Path) -> list[s.Section]:
    return [s.Section("", f"There are {tables['count'][0]['images']} images.", tables["count"])]
