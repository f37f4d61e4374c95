"""Reads in a task how the operators of the task's query start. `operator_starts` tells the tasks.

Each Python worker imports this module, so the module imports little.
"""

from __future__ import annotations

import json

from pyspark import TaskContext

from spark_state.subtasks.epoch_request import OperatorStart

STARTS = "cowstate.starts"
SETTING_OF_STARTS = "spark.operatorStarts.cowstate"


def named_start(context: TaskContext, query_id: str, operator: str) -> OperatorStart | None:
    """The start of an operator, from the task's local properties; None if the driver wrote no
    start."""
    text = context.getLocalProperty(STARTS) or context.getLocalProperty(SETTING_OF_STARTS)
    told = json.loads(text) if text else None
    if told is None or told["query"] not in (None, query_id):
        return None  # inherited from the query in whose foreachBatch this query was started
    start = told["operators"].get(operator)
    return None if start is None else OperatorStart(**start)
