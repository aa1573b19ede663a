import numpy as np
import pytest
import torch
from torch import nn

from prism.occlusion import CURVES, PAPER_SETTINGS, OcclusionBenchmark, Setting, Subject
from prism.occlusion.benchmark import Occluded, step_columns
from prism.occlusion.settings import parse_settings
from tests.model.small import small_prism


class Colours:
    """Images of one colour each; the label is the colour."""

    def __init__(self, length: int = 24, size: int = 56):
        self.length, self.size, self.reads = length, size, 0

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        self.reads += 1
        label = index % 3
        colour = nn.functional.one_hot(torch.tensor(label), 3).float()
        return colour.view(3, 1, 1).expand(3, self.size, self.size), label


class Majority(nn.Module):
    """Sees the colour that covers most of the image, if anything is left to see."""

    def __init__(self, gain: float = 1.0):
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(gain))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.seen = images
        return self.gain * images.mean((2, 3))


def plain(name: str, model: nn.Module, run: str = "a") -> Subject:
    return Subject(name, run, model, mean=(0, 0, 0), std=(1, 1, 1))


def test_rows_of_the_papers_settings():
    rows, predictions = OcclusionBenchmark(Colours(), seeds=(0, 1), batch=5).run([plain("majority", Majority())])
    assert [row["setting"] for row in rows if row["mask seed"] in ("", 0)] == [s.name for s in PAPER_SETTINGS]
    assert len(rows) == 1 + 2 * (len(PAPER_SETTINGS) - 1)
    assert all(row["images"] == 24 and row["low"] <= row["top-1"] <= row["high"] for row in rows)
    assert rows[0]["top-1"] == 100
    assert rows[0]["fill"] == ""
    assert predictions["majority", "a", "PatchMask0.6", "mean", 1].rank.shape == (24,)


def test_every_model_sees_the_same_pixels_in_any_batch_and_with_any_workers():
    a, b = Majority(), Majority()
    one = OcclusionBenchmark(Colours(), batch=24).run([plain("a", a), plain("b", b)])[0]
    assert torch.equal(a.seen, b.seen)
    last = a.seen
    other = OcclusionBenchmark(Colours(), batch=7, workers=2).run([plain("a", a), plain("b", b)])[0]
    assert torch.equal(a.seen, last[21:])
    assert one == other


def test_occlusion_hides_what_it_says():
    clean, block = Colours(), Setting("BlockMask", 112)
    image, _ = Occluded(clean, block, "black", 0, (0, 0, 0))[1]
    assert int((image.sum(0) == 0).sum()) == 28 * 28
    assert Occluded(clean, Setting("clean"), "black", 0, (0, 0, 0))[1][0].sum() == 56 * 56
    texture, _ = Occluded(clean, Setting("OnlyOne", 56), "texture", 0, (0, 0, 0))[1]
    assert set(texture.unique().tolist()) == {0.0, 1.0}


def test_steps_of_prism_are_reported():
    model = small_prism(num_classes=3, fixed_steps=(1, 2, 3, 4))
    [row] = OcclusionBenchmark(Colours(6), [Setting("clean")]).run([plain("prism", model)])[0]
    assert [row[f"steps {stage}"] for stage in range(1, 5)] == [1, 2, 3, 4]
    [row] = OcclusionBenchmark(Colours(6), [Setting("clean")]).run([plain("other", Majority())])[0]
    assert "steps 1" not in row


def test_any_number_of_stages():
    model = small_prism(num_classes=3, widths=(8, 12, 16), slots=(5, 4, 4), fixed_steps=(1, 2, 3))
    [row] = OcclusionBenchmark(Colours(6), [Setting("clean")]).run([plain("prism", model)])[0]
    assert step_columns(row) == ["steps 1", "steps 2", "steps 3"]


def test_settings_are_read_as_they_are_written():
    for setting in CURVES:
        assert Setting.parse(setting.name) == setting
    assert parse_settings("BlockMask112, PatchMask0.6") == (
        Setting("clean"),
        Setting("BlockMask", 112),
        Setting("PatchMask", 0.6),
    )
    for wrong in ("Patch0.6", "PatchMask", "PatchMask0.6x", "", "clean1"):
        with pytest.raises(ValueError, match="a setting is clean or a mask and its strength"):
            Setting.parse(wrong)


