"""All studies of a recipe, from scratch: train what they need, make each of them, and write one page of their results.

A run has a folder of its own and continues there if it was interrupted; a finished one is not trained again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from prism.reporting.files import write_text
from prism.reporting.pages import Section, as_markdown, write_report
from prism.reporting.tables import Rows
from prism.studies.catalogue import STUDIES, RecipeName, Study, Takes
from prism.studies.inputs import SMOKE, Inapplicable, Inputs, Progress
from prism.studies.study import conduct, method_of
from prism.tasks.classification.recipes import Classification
from prism.tasks.recipe import Recipe
from prism.tasks.registry import find_recipe, find_task
from prism.training.log import read_log
from prism.training.run import train_recipe

Changes = Mapping[str, Any]  # fields of a recipe that differ from it
BASELINE = "pvt_v2_b0"
BASELINE_LR = 1e-3
ABLATED_STEPS = (4, 5, 6)
DENSE: set[Takes] = {"detectors", "segmenters"}


@dataclass(frozen=True)
class Plan:
    """How much is trained, and how many images studies use; by default as recipes and data have it."""

    classifier: Changes = field(default_factory=dict)
    ablated: Changes = field(default_factory=dict)
    sizes: tuple[int, ...] = (64, 112, 160)
    detector: Changes = field(default_factory=dict)
    segmenter: Changes = field(default_factory=dict)
    heads: tuple[str, ...] = ("retinanet", "maskrcnn")
    images: int | None = None
    annotated_images: int | None = None
    quick: bool = False


QUICK = Plan(
    classifier=dict(steps=220, warmup=0.02, limit=100),
    ablated=dict(steps=50, warmup=0.02, limit=50),
    sizes=(64, 96),
    detector=dict(steps=40, warmup=0.01, limit=16),
    segmenter=dict(steps=50, warmup=0.005, limit=16),
    images=100,
    annotated_images=16,
    quick=True,
)


@dataclass(frozen=True)
class Project:
    """What is trained, on what, and where; and how studies are run on it."""

    recipe: RecipeName
    folder: Path  # of the runs
    plan: Plan = field(default_factory=Plan)
    data: str = ""  # of classification; by default the recipe's
    annotated: str = "scenes"  # of detection and segmentation: scenes, or a folder in VOC's layout with COCO JSON
    seeds: tuple[int, ...] = (0,)
    split: str = ""
    batch: int | None = None  # images that studies take at a time; by default the task's
    workers: int = 2
    device: str = "auto"

    def inputs(self, takes: Takes, checkpoints: tuple[str, ...], device: str) -> Inputs:
        """What studies of this kind are given."""
        plan, dense = self.plan, takes in DENSE
        return Inputs(
            checkpoints or self.weights(takes),
            self.annotated if dense else self.data or _recipe(self.recipe).data,
            self.split,
            batch=self.batch,
            limit=plan.annotated_images if dense else plan.images,
            workers=self.workers,
            device=device,
            quick=plan.quick,
        )

    def runs(self, takes: Takes) -> list[Recipe]:
        """The training runs that studies of this kind need."""
        plan, both = self.plan, [(model, seed) for model in self.models for seed in self.seeds]
        match takes:
            case "classifiers":
                return [self._classifier(model, seed) for model, seed in both]
            case "ablated classifiers":
                return [self._ablated(steps, seed) for steps in ABLATED_STEPS for seed in self.seeds]
            case "classifiers of several sizes":
                return [self._sized(*each, size) for each in both for size in plan.sizes]
            case "detectors":
                return [self._dense(head, *each, plan.detector) for head in plan.heads for each in both]
            case "segmenters":
                return [self._dense("semfpn", *each, plan.segmenter) for each in both]

    def weights(self, takes: Takes) -> tuple[str, ...]:
        """The files that these runs write."""
        return tuple(str(settings.out / "best.safetensors") for settings in self.runs(takes))

    @property
    def models(self) -> tuple[str, str]:
        return _recipe(self.recipe).model, BASELINE

    def _classifier(self, model: str, seed: int) -> Classification:
        recipe = _recipe(self.recipe)
        lr = recipe.lr if model == recipe.model else BASELINE_LR
        fields = dict(model=model, lr=lr, seed=seed, data=self.data or recipe.data)
        return replace(recipe, **fields, **self._practical(f"{model}-{seed}"), **self.plan.classifier)

    def _ablated(self, most: int, seed: int) -> Classification:
        usual = self._classifier(self.models[0], seed)
        words = (word for word in usual.network_words() if not word.startswith("max_steps="))
        name = f"{usual.model}-{seed}-max-steps-{most}"
        return replace(usual, network=(*words, f"max_steps={most}"), out=self.folder / name, **self.plan.ablated)

    def _sized(self, model: str, seed: int, size: int) -> Classification:
        usual = self._classifier(model, seed)
        out = usual.out if size == usual.size else self.folder / f"{model}-{seed}-{size}px"
        return replace(usual, size=size, out=out)

    def _dense(self, head: str, model: str, seed: int, changes: Changes) -> Recipe:
        """On the backbone of the classifier of this seed, as the paper fine-tunes."""
        recipe = find_recipe(f"{'scenes' if self.annotated == 'scenes' else 'voc'}-{head}")
        start = self._classifier(model, seed)
        fields = dict(model=model, network=start.network_words(), weights=start.out / "best.safetensors")
        practical = self._practical(f"{head}-{model}-{seed}")
        return replace(recipe, data=self.annotated, seed=seed, **fields, **practical, **changes)

    def _practical(self, name: str) -> dict[str, Any]:
        return dict(out=self.folder / name, workers=self.workers, device=self.device)


def train(project: Project, takes: Iterable[Takes], console: Console) -> None:
    """Train all runs of these kinds, each once; those that their folders hold finished are left as they are."""
    kinds: dict[Takes, None] = dict.fromkeys(takes)
    if kinds.keys() & DENSE:  # their backbones start from the classifiers
        kinds = {"classifiers": None, **kinds}
    wanted = {settings.out: settings for kind in kinds for settings in project.runs(kind)}
    for number, settings in enumerate(wanted.values(), start=1):
        console.print(f"run {number} of {len(wanted)}: {settings.out.name}", highlight=False, markup=False)
        train_recipe(settings)


def all_studies(project: Project, out: Path, command: str, device: str, console: Console) -> Path:
    """Every study in a folder of its own, and report.html and report.md of them all; returns the page."""
    train(project, [study.takes for study in STUDIES.values()], console)
    mark = f" ({SMOKE})" if project.plan.quick else ""
    sections: list[Section] = []
    for number, study in enumerate(STUDIES.values(), start=1):
        with console.status("") as status:
            own = replace(project, split="") if study.takes in DENSE else project  # their data has other splits
            inputs = own.inputs(study.takes, (), device)
            first, *others = _made(study, inputs, out / study.name, command, status.update)
        heading = f"{number} {study.title}" + (f" ({study.paper})" if study.paper else "")
        sections += [first._replace(heading=heading), *others]
        console.print(f"wrote {out / study.name}", highlight=False, markup=False)
    headline = sections[0].text.partition("\n\n")[0]  # of the first study
    sections.insert(0, _overview(project, headline))
    write_report(out, f"PRISM on {project.recipe}: results{mark}", sections)
    write_text(out / "report.md", as_markdown(sections, out, command))
    return out / "report.html"


def one_study(
    project: Project,
    study: Study,
    checkpoints: tuple[str, ...],
    out: Path,
    command: str,
    device: str,
    console: Console,
) -> list[Section]:
    """A study of given weights, or of those that the project trains for it."""
    if not checkpoints:
        train(project, [study.takes], console)
    inputs = project.inputs(study.takes, checkpoints, device)
    with console.status("") as status:
        return conduct(study, method_of(study), inputs, out, command, status.update)


def _made(study: Study, inputs: Inputs, out: Path, command: str, progress: Progress) -> list[Section]:
    try:
        return conduct(study, method_of(study), inputs, out, command, lambda said: progress(f"{study.name}: {said}"))
    except Inapplicable as reason:
        return [Section(study.title, f"Left out: {reason}.", [{"study": study.name, "left out": str(reason)}])]


def _overview(project: Project, headline: str) -> Section:
    said = (
        f"Everything here was trained and measured for this page: classifiers with the recipe {project.recipe}, "
        f"detectors and segmenters on {project.annotated}, from the classifiers' weights. Values marked as the paper's "
        "are copied from it for reference, and were measured on other data."
    )
    quick = project.plan.quick
    if quick:
        headline = f"{SMOKE.upper()}: few training steps, few images. No number says how good a model is. {headline}"
    every = {settings.out: settings for study in STUDIES.values() for settings in project.runs(study.takes)}
    rows: Rows = [_summary(settings) | {"note": SMOKE if quick else ""} for settings in every.values()]
    return Section("What was trained", f"{headline}\n\n{said}", rows)


def _summary(settings: Recipe) -> dict[str, Any]:
    *_, last = (row for row in read_log(settings.out / "log.jsonl") if row["kind"] == "epoch")
    task = find_task(settings.task)
    metric = next(name for name in last if name.partition(" ")[2] == task.headline)
    return {
        "run": settings.out.name,
        "model": settings.model,
        "steps": last["step"],
        "images per step": settings.batch,
        "metric": metric,
        "at the end, %": task.unit * last[metric],
    }


def _recipe(name: str) -> Classification:
    recipe = find_recipe(name)
    assert isinstance(recipe, Classification)
    return recipe
