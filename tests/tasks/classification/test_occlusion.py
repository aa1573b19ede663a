import csv
from pathlib import Path

import pytest
from PIL import Image

from prism.cli import main
from prism.tasks.classification.report import PUBLISHED, paper_table, retention_table


def row(model: str, setting: str, score: float, seed: int = 0, filling: str = "mean") -> dict:
    return {"model": model, "setting": setting, "fill": "" if setting == "clean" else filling, "mask seed": seed,
            "top-1": score}  # fmt: skip


ROWS = [
    row("a", "clean", 80.0),
    row("a", "PatchMask0.6", 50.0),
    row("a", "PatchMask0.6", 52.0, seed=1),
    row("a", "PatchMask0.6", 10.0, filling="black"),
]


def test_table_has_mean_and_deviation_and_the_papers_rows():
    ours, *theirs = paper_table(ROWS, "mean")
    assert ours == {"model": "a", "clean": "80.0", "Patch Mask 0.6": "51.0 ± 1.41"}
    assert [line["model"] for line in theirs[:-1]] == [f"{name} (paper, ImageNet)" for name in PUBLISHED]
    assert theirs[-2]["Patch Mask 0.6"] == "69.1"
    assert theirs[-1]["Patch Mask 0.6"] == "± 0.18"


def test_retention_is_occluded_over_clean():
    [line] = retention_table(ROWS, "mean")
    assert line["PatchMask0.6"] == "63.8"  # 51 of 80
    assert line["area PatchMask"] == "51.0"


@pytest.fixture
def images(tmp_path: Path) -> Path:
    for name, colour in {"red": (200, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 200)}.items():
        (tmp_path / "val" / name).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (50 + number, 40), colour).save(tmp_path / "val" / name / f"{number}.png")
    return tmp_path / "val"


def test_command_makes_every_file(images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "out"
    arguments = ["occlusion", "prism_nano", "resnet10t", "--data", str(images), "--size", "32", "--workers", "0",
                 "--fills", "mean,noise", "--seeds", "0,1", "--out", str(out)]  # fmt: skip
    main(arguments)
    assert "report.html" in capsys.readouterr().out
    with (out / "occlusion.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * (1 + 6 * 2 * 2)
    assert {row["images"] for row in rows} == {"12"}
    assert all(float(row["GMAC"]) > 0 for row in rows)
    for name in ("table.md", "table.csv", "retention.csv", "significance.csv", "occlusion.png", "examples.png"):
        assert (out / name).stat().st_size > 0
    page = (out / "report.html").read_text()
    for heading in ("Accuracy", "What is kept", "Differences", "Fills", "Steps", "Curves", "What the models saw"):
        assert f"<h2>{heading}</h2>" in page
    assert page.count("data:image/png") == 2
    before = (out / "occlusion.csv").read_text()
    main(arguments)  # untrained weights are drawn from a seed: everything is there already
    assert (out / "occlusion.csv").read_text() == before


def test_full_curves_and_a_quick_look(images: Path, tmp_path: Path):
    main(["occlusion", "resnet10t", "--data", str(images), "--size", "32", "--workers", "0", "--full", "--limit", "3",
          "--out", str(tmp_path / "out")])  # fmt: skip
    with (tmp_path / "out" / "occlusion.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 24
    assert {row["images"] for row in rows} == {"3"}


def test_what_was_kept_is_of_these_very_files_and_labels(images: Path, tmp_path: Path):
    """Three images and their number stood for all: a new label of another one was not seen."""
    words = ["--size", "32", "--workers", "0", "--settings", "clean"]
    command = ["occlusion", "resnet10t", "--data", str(images), *words, "--out", str(tmp_path / "out")]
    kept = tmp_path / "out" / "predictions" / "clean-mean-0.json"
    main(command)
    first = kept.stat().st_mtime_ns
    main(command)
    assert kept.stat().st_mtime_ns == first, "read, not measured"
    (images / "blue" / "2.png").rename(images / "green" / "9.png")
    main(command)
    second = kept.stat().st_mtime_ns
    assert second > first, "another label"
    Image.new("RGB", (60, 60), "white").save(images / "red" / "1.png")
    main(command)
    assert kept.stat().st_mtime_ns > second, "another image"


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--data", "{missing}"], "there is no folder"),
        (["--data", "{val}", "--fills", "plaid"], "got 'plaid'"),
        (["--data", "{val}", "--pretrained"], "could not load pretrained weights for resnet10t"),
        (["--data", "{val}", "--limit", "0"], "limit must be a whole number from 1 to 1000000000, got 0"),
        (["--data", "{spoilt}"], "spoilt.png cannot be read as an image"),
    ],
)
def test_bad_input_is_one_sentence(
    more: list[str], sentence: str, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def unreachable(*_, **__):
        raise OSError("no network here")

    monkeypatch.setattr("timm.models._builder.load_pretrained", unreachable)
    spoilt = tmp_path / "bad"
    (spoilt / "a").mkdir(parents=True)
    (spoilt / "a" / "spoilt.png").write_text("no image")
    places = {"missing": tmp_path / "nowhere", "val": images, "spoilt": spoilt}
    command = ["occlusion", "resnet10t", "--size", "32", "--workers", "0", "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as stopped:
        main([*command, *(word.format(**places) for word in more)])
    message = stopped.value.code
    assert isinstance(message, str)
    assert sentence in message
    assert "\n" not in message
