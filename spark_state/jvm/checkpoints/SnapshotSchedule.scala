package org.apache.spark.sql.execution.streaming.state.cowstate

/** The bytes of a state file, and those of the keys and values in it before compression. */
final case class FileSize(bytes: Long, rowBytes: Long) {
  def withRows(more: Long): FileSize = copy(rowBytes = rowBytes + more)
}

/**
 * Decides which files maintenance writes, from the sizes of those that a restore reads: the last
 * snapshot and the files of changes after it. All that is written is less than three times the
 * changelogs: a third of it is for the changelogs themselves.
 *
 * Changelogs are merged, `MergeWidth` or more small ones at a time, and merged files again, so that
 * a restore does not open thousands of files, as long as merged files come to no more than the
 * changelogs do.
 *
 * A snapshot is due when a restore would read two and a half times what a new snapshot is. What
 * such a restore reads too much was put by some changelogs and removed by others. It is one and a
 * half times the snapshot or more, so snapshots take less than a third. For a state that only
 * grows, one is also due when the changelogs are half as large again as the last snapshot and the
 * three thirds are not used up, so that the state rests on two snapshots. For a small state, one is
 * also due when a restore would cost four times what reading a new snapshot does, where opening a
 * file counts as `OpeningBytes`.
 *
 * @param minChangelogs after a snapshot before the next one may be due
 */
final class SnapshotSchedule(minChangelogs: Int) {
  import SnapshotSchedule._

  /** The version and the size of the last one. */
  private var snapshot: Option[(Long, FileSize)] = None
  /** The files of changes after the snapshot, each upon the one before it. */
  private var chain = Vector.empty[ChangeFile]
  private var changelogBytes = 0L
  private var mergedBytes = 0L

  /** The state was read from these files, in this order. */
  def restored(files: Seq[(StateFileName, FileSize)]): Unit = synchronized {
    val (snapshots, changes) = files.partition(_._1.isSnapshot)
    snapshot = snapshots.headOption.map { case (name, size) => (name.version, size) }
    chain = changes.map { case (name, size) => ChangeFile(name, size.bytes) }.toVector
    changelogBytes = bytesOf(chain)
    mergedBytes = bytesOf(chain.filter(_.name.isMerged))
  }

  /** A changelog was written. */
  def committed(name: StateFileName, bytes: Long): Unit = synchronized {
    chain :+= ChangeFile(name, bytes)
    changelogBytes += bytes
  }

  /** Versions after this one are undone. A restore needs no snapshot of them any more. */
  def undone(version: Long): Unit = synchronized {
    chain = chain.takeWhile(_.name.version <= version)
    snapshot = snapshot.filter(_._1 <= version)
  }

  /** Whether a snapshot is due for a state with so many bytes of keys and values. */
  def isDue(rowBytes: Long): Boolean = synchronized {
    chain.map(_.name.versions).sum >= minChangelogs && snapshot.map(_._2).forall { last =>
      val compression = last.bytes.toDouble / math.max(last.rowBytes, last.bytes)
      val next = rowBytes * compression
      val restore = last.bytes + bytesOf(chain)
      val restoreCost = restore + (chain.size + 1) * OpeningBytes
      val readsTooMuch = restore >= MaxReadRatio * (next + EmptyFileBytes)
      val costsTooMuch = restoreCost >= MaxRestoreRatio * (next + OpeningBytes)
      val onlyGrows =
        changelogBytes >= last.bytes * 3 / 2 && mergedBytes + next <= changelogBytes * MaxWritten
      readsTooMuch || costsTooMuch || onlyGrows
    }
  }

  /**
   * A snapshot of `state` was written. It replaces the files that lead there, unless these were
   * undone.
   */
  def written(state: StateId, size: FileSize): Unit = synchronized {
    val last = chain.indexWhere(_.name.state == state)
    if (last >= 0) {
      snapshot = Some((state.version, size))
      chain = chain.drop(last + 1)
      changelogBytes = bytesOf(chain)
      mergedBytes = 0
    }
  }

  /**
   * The oldest files that are to be merged; empty if there are none. Their versions are at most
   * `settled`, up to which nothing is undone any more.
   */
  def mergeable(settled: Long): Seq[StateFileName] = synchronized {
    var rest = chain.takeWhile(_.name.version <= settled)
    var due = Vector.empty[ChangeFile]
    while (due.isEmpty && rest.nonEmpty) {
      val (run, after) = rest.span(_.sort == rest.head.sort)
      rest = after
      if (run.head.isSmall && run.size >= MergeWidth) {
        val total = run.map(_.bytes).scanLeft(0L)(_ + _).tail
        val chosen = run.take(math.max(total.count(_ <= MaxMergedBytes), MergeWidth))
        if (mergedBytes + bytesOf(chosen) <= changelogBytes) due = chosen
      }
    }
    due.map(_.name)
  }

  /** These files were merged into one, which takes their place if they still count. */
  def merged(files: Seq[StateFileName], into: StateFileName, size: FileSize): Unit = synchronized {
    mergedBytes += size.bytes
    val begin = chain.indexWhere(_.name == files.head)
    if (begin >= 0) chain = chain.patch(begin, Seq(ChangeFile(into, size.bytes)), files.size)
  }
}

object SnapshotSchedule {
  private val MaxReadRatio = 2.5
  private val MaxRestoreRatio = 4
  /** Bytes of snapshots and merged files for each byte of changelogs. */
  private val MaxWritten = 1.9
  /** The bytes of a file without rows. */
  private val EmptyFileBytes = 2L << 10
  /** About twice that: small enough for small changelogs to outweigh snapshots. */
  private val OpeningBytes = 4L << 10
  private val MergeWidth = 64
  /** A larger file is read as fast alone as it would be as a part of another file. */
  private val SmallBytes = 256L << 10
  private val MaxMergedBytes = MergeWidth * SmallBytes

  private final case class ChangeFile(name: StateFileName, bytes: Long) {
    def isSmall: Boolean = bytes < SmallBytes
    /** How often it was merged, and whether it is small: files of one sort are merged. */
    def sort: (Int, Boolean) =
      ((63 - java.lang.Long.numberOfLeadingZeros(name.versions)) / 6, isSmall)
  }

  private def bytesOf(files: Seq[ChangeFile]): Long = files.map(_.bytes).sum
}
