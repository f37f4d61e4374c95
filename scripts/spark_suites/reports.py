"""The results of a run as text: a table in Markdown, then failed tests with the reasons. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from scripts.spark_suites.verdicts import FAILED, Verdict

COLUMNS = ("passed", "failed", "not run", "stores", "seconds")
NOT_RUN = ("ignored", "canceled")


def whole(verdicts: Mapping[str, Sequence[Verdict]]) -> list[str]:
    """The whole report of a run. `verdicts`: by the names of providers."""
    every = [verdict for of_provider in verdicts.values() for verdict in of_provider]
    return ["", *table(verdicts), "", *expected_failures(every), *faults(every)]


def progress(verdict: Verdict, provider: str) -> str:
    """A line about a suite that ended."""
    counted = zip(numbers(verdict), COLUMNS, strict=True)
    mark = " !" if verdict.faults else ""
    return f"{provider} {verdict.suite}: {', '.join(f'{n} {what}' for n, what in counted)}{mark}"


def table(verdicts: Mapping[str, Sequence[Verdict]]) -> list[str]:
    """A table with a row for each suite and a row for all, and with columns for each provider."""
    columns = [f"{provider}: {column}" for provider in verdicts for column in COLUMNS]
    by_suite: dict[str, dict[str, Verdict]] = defaultdict(dict)
    for provider, of_provider in verdicts.items():
        for verdict in of_provider:
            by_suite[verdict.suite][provider] = verdict
    rows = [
        [suite, *(cell for provider in verdicts for cell in cells(of_suite.get(provider)))]
        for suite, of_suite in by_suite.items()
    ]
    total = ["all", *(cell for of_provider in verdicts.values() for cell in sums(of_provider))]
    return list(map(line, [["suite", *columns], ["---"] * len(total), *rows, total]))


def numbers(verdict: Verdict) -> list[int]:
    """The numbers of a verdict, in the order of COLUMNS."""
    counts = [verdict.count("passed"), verdict.count(*FAILED), verdict.count(*NOT_RUN)]
    return [*counts, verdict.stores, verdict.seconds]


def cells(verdict: Verdict | None) -> list[str]:
    """The table's cells for a suite; dashes if the provider does not run the suite."""
    return list(map(str, numbers(verdict))) if verdict else ["-"] * len(COLUMNS)


def sums(verdicts: Sequence[Verdict]) -> list[str]:
    """The table's cells for all suites together."""
    return [str(sum(column)) for column in zip(*map(numbers, verdicts), strict=True)]


def line(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"


def expected_failures(verdicts: Sequence[Verdict]) -> list[str]:
    """The reasons of expected failures, each with its tests."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for verdict in verdicts:
        for outcome, reason in verdict.expected:
            by_reason[reason].append(f"    {verdict.suite}: {outcome.test}")
    headed = (
        [f"{len(tests)} fail as expected: {reason}", *tests] for reason, tests in by_reason.items()
    )
    return [text for lines in headed for text in lines]


def faults(verdicts: Sequence[Verdict]) -> list[str]:
    texts = [f"{verdict.suite}: {fault}" for verdict in verdicts for fault in verdict.faults]
    return ["", f"{len(texts)} faults", *texts] if texts else ["", "no faults"]