def test_an_interrupted_run_goes_on(tmp_path):
    images, subjects = Colours(), [plain("m", Majority())]
    expected = OcclusionBenchmark(images).run(subjects)[0]

    class Killed(Exception):
        pass

    def stop_at_block(text: str) -> None:
        if text.startswith("BlockMask112"):
            raise Killed

    kept = OcclusionBenchmark(images, folder=tmp_path)
    with pytest.raises(Killed):
        kept.run(subjects, stop_at_block)
    images.reads = 0
    assert kept.run(subjects)[0] == expected
    assert images.reads == 3 + 3 * 24  # three to know the data by; BlockMask112 and the two OnlyOne
    (tmp_path / "clean-mean-0.json").write_bytes(b"cut short")
    assert kept.run(subjects)[0] == expected
    with torch.no_grad():
        subjects[0].model.gain.mul_(-1)  # another model: what was kept does not count
    assert kept.run(subjects)[0][0]["top-1"] == 0
    for other in (
        OcclusionBenchmark(Colours(size=64), folder=tmp_path),
        OcclusionBenchmark(images, mean=(0, 0, 0), folder=tmp_path),
    ):
        with pytest.raises(Killed):  # nor does it for other images, or other pixels in the holes
            other.run(subjects, stop_at_block)
        before = images.reads
        kept.run(subjects)
        assert images.reads > before + 24


def test_a_model_that_was_moved_can_still_be_trained():
    model = Majority()
    OcclusionBenchmark(Colours(3), [Setting("clean")], device="cpu:0").run([plain("m", model)])
    model(torch.rand(2, 3, 8, 8)).sum().backward()
    assert model.gain.grad is not None


def test_curves_are_ordered_from_little_to_much_hidden():
    names = [setting.name for setting in CURVES]
    assert names[1] == "PatchMask0.1"
    assert names[9] == "PatchMask0.9"
    assert names[10] == "BlockMask28"
    assert names[-1] == "OnlyOne28"
    assert len(set(names)) == 24


@pytest.mark.parametrize(
    ("subjects", "images", "sentence"),
    [
        ([plain("m", Majority())], Colours(0), "empty"),
        ([plain("m", Majority()), plain("m", Majority())], Colours(3), "share a name and a run"),
        ([plain("m", Majority(float("nan")))], Colours(3), "m gave a score that is not finite for image 0"),
        ([plain("two", nn.Sequential(nn.Flatten(), nn.Linear(3 * 56 * 56, 2)))], Colours(3), "knows 2 classes"),
    ],
)
def test_bad_use_is_named(subjects, images, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        OcclusionBenchmark(images).run(subjects)


def test_rank_counts_the_classes_that_came_before():
    rows, found = OcclusionBenchmark(Colours(6), [Setting("clean")]).run([plain("m", Majority(-1.0))])
    assert rows[0]["top-1"] == 0
    assert rows[0]["top-5"] == 100
    assert np.all(next(iter(found.values())).rank == 2)


def test_a_damaged_prediction_is_measured_again_and_said(tmp_path, capsys):
    """Cut short, with another digit, or of another shape: none stops a rerun, and none is believed."""
    kept, subjects = OcclusionBenchmark(Colours(), [Setting("clean")], folder=tmp_path), [plain("m", Majority())]
    expected = kept.run(subjects)[0]
    [file] = tmp_path.glob("*.json")
    whole = file.read_text()
    flipped = whole[: whole.index('"found"')] + whole[whole.index('"found"') :].replace("0, ", "7, ", 1)
    for damaged in (whole[: len(whole) // 2], flipped, "5", '{"found": 1}', "[" * 100_000, "\udcff"):
        file.write_text(damaged, errors="surrogateescape")
        assert kept.run(subjects)[0] == expected
        assert f"{file} is damaged: it is measured again" in capsys.readouterr().err
        assert file.read_text() == whole
    assert kept.run(subjects)[0] == expected
    assert not capsys.readouterr().err
