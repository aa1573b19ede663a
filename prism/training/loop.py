"""The only training loop: any task, one CPU or many machines, killed at any moment and resumed to the same result.

Randomness has no state of its own: what is drawn at an optimiser step follows from (seed, step, process), and what
is drawn for a sample from (seed, epoch, sample). So a checkpoint needs no generator's state, and its step number says
where in the data to go on.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from accelerate.utils import broadcast_object_list, gather_object, send_to_device
from timm.optim import create_optimizer_v2
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.fsdp import FSDPModule
from torch.nn.utils import clip_grad_norm_, get_total_norm
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from prism.data.stream import Batch, seed_everything, seed_of
from prism.model.memory import SlotMemory, update_codebooks
from prism.tasks.learner import memory_figures
from prism.tasks.recipe import Recipe, resume_fields
from prism.tasks.task import Job
from prism.training import checkpoint
from prism.training.log import Log, read_log
from prism.training.sharding import gathered, shard, whole


class Tally:
    """Sums of named figures, and how many went into each. Sums stay on their device until a row or a file is written:
    to read one is to wait for the device."""

    def __init__(self, sums: Mapping[str, Sequence[float]] | None = None):
        self.totals: dict[str, Tensor | float] = {name: total for name, (total, _) in (sums or {}).items()}
        self.counts = {name: count for name, (_, count) in (sums or {}).items()}

    def add(self, figures: Mapping[str, Tensor]) -> None:
        for name, value in figures.items():
            self.totals[name] = self.totals.get(name, 0.0) + _wide(value.detach())
            self.counts[name] = self.counts.get(name, 0.0) + 1

    def sums(self) -> dict[str, list[float]]:
        """Each total and its count, as a file keeps them."""
        return {name: [float(total), self.counts[name]] for name, total in self.totals.items()}

    def means(self, accelerator: Accelerator) -> dict[str, float]:
        """Over all processes. Every process must ask."""
        if not self.totals:
            return {}
        own = _wide(torch.tensor([*self.sums().values()], dtype=torch.float64)).to(accelerator.device)
        totals, counts = accelerator.reduce(own).unbind(1)  # pyright: ignore
        return dict(zip(self.totals, (totals / counts).tolist(), strict=True))


def _wide(value: Tensor) -> Tensor:
    """In float64, where the device has it."""
    return value.to(torch.float32 if value.device.type == "mps" else torch.float64)


def start(settings: Recipe) -> Accelerator:
    """Devices, processes and precision, as the launcher and the settings ask."""
    on_cpu = settings.device == "cpu" or not torch.accelerator.is_available()
    # an image may halt after one step, and then no gradient reaches the slots' FFN
    unused = DistributedDataParallelKwargs(find_unused_parameters=True)
    precision = "no" if settings.precision == "fp32" else settings.precision
    return Accelerator(cpu=on_cpu, mixed_precision=precision, kwargs_handlers=[unused])


def train(job: Job, settings: Recipe, accelerator: Accelerator) -> list[dict[str, Any]]:
    """Train, or go on where `settings.out` left off, and return the log's epoch rows.

    The folder receives log.jsonl, TensorBoard events, checkpoints, and the weights of the last and the best epoch.
    """
    run = _Run(job, settings, accelerator)
    run.resume()
    with Log(settings.out if accelerator.is_main_process else None, run.step, run.total, job.name) as log:
        while True:
            if run.step > run.closed and (run.step % run.per_epoch == 0 or run.step == run.total):
                run.evaluate(log)
            if run.step == run.total:
                return run.epoch_rows()
            for _ in run.rest_of_epoch(log):
                if settings.save_every and run.step % settings.save_every == 0:
                    run.save()
            run.save()


class _Run:
    """A run in progress: everything that changes is here."""

    def __init__(self, job: Job, settings: Recipe, accelerator: Accelerator):
        self.job, self.settings, self.accelerator, self.out = job, settings, accelerator, settings.out
        self.per_epoch = len(job.stream) // settings.accumulate
        if not self.per_epoch:
            raise ValueError(f"an epoch has {len(job.stream)} batches, too few for one step of {settings.accumulate}")
        self.total = settings.steps or settings.epochs * self.per_epoch
        network = job.learner.network
        if settings.save_memory:
            network.set_grad_checkpointing(True)  # pyright: ignore
        self.average = None
        if settings.average is not None:
            if settings.shard:
                raise ValueError("--shard cannot be combined with --average")
            average_of = get_ema_multi_avg_fn(settings.average)
            network.to(accelerator.device)
            self.average = AveragedModel(network, multi_avg_fn=average_of, use_buffers=False)
        if accelerator.distributed_type.value == "FSDP":
            raise ValueError("use --shard instead of accelerate's own sharding settings")
        if settings.shard:
            shard(network, accelerator)
        optimiser = create_optimizer_v2(
            network, "adamw", lr=settings.lr, weight_decay=settings.weight_decay, betas=settings.betas, fused=True
        )
        # a sharded learner exchanges gradients by itself
        self.learner = accelerator.prepare_model(job.learner, evaluation_mode=settings.shard)
        self.prepared = accelerator.prepare_optimizer(optimiser)
        self.optimiser: Optimizer = optimiser
        self.memory, self.others = _parameters_apart(network)
        self.step = 0
        self.closed = 0  # the step up to which epochs have their rows
        self.epoch_tally, self.window = Tally(), Tally()
        self.skipped: list[str] = []

    # ---- training

    def rest_of_epoch(self, log: Log) -> Iterator[None]:
        """One optimiser step a turn, up to the end of the epoch or of the run."""
        epoch, done = divmod(self.step, self.per_epoch)
        batches = self.job.stream.epoch(epoch, skip=done * self.settings.accumulate)
        log.set_clock(self.step)
        for _ in range(min(self.per_epoch - done, self.total - self.step)):
            self._take_step(list(islice(batches, self.settings.accumulate)), epoch)
            self.step += 1
            if self.step % self.settings.log_every == 0 or self.step == self.total:
                self._log_window(log)
            yield

    def _take_step(self, batches: list[Batch], epoch: int) -> None:
        settings, accelerator = self.settings, self.accelerator
        assert len(batches) == settings.accumulate, "the stream is shorter than it says"
        seed_everything(seed_of(settings.seed, self.step, accelerator.process_index))
        rate = settings.rate(self.step, self.total, self.per_epoch)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.learner.train()
        losses = []
        for place, batch in enumerate(batches):
            last = place + 1 == len(batches)
            if isinstance(self.job.learner.network, FSDPModule):
                self.job.learner.network.set_requires_gradient_sync(last)
            with nullcontext() if last or settings.shard else accelerator.no_sync(self.learner):
                images, targets = send_to_device((batch.images, batch.targets), accelerator.device, non_blocking=True)
                outcome = self.learner(images, targets)
                loss = torch.stack(list(outcome.losses.values())).sum()
                accelerator.backward(loss / len(batches))
            losses.append(loss.detach())
            figures = {"loss": loss} | outcome.losses | outcome.figures
            self.epoch_tally.add(figures)
            self.window.add(figures)
            self.skipped += batch.skipped
        self._check_finite(losses, self._clip(), batches, epoch)
        self.prepared.step()
        self.prepared.zero_grad()
        update_codebooks(self.job.learner.network)
        if self.average is not None:
            self.average.update_parameters(self.job.learner.network)

    def _clip(self) -> Tensor:
        """Norm of the gradient. The memory's is apart: its losses are summed over channels and would rule."""
        self.accelerator.unscale_gradients(self.prepared)
        if self.settings.clip is not None:
            clip_grad_norm_(self.memory, self.settings.clip)
            return whole(clip_grad_norm_(self.others, self.settings.clip))
        return whole(get_total_norm([p.grad for p in self.others if p.grad is not None]))

    def _check_finite(self, losses: list[Tensor], norm: Tensor, batches: list[Batch], epoch: int) -> None:
        """Before the optimiser moves anything; all at once, as to read a number is to wait for the device."""
        *values, length = torch.stack([_wide(value) for value in (*losses, norm)]).tolist()
        everywhere = not math.isfinite(length) and self.accelerator.scaler is None  # else it skips the step by itself
        wrong = [
            ("loss", value, batch) for value, batch in zip(values, batches, strict=True) if not math.isfinite(value)
        ]
        if not wrong and not everywhere:
            return
        what, value, batch = wrong[0] if wrong else ("gradient", length, batches[-1])
        kept = checkpoint.saved(self.checkpoints)
        names = ", ".join(batch.names[:4]) + (", ..." if len(batch.names) > 4 else "")
        good = f"the last good checkpoint is {kept[-1]}" if kept else "there is no checkpoint yet"
        said = f"the {what} is {value} at step {self.step}, epoch {epoch + 1}, batch of {names}; {good}"
        # a gradient is of all processes, a loss of the one whose batch it names
        every = gather_object([said]) if everywhere else [said]
        raise ValueError(next((sentence for sentence in every if sentence.startswith("the loss")), said))

    def _log_window(self, log: Log) -> None:
        means = self.window.means(self.accelerator)
        self.window = Tally()
        speed = log.speed(self.step) * self.settings.batch
        rate = self.optimiser.param_groups[0]["lr"]
        log.row("train", self.step, {**means, "lr": rate, "images/s": speed})
        log.advance(self.step, f"loss {means['loss']:.3f}, {speed:.0f} images/s")

    # ---- evaluation

    def epoch_rows(self) -> list[dict[str, Any]]:
        return [row for row in read_log(self.out / "log.jsonl") if row["kind"] == "epoch"]

    def evaluate(self, log: Log) -> None:
        """Close an epoch: measure, keep the weights, write its row."""
        accelerator, epoch = self.accelerator, math.ceil(self.step / self.per_epoch)
        network = self.average.module if self.average is not None else self.job.learner.network
        figures = self.epoch_tally.means(accelerator) | memory_figures(network)
        skipped = sorted(set(gather_object(self.skipped)))
        self._close_epoch()
        due = epoch % self.settings.eval_every == 0 or self.step == self.total
        if due:
            network.eval()
            with gathered(network):
                figures |= self.job.evaluate(network, accelerator)
            if not math.isfinite(figures.get(self.job.best, math.nan)):
                raise ValueError(f"the evaluation after step {self.step} gave no finite {self.job.best}")
        weights = get_model_state_dict(self.learner, options=_WHOLE) if self.average is None else None
        if accelerator.is_main_process:
            for reason in skipped:
                log.row("skipped", self.step, {"reason": reason})
                log.say(f"skipped: {reason}")
            kept = network.state_dict() if weights is None else _below(weights, "network.")
            header = self.job.metadata.with_training(step=self.step, epoch=epoch).header()
            checkpoint.export(kept, self.out / "last.safetensors", header)
            earlier = [row[self.job.best] for row in self.epoch_rows() if self.job.best in row]
            if due and figures[self.job.best] > max(earlier, default=-math.inf):
                checkpoint.export(kept, self.out / "best.safetensors", header)
            log.row("epoch", self.step, {"epoch": epoch, **figures, "skipped": len(skipped)})
            log.say(_line(epoch, self.total / self.per_epoch, figures, self.job.best))
        accelerator.wait_for_everyone()

    def _close_epoch(self) -> None:
        self.closed, self.epoch_tally, self.skipped = self.step, Tally(), []

    # ---- checkpoints

    @property
    def checkpoints(self) -> Path:
        return self.out / "checkpoints"

    def save(self) -> None:
        learner, optimiser = get_state_dict(self.learner, self.optimiser, options=_WHOLE)
        state = {
            "step": self.step,
            "settings": json.dumps(resume_fields(self.settings)),
            "learner": learner,
            "optimiser": optimiser,
            "average": self.average.state_dict() if self.average is not None else None,
            "scaler": self.accelerator.scaler.state_dict() if self.accelerator.scaler is not None else None,
            "moved": list(optimiser.get("state", ())),
            "tallies": gather_object([[self.epoch_tally.sums(), self.window.sums()]]),  # of every process
            "skipped": gather_object(self.skipped),
        }
        if self.accelerator.is_main_process:
            checkpoint.save(state, self.checkpoints, self.step, self.settings.keep)
        self.accelerator.wait_for_everyone()

    def resume(self) -> None:
        kept = checkpoint.saved(self.checkpoints)
        if not kept:
            return
        state = checkpoint.read(kept[-1])
        _check_same(checkpoint.settings_of(state, kept[-1]), resume_fields(self.settings), self.out)
        checkpoint.check(state, kept[-1], self.job.learner, self.average, self.total)
        set_state_dict(
            self.learner,
            self.optimiser,
            model_state_dict=state["learner"],
            optim_state_dict=state["optimiser"],
            options=_GAPS_ALLOWED,
        )
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        if self.accelerator.scaler is not None:
            self.accelerator.scaler.load_state_dict(state["scaler"])
        self.step, self.skipped = state["step"], state["skipped"]
        self.epoch_tally, self.window = _own_tallies(state["tallies"], self.accelerator)
        # the first process decides for all: another machine may see the log later
        closed = [any(row["step"] == self.step for row in self.epoch_rows())]
        if broadcast_object_list(closed)[0]:  # the kill came after the epoch's row, and before another checkpoint
            self._close_epoch()


_WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)
# a parameter that no gradient has reached yet has no state in the optimiser; names and shapes were checked by then
_GAPS_ALLOWED = StateDictOptions(full_state_dict=True, cpu_offload=True, strict=False)


def _own_tallies(kept: list[Any], accelerator: Accelerator) -> tuple["Tally", "Tally"]:
    """This process's sums; with another number of processes than there was, the first takes all of them."""
    if len(kept) == accelerator.num_processes:
        epoch, window = kept[accelerator.process_index]
        return Tally(epoch), Tally(window)
    share = float(accelerator.is_main_process)
    epoch, window = (
        {name: [share * sum(sums[name][part] for sums in theirs) for part in (0, 1)] for name in theirs[0]}
        for theirs in zip(*kept, strict=True)
    )
    return Tally(epoch), Tally(window)


def _parameters_apart(network: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Parameters of slot memories, and all others."""
    memory = [p for module in network.modules() if isinstance(module, SlotMemory) for p in module.parameters()]
    known = set(map(id, memory))
    return memory, [p for p in network.parameters() if id(p) not in known]


def _below(weights: Mapping[str, Any], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}


def _line(epoch: int, epochs: float, figures: dict[str, float], best: str) -> str:
    parts = [f"epoch {epoch}/{math.ceil(epochs)}", f"loss {figures['loss']:.3f}"]
    return ", ".join([*parts, f"{best} {figures[best]:.2f}"] if best in figures else parts)


def _check_same(found: dict[str, Any], wanted: dict[str, Any], out: Path) -> None:
    for name in wanted:
        if name in found and found[name] != wanted[name]:  # a field that came later is not in an older run
            raise ValueError(
                f"{out} holds a run with {name} {found.get(name)!r}, not {wanted[name]!r}: "
                "repeat its settings to go on, or choose another --out"
            )
