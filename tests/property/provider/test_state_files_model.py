"""A store's directory gives right lineages after any random history of its writers.

A history has a live writer, whose versions Spark took, and zombies, replaced writers that publish
late. Some snapshots and merged files are cut, as by a power failure. Whatever is left behind, a
version belongs to the live writer, its lineage leads to exactly its changes, and every file needed
by a retained version exists.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.provider.provider_jvm import ProviderJvm, Script, results_on
from tests.support.random_steps import ModelStep, histories, step, take

pytestmark = pytest.mark.spark

RETAINED = 2
EMPTY = "0"
NAME = re.compile(
    r"(\d{19})-(\d{10})-([0-9a-f]{16})"
    r"(-(0|[0-9a-f]{16})(\.changelog|-(\d{10})-[0-9a-f]{16}\.merged)|-[0-9a-f]{16}\.snapshot)"
    r"\.arrow",
    re.ASCII,
)
# A product with this factor spreads counted numbers, so that newer uniques are not always greater.
GOLDEN = 0x9E3779B97F4A7C15


@dataclass
class Writer:
    """A writer. `chain` has the uniques of all states up to the writer's own, from version 1 on."""

    name: str
    generation: int
    chain: list[str]

    @property
    def unique(self) -> str:
        return self.chain[-1] if self.chain else EMPTY


