"""Plans of Spark Connect DataFrames, parsed from the server's text of the plan.

The client's own plan shows a view or an SQL text only by name. The server's analysed plan has every
step of the query. A line of the text is a node:

    ~Project [ts#1-T10000ms, key#2]
    +- ~EventTimeWatermark 7f1c…, ts#1: timestamp, 10 seconds
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from pyspark.sql import DataFrame

_ANALYSED, _NEXT_SECTION = "== Analyzed Logical Plan ==", "\n== "
_NODE = re.compile(r"(?P<margin>[ :|+-]*)(?P<stream>~?)(?P<name>[A-Za-z]\w*)(?: (?P<rest>.*))?")
_FUNCTION = re.compile(r"[\w.-]+")
_WATERMARK, _UNION, _AGGREGATE = "EventTimeWatermark", "Union", "Aggregate"
_MAP_IN_ARROW = "MapInArrow"


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A node of a plan: its name, the text after the name, its depth in the tree, and True if its
    rows are a stream."""

    name: str
    text: str
    depth: int
    is_streaming: bool


def plan_nodes(df: DataFrame) -> list[PlanNode]:
    """The nodes of the analysed plan of a DataFrame, each before its children."""
    frame: Any = df
    return parsed_plan(str(frame._explain_string(extended=True)))


def parsed_plan(explained: str) -> list[PlanNode]:
    """The nodes of the analysed plan in the text that `explain(extended=True)` prints."""
    _, heading, rest = explained.partition(f"{_ANALYSED}\n")
    assert heading, f"no analysed plan in {explained!r}"
    lines = rest.partition(_NEXT_SECTION)[0].splitlines()
    nodes = (_NODE.fullmatch(line) for line in lines)
    return [
        PlanNode(n["name"], n["rest"] or "", len(n["margin"]), is_streaming=n["stream"] == "~")
        for n in nodes
        if n
    ]


def watermarks_of(nodes: list[PlanNode]) -> set[str]:
    """The ids of the watermarks of a plan."""
    return {node.text.partition(",")[0] for node in nodes if node.name == _WATERMARK}


def is_united_below(nodes: list[PlanNode]) -> bool:
    """Return True if rows of a watermark are united with other rows, after the watermark was
    set."""
    for index, node in enumerate(nodes):
        depth = node.depth
        if node.name == _WATERMARK:
            for above in reversed(nodes[:index]):
                if above.depth < depth and above.name == _UNION:
                    return True
                depth = min(depth, above.depth)
    return False


def has_aggregated_watermark(nodes: list[PlanNode]) -> bool:
    """Return True if a stream is aggregated after its watermark was set."""
    return any(
        watermarks_of(_below(nodes, index))
        for index, node in enumerate(nodes)
        if node.name == _AGGREGATE and node.is_streaming
    )


def _below(nodes: list[PlanNode], index: int) -> list[PlanNode]:
    top = nodes[index].depth
    return [*takewhile(lambda node: node.depth > top, nodes[index + 1 :])]


def functions_of(nodes: list[PlanNode]) -> list[str]:
    """The names of the functions in the plan's `mapInArrow` calls."""
    names = [_FUNCTION.match(node.text) for node in nodes if node.name == _MAP_IN_ARROW]
    return [name[0] for name in names if name]
