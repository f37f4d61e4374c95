"""Draws departure delay by hour of day: the delay brought along by the aircraft, and all other
delay."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

_CARRIED_COLOUR, _OTHER_COLOUR = "#b5432f", "#e3c3a8"


def delay_by_hour(legs: pd.DataFrame) -> pd.DataFrame:
    """Mean minutes of departure delay, carried and other, by scheduled local hour of departure."""
    late = legs["dep_delay"].clip(lower=0)
    parts = pd.DataFrame(
        {"hour": legs["hour"], "carried": legs["carried"], "other": late - legs["carried"]}
    )
    return parts.groupby("hour").mean()


def draw_delay_by_hour(legs: pd.DataFrame, path: Path) -> None:
    """Write the picture of `delay_by_hour` as a PNG."""
    hours = delay_by_hour(legs)
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.add_subplot()
    axes.bar(
        hours.index, hours["carried"], color=_CARRIED_COLOUR, label="carried from the previous leg"
    )
    axes.bar(
        hours.index,
        hours["other"],
        bottom=hours["carried"],
        color=_OTHER_COLOUR,
        label="arisen since, or unknown",
    )
    axes.set_xticks(list(hours.index))
    axes.set_xlabel("scheduled hour of departure, New York time")
    axes.set_ylabel("minutes of delay a departure")
    axes.set_title("Departure delay out of New York, 2013: what the aircraft brought along")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left")
    figure.savefig(path, dpi=120)
