"""Numbers go through the CSV: what is drawn and said is what was written there."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from prism.reporting.tables import read_csv, write_csv
from prism.studies import ablation, catalogue, halting, similarity
from prism.studies.catalogue import STUDIES, Study, find_study, overview
from prism.studies.inputs import Inputs
from prism.studies.study import Section, conduct, hidden_share, listed, method_of
from prism.tasks.classification import report as occlusion_report
from prism.tasks.detection import report as detection_report
from prism.tasks.segmentation import report as segmentation_report


def test_columns_come_back_as_what_they_are(tmp_path: Path):
    rows = [
        {"run": 7, "name": "a", "whole": 3, "part": 0.1, "gap": None, "mixed": 5, "empty": ""},
        {"run": 8, "name": "", "whole": -4, "part": 2, "gap": 1.5, "mixed": "dynamic", "empty": ""},
    ]
    write_csv(rows, tmp_path / "rows.csv")
    assert read_csv(tmp_path / "rows.csv") == [
        {"run": "7", "name": "a", "whole": 3, "part": 0.1, "gap": None, "mixed": "5", "empty": None},
        {"run": "8", "name": "", "whole": -4, "part": 2.0, "gap": 1.5, "mixed": "dynamic", "empty": None},
    ]


@pytest.mark.parametrize("quick", [False, True])
def test_a_report_sees_the_csv_and_nothing_else(quick: bool, tmp_path: Path):
    seen = []

    def measure(inputs, out, progress):
        return {"numbers": [{"x": 1, "unseen": object}], "none": []}

    def report(tables, out):
        seen.append(tables)
        return [Section("", "Words.", tables["numbers"])]

    made, method = Study("numbers", "Title"), SimpleNamespace(measure=measure, report=report)
    conduct(made, method, Inputs((), quick=quick), tmp_path, "prism study numbers", lambda _: None)
    note = "smoke run" if quick else None
    assert seen == [{"numbers": [{"x": 1, "unseen": "<class 'object'>", "note": note}]}]
    for file in ("numbers.md", "report.html"):
        text = (tmp_path / file).read_text()
        assert "Words." in text
        assert "Title" in text
        assert ("smoke run" in text) == quick
    assert "`prism study numbers`" in (tmp_path / "numbers.md").read_text()


def test_a_difference_of_the_other_sign_is_no_lead():
    settings = {"clean": 50.0, "PatchMask0.6": 60.0, "OnlyOne56": 60.0}
    rows = [
        {"model": model, "setting": setting, "fill": "", "top-1": score, "images": 9}
        for model, gain in (("other", 0.0), ("prism_nano", 5.0))
        for setting, score in ((s, v + gain) for s, v in settings.items())
    ]
    sure = [
        {"pair": "other - prism_nano", "setting": "PatchMask0.6", "points": -5.0, "p": 0.001},
        {"pair": "other - prism_nano", "setting": "OnlyOne56", "points": 10.0, "p": 0.001},  # of the runs that pair
    ]
    assert (
        "prism_nano is ahead of other in 2 of 2 occluded settings, significantly (p < 0.05) in 1;"
        in occlusion_report.words(rows, sure, "mean")
    )


def test_every_study_says_what_it_is():
    assert [row["study"] for row in overview()] == list(STUDIES)
    assert len({study.answers for study in STUDIES.values()}) == len(STUDIES)
    for study in STUDIES.values():
        assert callable(method_of(study).measure)
        assert callable(method_of(study).report)
    with pytest.raises(ValueError, match="there is no study 'table9'; choose one of table1"):
        find_study("table9")


def test_the_list_needs_nothing_large():
    """Run by its path: importing the package itself brings torch."""
    script = f"import runpy, sys; runpy.run_path({catalogue.__file__!r}); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "False\n"


def test_words_are_listed():
    assert [listed(words) for words in (["a"], ["a", "b"], ["a", "b", "c"])] == ["a", "a and b", "a, b and c"]


def test_the_papers_numbers_agree_with_one_another():
    """Table 3's default variants, table 1 and the text name the same model."""
    prism = occlusion_report.PUBLISHED["PRISM"]
    default = tuple(prism[setting.name] for setting in ablation.SETTINGS)
    published = ablation.PUBLISHED
    assert published[ablation.STEPS]["5"] == published[ablation.MEMORY]["vq"] == default
    assert published[ablation.FIXED][ablation.DYNAMIC] == default
    assert set(occlusion_report.PUBLISHED_COSTS) == set(occlusion_report.PUBLISHED)
    assert list(halting.PUBLISHED) == [setting.name for setting in halting.BLOCKS]
    stage, setting, baseline, ours = similarity.PUBLISHED
    assert (stage, setting) == (3, "PatchMask0.8")
    assert baseline < ours
    assert set(detection_report.PUBLISHED) & set(segmentation_report.PUBLISHED) == {"PVTv2-B1", "PRISM"}


def test_shares_hidden_by_a_setting():
    shares = {name: hidden_share(name) for name in ("clean", "PatchMask0.6", "BlockMask112", "OnlyOne112")}
    assert shares == {"clean": 0, "PatchMask0.6": 0.6, "BlockMask112": 0.25, "OnlyOne112": 0.75}
