"""All studies from scratch, as small as possible, and single studies from the command line."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import timm
from PIL import Image
from rich.console import Console
from safetensors.torch import save_file

from prism.cli import main
from prism.data.scenes import SHAPES
from prism.reporting.tables import read_csv
from prism.studies import results
from prism.studies.catalogue import STUDIES, Study
from tests.model.small import small_prism
from tests.studies.small import TINY, tiny_project

ABOUT = {"classes": json.dumps(SHAPES), "size": "32"}
ARGUMENTS = "widths=(8,12,16,24) slots=(5,4,4,3) codes=16"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("results")
    results.all_studies(tiny_project(out / "runs"), out, "prism study all", "cpu", Console(quiet=True))
    return out


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A PRISM, one without memory, and a baseline, untrained."""
    folder, files = tmp_path_factory.mktemp("weights"), {}
    for name, memory in (("prism", "vq"), ("forgetful", "off")):
        about = {"model": "prism_nano", "network": f"{ARGUMENTS} max_steps=2 memory={memory}"}
        files[name] = folder / f"{name}.safetensors"
        save_file(small_prism(num_classes=len(SHAPES)).state_dict(), files[name], ABOUT | about)
    files["baseline"] = folder / "baseline.safetensors"
    theirs = timm.create_model("resnet10t", num_classes=len(SHAPES))
    save_file(theirs.state_dict(), files["baseline"], ABOUT | {"model": "resnet10t"})
    return {name: str(file) for name, file in files.items()}


def test_every_study_has_its_table_its_figure_and_its_words(made: Path):
    for study in STUDIES.values():
        folder = made / study.name
        rows = read_csv(folder / f"{study.name}.csv")
        assert rows, study.name
        for file in folder.glob("*.csv"):
            assert {row["note"] for row in read_csv(file)} == {"smoke run"}
        with Image.open(folder / f"{study.name}.png") as figure:
            assert min(figure.size) > 300
        assert f"![{study.name}]({study.name}.png)" in (folder / f"{study.name}.md").read_text()


def test_the_page_tells_all_and_says_what_it_is(made: Path):
    page = (made / "report.html").read_text()
    assert page.index("SMOKE RUN") < page.index("1 Classification under occlusion (Table 1)")
    assert all(study.title in page for study in STUDIES.values())
    assert page.count("data:image/png;base64") == len(STUDIES) + 3  # examples of the three tables
    assert "pvt_v2_b0, since it takes no steps" in page
    assert "(paper, ImageNet)" in page


def test_the_ablation_is_of_its_own_trainings_and_of_one_of_their_switches(made: Path):
    rows = read_csv(made / "ablation" / "ablation.csv")
    variants = {part: [r["variant"] for r in rows if (r["part"], r["setting"]) == (part, "clean")] for part in
                dict.fromkeys(row["part"] for row in rows)}  # fmt: skip
    assert list(variants.values()) == [["4", "5", "6"], ["vq", "continuous", "off"], [*"12345", "dynamic"]]
    fixed = {row["variant"]: row for row in rows if row["part"].startswith("(c)") and row["setting"] == "clean"}
    assert [fixed[t]["steps 3"] for t in "12345"] == [1, 2, 3, 4, 5]
    assert fixed["1"]["GMAC"] < fixed["2"]["GMAC"]
    same = [row["top-1"] for row in rows if row["setting"] == "clean" and row["variant"] in ("5", "vq", "dynamic")]
    assert same[0] == same[1] == same[-1]  # the run with 5 steps as it was trained


def test_cost_follows_the_steps(made: Path):
    rows = [row for row in read_csv(made / "cost" / "cost.csv") if row["setting"] == "clean"]
    shifted = [row for row in rows if row["sweep"] == "shifted threshold"]
    costs = [row["GMAC"] for row in sorted(shifted, key=lambda row: row["value"])]
    assert costs == sorted(costs, reverse=True)  # a higher threshold's logit halts earlier
    assert {row["sweep"] for row in rows if row["model"] == "pvt_v2_b0"} == {"as it is"}
    assert all(row["images/s"] > 0 for row in rows)


