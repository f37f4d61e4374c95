"""The report of the flights job at its end, as text or as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pandas as pd

from cowstate.demo.batch_check import Differences
from cowstate.demo.store_contents import StoreContents

WORST_CHAINS = 10
_NEW_YORK = ZoneInfo("America/New_York")


@dataclass(frozen=True, slots=True)
class DelayChain:
    """Consecutive legs of an aircraft, each with carried delay.

    began: scheduled departure of the first leg, New York time.
    carried_minutes: summed over the legs.
    """

    tailnum: str
    began: str
    legs: int
    carried_minutes: int
    route: str


def worst_chains(legs: pd.DataFrame) -> list[DelayChain]:
    """The chains that carried the most minutes in total, the worst first."""
    carrying = legs[legs["chain_legs"] > 0].sort_values("chain_legs")
    chains = carrying.groupby(["tailnum", "chain_start_minute"], sort=True)
    totals = chains["chain_carried"].max().sort_values(ascending=False, kind="stable")
    worst = []
    for tailnum, start in totals.head(WORST_CHAINS).index:
        chain = chains.get_group((tailnum, start))
        began = datetime.fromtimestamp(int(start) * 60, UTC).astimezone(_NEW_YORK)
        worst.append(
            DelayChain(
                tailnum=tailnum,
                began=f"{began:%Y-%m-%d %H:%M}",
                legs=len(chain),
                carried_minutes=int(chain["chain_carried"].max()),
                route="  ".join(chain["origin"] + "-" + chain["dest"]),
            )
        )
    return worst


def chain_table(chains: list[DelayChain]) -> str:
    """The chains as aligned text."""
    lines = [" #  aircraft  began (New York)  legs  minutes carried  route"]
    for rank, chain in enumerate(chains, start=1):
        lines.append(
            f"{rank:2}  {chain.tailnum:8}  {chain.began}  {chain.legs:4}  "
            f"{chain.carried_minutes:15,}  {chain.route}"
        )
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class StreamOutcome:
    """Outcome of a start of the stream.

    first_epoch: the first epoch of this start, None if nothing was left to do.
    epochs_done: the number of epochs that all starts together have done.
    interrupted: True if Ctrl-C stopped the stream.
    seconds: duration of this start.
    """

    query_id: str
    first_epoch: int | None
    epochs_done: int
    interrupted: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class DemoReport:
    """The results of a finished run."""

    flights: int
    legs: int
    legs_with_carried_delay: int
    stream: StreamOutcome
    chains: list[DelayChain]
    picture: Path
    store: StoreContents
    differences: Differences


def _replayed(report: DemoReport) -> str:
    stream = report.stream
    if stream.first_epoch is None:
        return "Nothing was left to replay."
    return (
        f"Replayed epochs {stream.first_epoch} to {stream.epochs_done - 1} "
        f"in {stream.seconds:.0f} s."
    )


def as_text(report: DemoReport) -> str:
    store = report.store
    verdict = "NOT equal to" if report.differences else "equal to"
    return "\n".join(
        [
            _replayed(report),
            "",
            f"Worst delay chains of {report.flights:,} flights",
            chain_table(report.chains),
            "",
            f"Delay carried by hour of day: {report.picture}",
            f"State: {store.keys:,} aircraft after epoch {store.newest_epoch} in {store.url}",
            f"       {store.completed_epochs} completed epochs, {store.files} files, "
            f"{store.bytes / 1e6:.1f} MB; what each epoch did: cowstate progress {store.url}",
            f"Checked: {report.legs:,} legs, {report.legs_with_carried_delay:,} of them with "
            f"carried delay; {verdict} the batch computation.",
        ]
    )


def as_json(report: DemoReport) -> dict[str, Any]:
    return {
        "flights": report.flights,
        "legs": report.legs,
        "legs_with_carried_delay": report.legs_with_carried_delay,
        "stream": asdict(report.stream),
        "worst_chains": [asdict(chain) for chain in report.chains],
        "picture": str(report.picture),
        "store": asdict(report.store),
        "agrees_with_batch": not report.differences,
    }
