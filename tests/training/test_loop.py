"""The loop: what it learns, keeps, logs, and refuses."""

import csv
import json
import math
import resource
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from accelerate.state import AcceleratorState
from safetensors.torch import load_file

from prism.data.images import Unreadable
from prism.data.stream import Batch
from prism.model.metadata import read_metadata
from prism.tasks.classification.recipes import scenes
from prism.tasks.classification.task import TASK
from prism.tasks.recipe import Recipe as Settings
from prism.training import checkpoint, loop
from prism.training.log import read_log
from prism.training.run import train_recipe as run
from tests.training.small import small_recipe

GOLDEN = Path(__file__).parent / "golden.json"


def prepared(recipe):
    accelerator = loop.start(recipe)
    return TASK.job(recipe, accelerator), accelerator


def test_golden_losses_of_thirty_steps(tmp_path: Path):
    """`prism train scenes --size 32 --batch 16 --lr 1e-3 --steps 30`: a change in model, data or loop shows here."""
    recipe = replace(scenes(), out=tmp_path, size=32, batch=16, length=480, steps=30, workers=0, log_every=5)
    form = ("evidence=False", "slot_ratio=4", "code_width=0.5")  # that of the recorded run
    run(replace(recipe, network=("code_decay=0.9", *form), lr=1e-3, limit=16))
    found = [row["classification"] for row in read_log(tmp_path / "log.jsonl") if row["kind"] == "train"]
    assert found == pytest.approx(json.loads(GOLDEN.read_text()), rel=0.01)


def test_a_run_leaves_logs_weights_and_a_report(tmp_path: Path):
    rows = run(small_recipe(tmp_path))
    assert [row["epoch"] for row in rows] == [1, 2]
    for name in ("val top-1", "val steps 4", "steps 1", "perplexity 1", "code usage 4", "loss"):
        assert math.isfinite(rows[-1][name])
    assert (tmp_path / "report.html").exists()
    assert list((tmp_path / "tensorboard").iterdir())
    assert len(checkpoint.saved(tmp_path / "checkpoints")) == 2
    found = read_metadata(tmp_path / "best.safetensors")
    assert (found.model, found.task, found.version) == ("prism_nano", "classification", 1)
    assert found.preprocessing["size"] == 32
    assert found.preprocessing["crop"] == 1, "scenes are seen whole, here and whenever the file is used"
    assert found.training["hidden in training"] == "nothing"
    again = run(small_recipe(tmp_path))  # nothing is left to do
    assert again == rows


def test_epochs_that_are_not_judged_leave_a_gap_in_the_table(tmp_path: Path):
    run(small_recipe(tmp_path, epochs=3, eval_every=2))
    with (tmp_path / "epochs.csv").open() as file:
        evaluated = [bool(row["val top-1"]) for row in csv.DictReader(file)]
    assert evaluated == [False, True, True]  # the last one always is
    assert (tmp_path / "report.html").exists()


def test_best_is_the_epoch_with_the_highest_figure(tmp_path: Path):
    recipe = small_recipe(tmp_path, epochs=3)
    job, accelerator = prepared(recipe)
    scores = iter([1.0, 3.0, 2.0])
    loop.train(replace(job, evaluate=lambda *_: {"val top-1": next(scores)}), recipe, accelerator)
    assert read_metadata(tmp_path / "best.safetensors").training["epoch"] == 2
    assert read_metadata(tmp_path / "last.safetensors").training["epoch"] == 3


def test_parts_of_a_batch_add_up(tmp_path: Path):
    found = []
    for parts in (1, 2):
        recipe = small_recipe(tmp_path / str(parts), accumulate=parts, epochs=1)
        job, accelerator = prepared(recipe)
        job.learner.double()
        view = job.stream.transform
        job.stream.transform = lambda image, label, view=view: (view(image, label)[0].double(), label)
        loop.train(replace(job, evaluate=lambda *_: {"val top-1": 0.0}), recipe, accelerator)
        found.append(load_file(tmp_path / str(parts) / "last.safetensors"))
    for name, value in found[0].items():
        torch.testing.assert_close(found[1][name], value, rtol=0, atol=1e-9, msg=name)


def test_the_average_is_what_is_kept(tmp_path: Path):
    run(small_recipe(tmp_path, average=0.5, steps=1))
    state = checkpoint.read(checkpoint.saved(tmp_path / "checkpoints")[-1])
    kept = load_file(tmp_path / "last.safetensors")
    name = "head.fc.bias"
    torch.testing.assert_close(kept[name], state["average"][f"module.{name}"])


