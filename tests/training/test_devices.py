"""Ready for a GPU, without one: nothing is made on the wrong device, and Python seldom waits for the device."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.utils import send_to_device
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from prism.model.memory import Codebook
from prism.model.variants import VARIANTS
from prism.tasks.classification.recipes import imagenet
from prism.tasks.classification.task import TASK
from prism.tasks.detection.recipes import scenes_maskrcnn, scenes_retinanet
from prism.tasks.learner import find_prism
from prism.tasks.recipe import Recipe
from prism.tasks.registry import find_task
from prism.tasks.segmentation.recipes import scenes_semfpn
from prism.training import loop
from tests.model.small import random_images, small_prism
from tests.training.small import small_recipe

aten = torch.ops.aten
BASELINES = ("pvt_v2_b0", "biformer_nano", "bixt_nano", "pacavit_nano", "debiformer_nano", "xcit_nano_12_p16_224")


class FakeCuda(FakeTensorMode):
    """Tensors on a cuda device of which only shape and type are known: an operation on two devices fails.

    What Python asks of values has made-up answers: the next of `answers` for a number, and yes for every mask.
    """

    def __init__(self):
        super().__init__(allow_non_fake_inputs=True)
        self.answers: Iterator[int] = repeat(0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is aten._local_scalar_dense.default:
            return next(self.answers)
        if func is aten.nonzero.default:
            return args[0].new_empty((args[0].numel(), args[0].dim()), dtype=torch.long)
        if func is aten.bincount.default:
            return args[0].new_empty(kwargs["minlength"] if "minlength" in kwargs else args[2])
        if func is torch.ops.torchvision.nms.default:
            return args[0].new_empty(len(args[0]), dtype=torch.long)
        if func is aten.index.Tensor and args[1][0] is not None and args[1][0].dtype == torch.bool:
            assert args[1][0].device == args[0].device
            return args[0].flatten(0, args[1][0].dim() - 1).clone()
        return super().__torch_dispatch__(func, types, args, kwargs)


def small(recipe: Recipe, **changes: Any) -> Recipe:
    network = ("codes=16",) if changes.get("model", recipe.model).startswith("prism") else ()
    return replace(recipe, batch=2, network=network, classes=10, **changes)


@pytest.mark.parametrize(
    "recipe",
    [
        *(small(imagenet(), model=name, size=224) for name in (*VARIANTS, *BASELINES)),
        small(scenes_retinanet()),
        small(scenes_maskrcnn()),
        small(scenes_semfpn()),
    ],
    ids=lambda recipe: f"{recipe.task}-{getattr(recipe, 'head', '')}-{recipe.model}",
)
def test_everything_stays_on_the_device_of_the_images(recipe: Recipe, monkeypatch: pytest.MonkeyPatch):
    """Forward only: the engine of backward passes asks for a real device."""
    monkeypatch.setattr(torch.backends.cudnn, "enabled", False)  # its own sampling knows no fake tensors
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    task = find_task(recipe.task)
    learner = task.learner(recipe, [str(number) for number in range(10)]).train()
    prism = find_prism(learner)
    if prism is not None:
        prism.fixed_steps = 2
    try:
        with FakeCuda() as cuda:
            learner._apply(lambda value: cuda.from_tensor(value).to("cuda"))
            batch: Any = send_to_device(task.random_batch(recipe, 10), "cuda")
            outcome = learner(batch.images, batch.targets)
            found = {name: value.device.type for name, value in {**outcome.losses, **outcome.figures}.items()}
            assert found == dict.fromkeys(found, "cuda")
            for book in [module for module in learner.modules() if isinstance(module, Codebook)][:1]:
                features, codes = book._pending[0]
                cuda.answers = chain([len(features)], repeat(0))  # the first update, by k-means
                book.update()
                book.collect(features, codes)
                cuda.answers = repeat(1)  # a later one
                book.update()
                assert book.codes.device.type == "cuda"
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)


class Waits(TorchDispatchMode):
    """Counts how often Python asks a tensor for a value, for which it would wait on an accelerator."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func in (aten._local_scalar_dense.default, aten.nonzero.default)
        return func(*args, **(kwargs or {}))


def waits(function: Callable[[], Any]) -> int:
    with Waits() as counted:
        function()
    return counted.count


def test_parts_of_a_batch_do_not_wait_for_the_device(tmp_path: Path):
    found = []
    for parts in (1, 4):
        recipe = small_recipe(tmp_path / str(parts), model="resnet10t", network=(), accumulate=parts, clip=1.0)
        run = loop._Run(TASK.job(recipe, accelerator := loop.start(recipe)), recipe, accelerator)
        batches = run.job.stream.epoch(0)
        own = [next(batches) for _ in range(parts)]
        found.append(waits(lambda run=run, own=own: run._take_step(own, 0)))
    assert found[0] == found[1]


def test_halting_waits_once_per_step():
    model = small_prism(max_steps=5).eval()
    images = random_images(8)
    with torch.inference_mode():
        steps = [int(stage.steps.max()) for stage in model.forward_traced(images)[1].stages]
        spread = {tuple(stage.steps.tolist()) for stage in model.forward_traced(images)[1].stages}
        assert any(len({*own}) > 2 for own in spread), "images leave the batch at different steps"
        assert waits(lambda: model.forward_traced(images)) <= sum(steps)
