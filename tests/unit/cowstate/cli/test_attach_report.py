"""`cowstate attach` prints a plan and a result."""

from __future__ import annotations

import operator

from checkpoint_store.epochs.completed_checkpoint import Run
from checkpoint_store.epochs.operator_layout import BegunName, EpochDirectory
from checkpoint_store.runs.attachment_plan import Attachment, StoredRuns
from cowstate.cli.attach_report import AttachedOperator, AttachReport, as_json, as_text

STORED = StoredRuns(
    "s3://b/state/q/totals",
    [BegunName(Run(1, "f47a"), 0, None), BegunName(Run(2, "0c51"), 4, EpochDirectory(3, 1))],
    frozenset(),
    lambda _: None,
    operator.eq,
)
LEFT_OUT = (EpochDirectory(4, 1), EpochDirectory(6, 1), EpochDirectory(5, 9))


def report(*, is_needed: bool, run: Run | None = None) -> AttachReport:
    attachment = Attachment(EpochDirectory(4, 2), LEFT_OUT, (), is_needed)
    operator = AttachedOperator("totals", STORED, "file:/old", attachment, run)
    return AttachReport("file:/new", "q", 5, run is not None, [operator])


HEAD = """\
Checkpoint  file:/new
Query       q
Progress    batch 5 is the last one that Spark has committed

Operator totals  s3://b/state/q/totals
  belongs to file:/old
  goes on from epoch 4 of run 2 (0c51)
  has no later epoch up to batch 5
"""
COUNTS = """\
  does not count epochs 4 to 6 of run 1 (f47a) any more
  does not count epoch 5 of run 9 any more
"""


def test_without_apply_it_says_what_it_would_do() -> None:
    assert as_text(report(is_needed=True)) == (
        f"{HEAD}{COUNTS}\nNothing was changed. Stop every query that uses these stores, then run "
        "this command with --apply."
    )


def test_with_apply_it_says_what_it_did() -> None:
    head = HEAD.replace("belongs", "belonged")
    assert as_text(report(is_needed=True, run=Run(10, "attached-1"))) == (
        f"{head}{COUNTS}  is attached by run 10 (attached-1)\n\nStart the query with "
        "checkpointLocation file:/new. Its stores refuse every other location, and runs that began "
        "before."
    )


def test_there_may_be_nothing_to_do() -> None:
    assert as_text(report(is_needed=False)) == (
        f"{HEAD}  is attached already: nothing to do\n\nNothing was changed, and nothing has to be."
    )


def test_as_json_it_tells_the_same() -> None:
    assert as_json(report(is_needed=True, run=Run(10, "attached-1"))) == {
        "checkpoint": "file:/new",
        "query": "q",
        "committed": 5,
        "applied": True,
        "operators": [
            {
                "operator": "totals",
                "url": "s3://b/state/q/totals",
                "belongs_to": "file:/old",
                "epoch": 4,
                "run": 2,
                "run_id": "0c51",
                "left_out": [
                    {"run": 1, "run_id": "f47a", "first_epoch": 4, "last_epoch": 6},
                    {"run": 9, "run_id": None, "first_epoch": 5, "last_epoch": 5},
                ],
                "needed": True,
                "attached_as": {"run": 10, "run_id": "attached-1"},
            }
        ],
    }