def test_saved_memory_changes_nothing_but_memory(tmp_path: Path):
    plain, saving = (
        run(small_recipe(tmp_path / str(save), save_memory=save, length=16, epochs=1)) for save in (False, True)
    )
    assert saving[-1]["loss"] == pytest.approx(plain[-1]["loss"], rel=1e-5)


def test_half_precision_trains_nearly_alike(tmp_path: Path):
    losses = []
    for precision in ("fp32", "bf16"):
        AcceleratorState._reset_state()  # accelerate keeps one precision a process
        losses.append(run(small_recipe(tmp_path / precision, precision=precision, length=16, epochs=1))[-1]["loss"])
    AcceleratorState._reset_state()
    assert losses[0] != losses[1]
    assert losses[1] == pytest.approx(losses[0], rel=0.1)


def test_a_loss_that_is_not_finite_names_step_and_batch(tmp_path: Path):
    recipe = small_recipe(tmp_path, save_every=1)
    job, accelerator = prepared(recipe)

    class Poisoned:
        def __len__(self):
            return len(job.stream)

        def epoch(self, number, skip=0):
            for place, batch in enumerate(job.stream.epoch(number, skip)):
                images = batch.images * (math.nan if place == 3 else 1)
                yield Batch(images, batch.targets, batch.names, [])

    with pytest.raises(ValueError, match=r"the loss is nan at step 3, epoch 1, batch of scene \d+ .*step-00000003.pt"):
        loop.train(replace(job, stream=Poisoned()), recipe, accelerator)
    state = checkpoint.read(checkpoint.saved(tmp_path / "checkpoints")[-1])
    assert state["step"] == 3
    assert all(value.isfinite().all() for value in state["learner"].values())


def test_an_image_that_cannot_be_read_is_skipped_named_and_counted(tmp_path: Path):
    recipe = small_recipe(tmp_path, epochs=1)
    job, accelerator = prepared(recipe)
    whole = job.stream.samples

    class Damaged:
        def __len__(self):
            return len(whole)

        def __getitem__(self, index):
            if index == 5:
                raise Unreadable("scene five cannot be read as an image")
            return whole[index]

        def name(self, index):
            return whole.name(index)

    job.stream.samples = Damaged()
    rows = loop.train(job, recipe, accelerator)
    assert rows[-1]["skipped"] == 1
    assert any(row.get("reason", "").startswith("scene five") for row in read_log(tmp_path / "log.jsonl"))


def test_a_full_disk_is_said_and_the_last_checkpoint_stays(tmp_path: Path):
    good = checkpoint.save({"step": 1}, tmp_path, 1, keep=1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        with pytest.raises(OSError, match=r"step-00000002\.pt could not be written, what was there before is intact"):
            checkpoint.save({"large": torch.zeros(1 << 16)}, tmp_path, 2, keep=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in tmp_path.iterdir()] == [good.name]
    assert checkpoint.read(good) == {"step": 1}


def test_a_damaged_checkpoint_is_named(tmp_path: Path):
    (tmp_path / "step-00000001.pt").write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match=r"step-00000001\.pt cannot be read"):
        checkpoint.read(checkpoint.saved(tmp_path)[0])


def test_another_run_in_the_same_folder_is_refused(tmp_path: Path):
    run(small_recipe(tmp_path, epochs=1))
    with pytest.raises(ValueError, match=r"holds a run with lr 0\.003, not 0\.5"):
        run(small_recipe(tmp_path, epochs=1, lr=0.5))
    run(small_recipe(tmp_path, epochs=1, keep=5))  # what does not change the outcome may change


def test_rates():
    settings = Settings(lr=2.0, warmup=1, epochs=10)
    rates = [settings.rate(step, 100, 10) for step in range(100)]
    assert rates[:10] == pytest.approx([0.2 * (step + 1) for step in range(10)])
    assert rates[10] == 2.0
    assert all(a > b for a, b in pairwise(rates[10:]))
    assert rates[-1] < 0.01
    steps = Settings(lr=1.0, schedule="steps", milestones=(8, 11))
    assert [steps.rate(epoch * 5, 60, 5) for epoch in (0, 7, 8, 11)] == pytest.approx([1, 1, 0.1, 0.01])
    assert Settings(lr=1.0, schedule="poly").rate(50, 100, 10) == pytest.approx(0.5**0.9)


@pytest.mark.parametrize(("field", "value"), [("lr", 0), ("batch", -1), ("average", 1.0), ("warmup", -1)])
def test_settings_that_make_no_sense_are_refused(field, value):
    with pytest.raises(ValueError, match=field):
        Settings(**{field: value})
