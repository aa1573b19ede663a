"""`python -m tests.attack --seed 0 --minutes 10 --out results/reliability`: the whole campaign, in one process."""

import argparse
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import torch

from prism.reporting.tables import write
from tests.attack.campaign import Campaign
from tests.attack.outcome import Outcome

FAILURES = ("traceback", "hang", "unsound")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--only", type=int, help="repeat one attempt by its number, and print what came of it")
    parser.add_argument("--out", type=Path, help="folder for attack.csv and attack.md")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    out = given.out and given.out.resolve()
    with tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(Path(folder), given.seed)
        if given.only is not None:
            kind, words, outcome = campaign.run(given.only)
            print(f"{kind}: {words}\n{outcome.kind}\n{outcome.said}")
            return
        found = attack(campaign, 60 * given.minutes)
    rows = table(found)
    if out:
        note = f"`python -m tests.attack --seed {given.seed} --minutes {given.minutes:g}`, one process on one core. "
        write(rows, out / "attack", f"{note}A failure is a traceback, a hang or an unsound result.")
    print(*(f"{row['inputs']}: {row['runs']} runs, {row['failures']} failures" for row in rows), sep="\n")
    sys.exit(1 if any(row["failures"] for row in rows) else 0)


def attack(campaign: Campaign, seconds: float) -> list[tuple[str, Outcome]]:
    found, started, number = [], time.monotonic(), 0
    while time.monotonic() - started < seconds:
        kind, words, outcome = campaign.run(number)
        found.append((kind, outcome))
        if outcome.kind in FAILURES:
            print(
                f"--only {number}: {kind}: {outcome.kind}: {words}\n{outcome.said[-1500:]}", file=sys.stderr, flush=True
            )
        number += 1
    return found


def table(found: list[tuple[str, Outcome]]) -> list[dict[str, object]]:
    rows = []
    for kind in [*dict.fromkeys(sorted(kind for kind, _ in found)), "all"]:
        own = [outcome for name, outcome in found if kind in (name, "all")]
        counts = Counter(outcome.kind for outcome in own)
        rows.append(
            {"inputs": kind, "runs": len(own)}
            | {name: counts[name] for name in ("success", "sentence", "usage")}
            | {"failures": sum(counts[name] for name in FAILURES), "seconds": round(sum(o.seconds for o in own), 1)}
        )
    return rows


if __name__ == "__main__":
    main()
