"""All studies of a recipe, from nothing: what they need is trained, each is made, and one page tells what they say.

A run has a folder of its own and goes on there if it was interrupted; one that is finished is not trained again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from rich.console import Console

from prism.reporting.files import write_text
from prism.reporting.pages import as_markdown, write_report
from prism.reporting.tables import Rows
from prism.studies.catalogue import STUDIES
from prism.studies.material import SMOKE, Inapplicable, Material
from prism.studies.study import Section, Study, Takes, conduct
from prism.tasks.classification.recipes import Classification
from prism.tasks.recipe import Recipe
from prism.tasks.registry import find_recipe, find_task
from prism.training.log import read_log
from prism.training.run import train_recipe

RecipeName = Literal["scenes", "imagenette"]
RECIPE_NAMES = get_args(RecipeName)
Changes = Mapping[str, Any]  # fields of a recipe that are not as it says
BASELINE = "pvt_v2_b0"
BASELINE_LR = 1e-3
ABLATED_STEPS = (4, 5, 6)
DENSE: set[Takes] = {"detectors", "segmenters"}


@dataclass(frozen=True)
class Plan:
    """How much is trained, and at how many pictures the studies look; by default as recipes and data have it."""

    classifier: Changes = field(default_factory=dict)
    ablated: Changes = field(default_factory=dict)
    detector: Changes = field(default_factory=dict)
    segmenter: Changes = field(default_factory=dict)
    heads: tuple[str, ...] = ("retinanet", "maskrcnn")
    pictures: int | None = None
    annotated_pictures: int | None = None
    quick: bool = False


QUICK = Plan(
    classifier=dict(steps=220, warmup=0.02, limit=100),
    ablated=dict(steps=50, warmup=0.02, limit=50),
    detector=dict(steps=40, warmup=0.01, limit=16),
    segmenter=dict(steps=50, warmup=0.005, limit=16),
    pictures=100,
    annotated_pictures=16,
    quick=True,
)


@dataclass(frozen=True)
class Project:
    """What is trained, on what, and where; and how it is looked at."""

    recipe: RecipeName
    folder: Path  # of the runs
    plan: Plan = field(default_factory=Plan)
    data: str = ""  # of classification; by default the recipe's
    annotated: str = "scenes"  # of detection and segmentation: scenes, or a folder in VOC's layout with COCO JSON
    seeds: tuple[int, ...] = (0,)
    split: str = ""
    batch: int | None = None  # images that studies take together; by default the task's
    workers: int = 2
    device: str = "auto"

    def material(self, takes: Takes, checkpoints: tuple[str, ...], device: str) -> Material:
        """What studies of this kind look at."""
        plan, dense = self.plan, takes in DENSE
        return Material(
            checkpoints,
            self.annotated if dense else self.data or _recipe(self.recipe).data,
            self.split,
            batch=self.batch,
            limit=plan.annotated_pictures if dense else plan.pictures,
            workers=self.workers,
            device=device,
            quick=plan.quick,
        )

    def runs(self, takes: Takes) -> list[Recipe]:
        """The trainings that studies of this kind look at."""
        match takes:
            case "classifiers":
                return [self._classifier(model, seed) for model in self.models for seed in self.seeds]
            case "ablated classifiers":
                return [self._ablated(steps, seed) for steps in ABLATED_STEPS for seed in self.seeds]
            case "detectors":
                return [
                    self._dense(head, model, seed, self.plan.detector)
                    for head in self.plan.heads
                    for model in self.models
                    for seed in self.seeds
                ]
            case "segmenters":
                return [
                    self._dense("semfpn", model, seed, self.plan.segmenter)
                    for model in self.models
                    for seed in self.seeds
                ]

    def weights(self, takes: Takes) -> tuple[str, ...]:
        """The files that these trainings write."""
        return tuple(str(settings.out / "best.safetensors") for settings in self.runs(takes))

    @property
    def models(self) -> tuple[str, str]:
        return _recipe(self.recipe).model, BASELINE

    def _classifier(self, model: str, seed: int) -> Classification:
        recipe = _recipe(self.recipe)
        lr = recipe.lr if model == recipe.model else BASELINE_LR
        return replace(
            recipe,
            model=model,
            lr=lr,
            seed=seed,
            data=self.data or recipe.data,
            **self._practical(f"{model}-{seed}"),
            **self.plan.classifier,
        )

    def _ablated(self, most: int, seed: int) -> Classification:
        usual = self._classifier(self.models[0], seed)
        words = (word for word in usual.network_words() if not word.startswith("max_steps="))
        name = f"{usual.model}-{seed}-max-steps-{most}"
        return replace(usual, network=(*words, f"max_steps={most}"), out=self.folder / name, **self.plan.ablated)

    def _dense(self, head: str, model: str, seed: int, changes: Changes) -> Recipe:
        """On the backbone of the classifier of this seed, as the paper fine-tunes."""
        recipe = find_recipe(f"{'scenes' if self.annotated == 'scenes' else 'voc'}-{head}")
        start = self._classifier(model, seed)
        fields = dict(
            model=model,
            network=start.network_words(),
            weights=start.out / "best.safetensors",
            data=self.annotated,
            seed=seed,
        )
        return replace(recipe, **fields, **self._practical(f"{head}-{model}-{seed}"), **changes)

    def _practical(self, name: str) -> dict[str, Any]:
        return dict(out=self.folder / name, workers=self.workers, device=self.device)


def train(project: Project, takes: Iterable[Takes], console: Console) -> None:
    """Train all runs of these kinds, each once; those whose folder holds them finished are only looked over."""
    kinds: dict[Takes, None] = dict.fromkeys(takes)
    if kinds.keys() & DENSE:  # their backbones start from the classifiers
        kinds = {"classifiers": None, **kinds}
    wanted = {settings.out: settings for kind in kinds for settings in project.runs(kind)}
    for number, settings in enumerate(wanted.values(), start=1):
        console.print(f"run {number} of {len(wanted)}: {settings.out.name}", highlight=False)
        train_recipe(settings)


def all_studies(project: Project, out: Path, command: str, device: str, console: Console) -> Path:
    """Every study in a folder of its own, and report.html and report.md of them all; returns the page."""
    train(project, [study.takes for study in STUDIES.values()], console)
    sections = [_overview(project)]
    for number, study in enumerate(STUDIES.values(), start=1):
        with console.status("") as status:
            own = replace(project, split="") if study.takes in DENSE else project  # their data has other splits
            material = own.material(study.takes, project.weights(study.takes), device)
            first, *others = _made(study, material, out / study.name, command, status.update)
        heading = f"{number} {study.title}" + (f" ({study.paper})" if study.paper else "")
        sections += [first._replace(heading=heading), *others]
        console.print(f"wrote {out / study.name}", highlight=False)
    write_report(out, _title(project), sections)
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
    material = project.material(study.takes, checkpoints or project.weights(study.takes), device)
    with console.status("") as status:
        return conduct(study, material, out, command, status.update)


def _made(study: Study, material: Material, out: Path, command: str, progress: Any) -> list[Section]:
    try:
        return conduct(study, material, out, command, lambda said: progress(f"{study.name}: {said}"))
    except Inapplicable as reason:
        return [Section(study.title, f"Left out: {reason}.", [{"study": study.name, "left out": str(reason)}])]


def _overview(project: Project) -> Section:
    said = [
        f"Everything here was trained and measured for this page: classifiers by the recipe {project.recipe}, "
        f"detectors and segmenters on {project.annotated}, from the classifiers' weights. Values marked as the paper's "
        "are copied from it for reference, and were measured on other data."
    ]
    if project.plan.quick:
        said.insert(0, f"{SMOKE.upper()}: few steps of training, few pictures. No number says how good a model is.")
    return Section("What was trained", " ".join(said), _trained(project))


def _trained(project: Project) -> Rows:
    every = {settings.out: settings for study in STUDIES.values() for settings in project.runs(study.takes)}
    return [_summary(settings) | {"note": SMOKE if project.plan.quick else ""} for settings in every.values()]


def _summary(settings: Recipe) -> dict[str, Any]:
    *_, last = (row for row in read_log(settings.out / "log.jsonl") if row["kind"] == "epoch")
    task = find_task(settings.task)
    judged = next(name for name in last if name.partition(" ")[2] == task.headline)
    return {
        "run": settings.out.name,
        "model": settings.model,
        "steps": last["step"],
        "pictures a step": settings.batch,
        "judged by": judged,
        "at the end, %": task.unit * last[judged],
    }


def _recipe(name: str) -> Classification:
    recipe = find_recipe(name)
    assert isinstance(recipe, Classification)
    return recipe


def _title(project: Project) -> str:
    return f"PRISM on {project.recipe}: results" + (f" ({SMOKE})" if project.plan.quick else "")