@dataclass
class ScriptedDirectory:
    """A script, the writers, and the generation of each version of the live writer."""

    script: Script = field(default_factory=Script)
    writers: list[Writer] = field(default_factory=list)
    generation: int = 0
    generations: list[int] = field(default_factory=list)
    chains: dict[str, list[str]] = field(default_factory=lambda: {EMPTY: []})
    lineages: dict[int, str] = field(default_factory=dict)
    oldest: int = 0

    def __post_init__(self) -> None:
        self.replace(0)

    @property
    def live(self) -> Writer:
        return self.writers[-1]

    def commit_live(self, count: int) -> None:
        """Let the live writer make versions."""
        for _ in range(count):
            self.commit(self.live)
            self.generations.append(self.live.generation)

    def snapshot_live(self, is_cut: bool = False) -> None:
        """Let the live writer publish a snapshot of its state."""
        self.snapshot(self.live, is_cut)

    def merge_live(self, back: int, count: int, is_cut: bool = False) -> None:
        """Let the live writer make a version, and merge `count` files of changes.

        The merged files are on the writer's lineage before the last `back` files. With fewer than
        two such files there is no merge.
        """
        self.commit_live(1)
        self.merge(self.live, back, count, is_cut)

    def replace(self, back: int) -> None:
        """Let Spark run the next batch with another writer, `back` versions earlier after a
        restart. The new writer takes the highest published generation plus one."""
        chain: list[str] = []
        if self.writers:
            version = max(len(self.live.chain) - back, self.oldest)
            chain = self.live.chain[:version]
            del self.generations[version:]
        self.writers.append(Writer(f"writer-{len(self.writers)}", self.generation + 1, chain))
        self.script.add(f"writer {self.live.name} {len(chain)}", self.live.unique)

    def commit(self, writer: Writer) -> None:
        unique = f"{len(self.chains) * GOLDEN % (1 << 64):016x}"
        base = writer.unique
        writer.chain = self.chains[unique] = [*writer.chain, unique]
        self.publish(f"commit {writer.name} {unique}", writer, f"-{base}.changelog.arrow")

    def snapshot(self, writer: Writer, is_cut: bool = False) -> None:
        if writer.chain:
            attempt = self.attempt()
            line = f"snapshot {writer.name} {attempt}{' cut' * is_cut}"
            self.publish(line, writer, f"-{attempt}.snapshot.arrow")

    def attempt(self) -> str:
        return f"{len(self.script.lines) * GOLDEN % (1 << 64):016x}"

    def merge(self, writer: Writer, back: int, count: int, is_cut: bool = False) -> None:
        """Merge files of a writer. The expected result is open, because the script knows the
        files."""
        if self.is_whole(writer):
            how = f"{self.attempt()} {back} {count}{' cut' * is_cut}"
            self.script.add(f"merge {writer.name} {how}", None)

    def is_whole(self, writer: Writer) -> bool:
        """Return True if no file of the writer's lineage was deleted. Files of a zombie may be
        gone."""
        return writer is self.live or self.oldest == 0

    def publish(self, line: str, writer: Writer, suffix: str) -> None:
        version = len(writer.chain)
        self.generation = max(self.generation, writer.generation)
        self.script.add(line, f"{version:019}-{writer.generation:010}-{writer.unique}{suffix}")

    def publish_late(
        self, place: int, count: int, snapshot: bool, cleans: bool, merges: int = 0
    ) -> None:
        """Let a replaced writer publish versions on top of its own state, and a snapshot.

        The zombie merges some of its changelogs. If its state is at most one batch off the live
        state, the zombie also deletes files that look unneeded.
        """
        zombies = self.writers[:-1]
        zombie = zombies[place % len(zombies)] if zombies else self.live
        for _ in range(count):
            if zombie.generation >= self.generation_against(len(zombie.chain) + 1):
                return
            self.commit(zombie)
        if snapshot:
            self.snapshot(zombie)
        if count and merges:
            self.merge(zombie, 0, merges)
        if cleans and zombie.chain[:-1] == self.live.chain[: max(len(zombie.chain) - 1, 0)]:
            self.clean(zombie, 100)

    def clean_live(self, versions: int) -> None:
        """Let the live writer delete unneeded files, of at most so many versions."""
        self.clean(self.live, versions)

    def clean(self, writer: Writer, versions: int) -> None:
        self.oldest = max(self.oldest, len(writer.chain) - RETAINED)
        self.script.add(f"clean {writer.name} {RETAINED} {versions}", None)

    def generation_against(self, version: int) -> int:
        """The generation of the live file of a version, or of its future file."""
        made = version <= len(self.generations)
        return self.generations[version - 1] if made else self.live.generation

    def ask(self) -> None:
        """Ask for the lineage of every retained version, also without its snapshot."""
        for version in range(max(self.oldest, 1), len(self.live.chain) + 1):
            unique = self.live.chain[version - 1]
            self.script.add(f"at {version}", unique)
            self.script.add(f"at {version} {unique}", unique)
            for line in ("lineage", "fallback"):
                self.lineages[len(self.script.lines)] = unique
                self.script.add(f"{line} {version} {unique}", None)
        for unique in {writer.unique for writer in self.writers} - {EMPTY}:
            if self.oldest == 0:
                self.lineages[len(self.script.lines)] = unique
                self.script.add(f"lineage {len(self.chains[unique])} {unique}", None)
        self.lineages[len(self.script.lines)] = self.live.unique
        start = f"{len(self.live.chain)} {self.live.unique} {self.oldest + 1}"
        self.script.add(f"changes {start}", None)

    def check(self, results: list[str]) -> None:
        for place, unique in self.lineages.items():
            is_changes = self.script.lines[place].startswith("changes")
            start = int(self.script.lines[place].split()[-1]) - 1 if is_changes else 0
            applied = self.chains[unique][:start]
            for name in results[place].split():
                parsed = NAME.fullmatch(name)
                assert parsed, results[place]
                version, _, made, suffix, base, _, versions = parsed.groups()
                if suffix.endswith(".snapshot"):
                    assert applied == []
                    applied = list(self.chains[made])
                else:
                    assert base == (applied[-1] if applied else EMPTY)
                    merged = int(versions or 1)
                    assert applied == self.chains[made][:-merged]
                    applied += self.chains[made][-merged:]
                assert int(version) == len(applied)
            assert applied == self.chains[unique], self.script.lines[place]


merges = step("merge_live", st.integers(0, 2), st.integers(2, 6), st.booleans())
steps = st.one_of(
    step("commit_live", st.integers(1, 3)),
    step("commit_live", st.integers(1, 3)),
    step("snapshot_live", st.booleans()),
    merges,
    merges,
    step("replace", st.sampled_from([0, 0, 1, 3])),
    step(
        "publish_late",
        *(st.integers(0, 5), st.integers(0, 4), st.booleans(), st.booleans(), st.integers(0, 4)),
    ),
    step("clean_live", st.sampled_from([1, 100])),
)