def test_of_a_clean_image_a_perfect_memory_is_none(made: Path):
    rows = read_csv(made / "memory" / "memory.csv")
    clean = {row["memory"]: row["top-1"] for row in rows if row["setting"] == "clean"}
    assert clean["perfect: slots of the clean image"] == clean["off"]
    assert clean["what it recalls for the clean image"] == clean["as it is"]
    shares = [row for row in read_csv(made / "memory" / "closeness.csv") if row["setting"] == "clean"]
    assert {row["share"] for row in shares if row["slots"] == "grouped"} == {1}
    assert all(row["share"] < 1 for row in shares if row["slots"] == "restored")


def test_every_size_is_measured_at_its_own(made: Path):
    rows = read_csv(made / "resolution" / "resolution.csv")
    prism, baseline = ([row for row in rows if row["model"] == model] for model in ("prism_nano", "pvt_v2_b0"))
    assert {(row["size"], row["variant"]) for row in prism} == {
        (size, variant) for size in (32, 64) for variant in ("as trained", "memory off", "one step")
    }
    assert {row["variant"] for row in baseline} == {"as trained"}
    costs = {row["size"]: row["GMAC"] for row in baseline if row["setting"] == "clean"}
    assert 3.5 < costs[64] / costs[32] < 4.5


def test_a_second_call_trains_nothing_again(made: Path):
    log = made / "runs" / "prism_nano-0" / "log.jsonl"
    before = log.read_text()
    results.train(tiny_project(made / "runs"), ["classifiers"], Console(quiet=True))
    assert log.read_text() == before


def test_runs_differ_in_what_is_studied_and_start_from_one_another():
    project = results.Project("imagenette", Path("runs"), seeds=(3, 4))
    first, *_ = classifiers = project.runs("classifiers")
    assert [(run.model, run.seed) for run in classifiers] == [
        (model, seed) for model in ("prism_nano", "pvt_v2_b0") for seed in (3, 4)
    ]
    ablated = [(steps, seed) for steps in (4, 5, 6) for seed in (3, 4)]
    for (steps, seed), run in zip(ablated, project.runs("ablated classifiers"), strict=True):
        usual = [word for word in first.network_words() if not word.startswith("max_steps")]  # pyright: ignore
        assert replace(run, out=first.out, network=()) == replace(first, seed=seed, network=())  # pyright: ignore
        assert sorted(run.network) == sorted([*usual, f"max_steps={steps}"])  # pyright: ignore
    for run in (*project.runs("detectors"), *project.runs("segmenters")):
        start = next(r for r in classifiers if (r.model, r.seed) == (run.model, run.seed))
        assert (run.weights, run.network) == (start.out / "best.safetensors", start.network_words())  # pyright: ignore
    every = [run.out for study in STUDIES.values() for run in project.runs(study.takes)]
    assert len(set(every)) == 2 * (2 + 3 + 4 + 4 + 2)  # two further sizes of two models


def ask(name: str, *arguments: str, out: Path) -> None:
    main(["study", name, *arguments, "--limit", "3", "--workers", "0", "--quick", "--out", str(out)])


