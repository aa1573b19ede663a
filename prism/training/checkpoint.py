"""Checkpoints: complete, written whole or not at all, and read without running what they hold."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from prism.reporting.files import write_whole


def save(state: dict[str, Any], folder: Path, step: int, keep: int) -> Path:
    """Write the state after `step`, then drop all but the newest `keep` checkpoints."""
    path = folder / f"step-{step:08d}.pt"
    write_whole(path, lambda unfinished: torch.save(state, unfinished))
    for old in saved(folder)[:-keep]:
        old.unlink(missing_ok=True)
    return path


def saved(folder: Path) -> list[Path]:
    """Checkpoints in the order of their steps."""
    return sorted(path for path in folder.glob("step-*.pt") if re.fullmatch(r"step-\d{8,}\.pt", path.name))


def read(path: Path) -> dict[str, Any]:
    try:
        if not path.is_file():  # a pipe would wait for ever
            raise OSError
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a damaged file makes the reader raise
        raise ValueError(f"the checkpoint {path} cannot be read: {type(error).__name__}") from None


def settings_of(state: Any, path: Path) -> dict[str, Any]:
    """What the run was told that the checkpoint is of."""
    try:
        return dict(json.loads(state["settings"]))
    except (KeyError, TypeError, ValueError, RecursionError):
        raise ValueError(f"the checkpoint {path} is not a training checkpoint: it has no settings") from None


def check(state: Any, path: Path, learner: nn.Module, average: nn.Module | None, total: int) -> None:
    """Refuse a checkpoint of which a part is missing: a run that went on from it would end elsewhere."""
    try:
        reason = _flaw(state, {"learner": learner} | ({"average": average} if average else {}), total)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        reason = f"{type(error).__name__} {error}"
    if reason:
        raise ValueError(f"the checkpoint {path} is incomplete: {reason}; delete it to resume from the previous one")


def _flaw(state: Any, modules: Mapping[str, nn.Module], total: int) -> str | None:
    """What a checkpoint of these modules lacks."""
    step, moments = state["step"], state["optimiser"]["state"]
    if type(step) is not int or not 0 <= step <= total:
        return f"it is of step {step}, the run has {total}"
    for part, module in modules.items():
        wanted = module.state_dict()
        if flaw := _difference(state[part], {name: value.shape for name, value in wanted.items()}):
            return f"the {part} {flaw}"
        if other := next((name for name, value in wanted.items() if state[part][name].dtype != value.dtype), None):
            return f"the {part} has other numbers than weights in {other}"
    parameters = modules["learner"].named_parameters()
    shapes = {name: value.shape for name, value in parameters if value.requires_grad}
    grouped = [name for group in state["optimiser"]["param_groups"] for name in group["params"]]
    if sorted(grouped) != sorted(shapes):
        return f"the optimiser knows {len(grouped)} parameters, the run has {len(shapes)}"
    # a parameter that no gradient has reached yet has no moments; which ones have is said apart
    if missing := [name for name in state.get("moved", list(moments) or ["anything"]) if name not in moments]:
        return f"the optimiser has nothing of {missing[0]}"
    for name, own in moments.items():
        if flaw := _difference(own, {"step": torch.Size(), "exp_avg": shapes[name], "exp_avg_sq": shapes[name]}):
            return f"the optimiser's state of {name} {flaw}"
    if isinstance(state["tallies"][0], dict):  # of one process, as they once were kept
        state["tallies"] = [state["tallies"]]
    numbers = [n for process in state["tallies"] for tally in process for pair in tally.values() for n in pair]
    if not state["tallies"] or not all(isinstance(number, float) for number in numbers):
        return "it has no sums of the losses"
    if not isinstance(state["skipped"], list) or not all(isinstance(reason, str) for reason in state["skipped"]):
        return "it does not say which images were skipped"
    return None


def _difference(found: Mapping[str, Any], wanted: Mapping[str, torch.Size]) -> str | None:
    for name, shape in wanted.items():
        if name not in found:
            return f"has no {name}"
        if not isinstance(found[name], Tensor) or found[name].shape != shape:
            return f"has another shape of {name}"
    return next((f"has {name}, which the run has not" for name in found if name not in wanted), None)


def export(weights: Mapping[str, Tensor], path: Path, header: Mapping[str, str]) -> None:
    """Weights for use, with their metadata as the header."""
    whole = {name: value.detach().cpu().contiguous() for name, value in weights.items()}
    write_whole(path, lambda unfinished: save_file(whole, unfinished, dict(header)))