COMMITS = [("commit_live", count) for count in range(8)]
SNAPSHOT, CLEAN, REPLACE = ("snapshot_live",), ("clean_live", 100), ("replace", 0)


def run_through(
    provider_jvm: ProviderJvm, *steps: ModelStep
) -> tuple[ScriptedDirectory, dict[str, str]]:
    """Run a history and check the results. Return the directory, and the result of each line."""
    directory = ScriptedDirectory()
    for each in steps:
        take(directory, [each])
        directory.ask()
    results = directory.script.run_on(provider_jvm.new("FilesScript"))
    directory.check(results)
    # A line of cleaning comes again: each result is kept under its position.
    lines = [
        f"{place} {line}" if line.startswith("clean") else line
        for place, line in enumerate(directory.script.lines)
    ]
    return directory, dict(zip(lines, results, strict=True))


def cleaned_in(results: dict[str, str]) -> list[list[int]]:
    """The versions of the files that each cleaning deleted."""
    cleanings = [result for line, result in results.items() if " clean " in line]
    return [[int(name[:19]) for name in result.split()] for result in cleanings]


def test_every_retained_version_leads_to_the_changes_that_made_it(
    provider_jvm: ProviderJvm,
) -> None:
    @examples(35)
    @given(histories(steps, 30))
    def agree(history: list[ModelStep]) -> None:
        run_through(provider_jvm, *history)

    agree()


def test_cleaning_leaves_two_snapshots_and_what_follows_them(provider_jvm: ProviderJvm) -> None:
    steps: list[ModelStep] = [COMMITS[2], SNAPSHOT, COMMITS[2], SNAPSHOT, COMMITS[1], SNAPSHOT]
    steps += [CLEAN, COMMITS[1], CLEAN]
    directory, results = run_through(provider_jvm, *steps)
    assert cleaned_in(results) == [[], [1, 2]]
    second, fourth = directory.live.chain[1], directory.live.chain[3]
    kept = rf"{2:019}-{1:010}-{second}-[0-9a-f]{{16}}\.snapshot\.arrow"
    assert re.match(kept, results[f"fallback 4 {fourth}"])


def test_a_snapshot_that_was_cut_is_none_of_the_two_that_cleaning_leaves(
    provider_jvm: ProviderJvm,
) -> None:
    steps: list[ModelStep] = [COMMITS[2], SNAPSHOT, COMMITS[1], ("snapshot_live", True), COMMITS[1]]
    steps += [SNAPSHOT, COMMITS[3], CLEAN]
    _, results = run_through(provider_jvm, *steps)
    assert cleaned_in(results) == [[1, 2]]


def test_what_was_merged_stays_when_the_merged_file_was_cut(provider_jvm: ProviderJvm) -> None:
    steps = (COMMITS[7], ("merge_live", 4, 4, True), CLEAN)
    _, results = run_through(provider_jvm, *steps)
    assert cleaned_in(results) == [[]]


def test_several_snapshots_of_a_state_by_one_writer_have_names_of_their_own(
    provider_jvm: ProviderJvm,
) -> None:
    first, second = "a" * 16, "b" * 16
    lines = ["writer one 0", f"commit one {first}", f"snapshot one {second}"]
    lines += [f"snapshot one {first} cut", f"lineage 1 {first}", f"fallback 1 {first}"]
    results = results_on(provider_jvm.new("FilesScript"), *lines)
    assert results[4] == results[2] == f"{1:019}-{1:010}-{first}-{second}.snapshot.arrow"
    assert results[5] == results[1]


def test_a_zombie_that_publishes_late_is_not_picked_up(provider_jvm: ProviderJvm) -> None:
    steps: list[ModelStep] = [
        COMMITS[1],
        REPLACE,
        COMMITS[1],
        REPLACE,
        ("publish_late", 0, 3, True, False),
    ]
    steps += [COMMITS[1], REPLACE, ("replace", 2), COMMITS[3]]
    directory, _ = run_through(provider_jvm, *steps)
    assert len(directory.chains) == 1 + 1 + 1 + 3 + 1 + 3