def test_a_study_of_given_weights(weights: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    ask("table1", f"prism_nano={weights['prism']}", weights["baseline"], out=tmp_path)
    assert {row["model"] for row in read_csv(tmp_path / "table1.csv")} == {"prism_nano", "resnet10t"}
    assert "top-1 accuracy is prism_nano" in capsys.readouterr().out
    ask("similarity", weights["prism"], out=tmp_path)
    assert "no second model" in (tmp_path / "similarity.md").read_text()


def test_a_table_of_the_paper_is_the_page_of_prism_occlusion(weights: dict[str, str], tmp_path: Path):
    models, few = [weights["prism"], weights["baseline"]], ["--limit", "3", "--workers", "0"]
    main(["study", "table1", *models, *few, "--out", str(tmp_path / "study")])
    main(["occlusion", *models, "--data", "scenes", *few, "--out", str(tmp_path / "occlusion")])
    table, rows = read_csv(tmp_path / "study" / "table1.csv"), read_csv(tmp_path / "occlusion" / "occlusion.csv")
    assert [{name: row[name] for name in row if name != "note"} for row in table] == rows
    pages = [(tmp_path / name / "report.html").read_text() for name in ("study", "occlusion")]
    made, other = (re.findall("<h2>([^<]*)", page) for page in pages)
    assert ["Accuracy", *made] == sorted(other, key=lambda heading: heading != "Accuracy"), "its title stands there"


def test_a_new_study_is_one_file_and_one_line(weights: dict[str, str], tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setitem(STUDIES, "toy", Study("toy", "A toy", module="tests.studies.toy"))
    main(["study", "list"])
    assert "how many images were there?" in capsys.readouterr().out
    ask("toy", weights["prism"], out=tmp_path)
    assert [row["images"] for row in read_csv(tmp_path / "toy.csv")] == [3]
    assert "There were some." in (tmp_path / "toy.md").read_text()
    assert (tmp_path / "toy.png").exists()


def test_one_model_is_ablated(tmp_path: Path):
    names = ("prism_nano", "prism_tiny")
    ask("ablation", *names, out=tmp_path)
    assert {row["model"] for row in read_csv(tmp_path / "ablation.csv")} == {"prism_nano"}
    assert "Left out: prism_tiny, since only the first model is ablated." in (tmp_path / "ablation.md").read_text()


def test_what_does_not_apply_is_left_out_and_said(weights: dict[str, str], tmp_path: Path):
    ask("ablation", weights["forgetful"], weights["baseline"], out=tmp_path)
    said = (tmp_path / "ablation.md").read_text()
    for sentence in (
        "Left out: resnet10t, since it has neither steps nor a memory.",
        "Left out: (a) most steps in training, since all checkpoints were trained with the same number.",
        "was trained without a quantiser.",
    ):
        assert sentence in said
    assert {row["part"][:3] for row in read_csv(tmp_path / "ablation.csv")} == {"(c)"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("halting", "baseline"), "only PRISM takes steps"),
        (("recovery", "baseline"), "only PRISM takes steps"),
        (("slots", "baseline"), "only PRISM has slots"),
        (("resolution", "prism"), "all checkpoints were trained at 32 px; pass some of another size"),
        (("cost", "baseline"), "only PRISM can trade accuracy for cost"),
        (("prototypes", "forgetful"), "only a PRISM with a quantised memory has prototypes"),
        (("memory", "forgetful"), "the memory of every checkpoint is off"),
        (("memory", "baseline"), "only PRISM has a memory"),
        (("halting-training", "prism"), "there is no log.jsonl next to it"),
        (("table2a", "prism"), "is for classification, not for detection"),
        (("table9", "prism"), "there is no study 'table9'"),
        (("all", "prism"), "pass no checkpoints"),
    ],
)
def test_bad_input_is_one_sentence(arguments: tuple[str, str], sentence: str, weights: dict[str, str], tmp_path: Path):
    with pytest.raises(SystemExit) as stopped:
        ask(arguments[0], weights[arguments[1]], out=tmp_path)
    assert isinstance(stopped.value.code, str)
    assert sentence in stopped.value.code
    assert "\n" not in stopped.value.code


def test_list_explains_every_study(capsys: pytest.CaptureFixture[str]):
    main(["study", "list"])
    said = capsys.readouterr().out
    assert all(name in said for name in STUDIES)


def test_plans_change_only_fields_that_recipes_have():
    for plan in (results.QUICK, TINY):
        project = results.Project("scenes", Path("runs"), plan)
        assert all(project.runs(study.takes) for study in STUDIES.values())