@pytest.mark.parametrize(("first", "second"), [("a" * 16, "b" * 16), ("b" * 16, "a" * 16)])
def test_of_two_runs_of_a_batch_the_one_whose_writer_looked_last_counts(
    provider_jvm: ProviderJvm, first: str, second: str
) -> None:
    lines = ["writer one 0", "writer two 0", f"commit one {first}", "again two"]
    lines += [f"commit two {second}", f"snapshot one {second}", "at 1", f"lineage 1 {second}"]
    results = results_on(provider_jvm.new("FilesScript"), *lines)
    assert results[6] == second
    assert results[7] == results[4]


def test_a_writer_that_looks_outranks_two_that_did_not_see_each_other(
    provider_jvm: ProviderJvm,
) -> None:
    """The test leaves open which of the two writers counts; each writer's lineage is whole."""
    first, second, third = "a" * 16, "f" * 16, "b" * 16
    lines = ["writer one 0", "writer two 0", f"commit one {first}", f"commit two {second}", "at 1"]
    lines += [f"lineage 1 {first}", f"lineage 1 {second}"]
    lines += ["writer three 0", f"commit three {third}", "at 1"]
    results = results_on(provider_jvm.new("FilesScript"), *lines)
    assert results[4] in (first, second)
    assert results[5:7] == results[2:4]
    assert results[9] == third


def test_what_was_merged_is_deleted_when_no_retained_version_needs_it(
    provider_jvm: ProviderJvm,
) -> None:
    steps = (
        COMMITS[7],
        ("merge_live", 4, 4),
        CLEAN,
        ("merge_live", 0, 100),
        CLEAN,
    )
    directory, results = run_through(provider_jvm, *steps)
    assert cleaned_in(results) == [[1, 2, 3, 4], []]
    whole = results[f"lineage 9 {directory.live.chain[8]}"]
    assert re.search(rf"-{EMPTY}-{9:010}-[0-9a-f]{{16}}\.merged\.arrow$", whole)
    assert len(whole.split()) == 1


uniques = st.integers(0, (1 << 64) - 1).map("{:016x}".format)


def test_a_name_parses_to_what_it_was_made_of(provider_jvm: ProviderJvm) -> None:
    target = provider_jvm.new("FilesScript")

    @given(
        st.integers(0, (1 << 63) - 1),
        st.integers(0, 9_999_999_999),
        uniques,
        st.none() | st.just(EMPTY) | uniques,
        st.just(1) | st.integers(2, 9_999_999_999),
        uniques,
    )
    def agree(
        version: int,
        generation: int,
        unique: str,
        base: str | None,
        versions: int,
        attempt: str,
    ) -> None:
        suffix = f"-{base}.changelog"
        if base is None:
            suffix, versions = f"-{attempt}.snapshot", 1
        elif versions > 1:
            suffix = f"-{base}-{versions:010}-{attempt}.merged"
        name = f"{version:019}-{generation:010}-{unique}{suffix}.arrow"
        parts = f"{version} {generation} {unique} {base or '-'} {versions} {name}"
        assert target.parsed(name) == (parts if versions <= max(version, 1) else "none")

    agree()


def test_other_names_are_not_taken_for_state_files(provider_jvm: ProviderJvm) -> None:
    target = provider_jvm.new("FilesScript")
    begin = f"{7:019}-{3:010}-{'a' * 16}-{'b' * 16}"
    names = [f"{begin}.{kind}.arrow" for kind in ("changelog", "snapshot")]
    names.append(f"{begin}-{5:010}-{'c' * 16}.merged.arrow")

    @given(
        st.sampled_from(names),
        st.integers(0, min(map(len, names)) - 1),
        st.sampled_from(["", "x", "-", ".", "00", "\N{KELVIN SIGN}"]),
    )
    def agree(good: str, place: int, instead: str) -> None:
        name = good[:place] + instead + good[place + 1 :]
        assert (target.parsed(name) != "none") == (NAME.fullmatch(name) is not None)

    agree()
    good = names[0]
    without_attempt = [
        good.replace(f"-{'b' * 16}.changelog", ".snapshot"),
        f"{begin}-{5:010}.merged.arrow",
    ]
    others = ["1.delta", "2.snapshot", f".{good}.tmp", f"{good}.crc", "_metadata"]
    for name in (*without_attempt, *others):
        assert target.parsed(name) == "none"
