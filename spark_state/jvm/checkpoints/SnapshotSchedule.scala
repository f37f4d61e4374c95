package org.apache.spark.sql.execution.streaming.state.cowstate.checkpoints

import org.apache.spark.sql.execution.streaming.state.cowstate.base.{StateFileName, StateId}

/** Sizes of a state file: bytes of the file, and bytes of keys and values before compression. */
final case class FileSize(bytes: Long, rowBytes: Long) {
  def withRows(more: Long): FileSize = copy(rowBytes = rowBytes + more)
}

/**
 * Schedule of maintenance. Decides which files to write, from the sizes of the files that a restore
 * reads (the last snapshot and the later files of changes). All written bytes together stay below
 * three times the bytes of the changelogs. A third is for the changelogs, a third for merged files,
 * and a third for snapshots.
 *
 * Small changelogs are merged, `MergeWidth` or more at a time, and small merged files are merged
 * again. So a restore does not open thousands of files. Merging stops when the merged files would
 * have more bytes than the changelogs.
 *
 * A snapshot is due when a restore would read at least two and a half times the size of a new
 * snapshot. Most of the bytes read are then rows that later changelogs replaced or removed, and the
 * new snapshot leaves these rows out. So the snapshots together have fewer bytes than the
 * changelogs. Two more rules make a snapshot due:
 *
 *   - For a state that only grows: the changelogs are at least one and a half times as large as the
 *     last snapshot, and merged files and snapshots have not used up their two thirds. So a state
 *     that only grows gets a second snapshot, in case the newest snapshot is damaged.
 *   - For a small state: a restore would cost four times as much as reading a new snapshot, where
 *     opening a file counts as `OpeningBytes`.
 *
 * @param minChangelogs least number of changelogs between two snapshots
 */
final class SnapshotSchedule(minChangelogs: Int) {
  import SnapshotSchedule._

  /** Version and size of the last snapshot. */
  private var snapshot: Option[(Long, FileSize)] = None
  /** Files of changes after the snapshot; each file applies to the state of the file before. */
  private var chain = Vector.empty[ChangeFile]
  private var changelogBytes = 0L
  private var mergedBytes = 0L

  /** Note the files from which the state was read, in order. */
  def restored(files: Seq[(StateFileName, FileSize)]): Unit = synchronized {
    val (snapshots, changes) = files.partition(_._1.isSnapshot)
    snapshot = snapshots.headOption.map { case (name, size) => (name.version, size) }
    chain = changes.map { case (name, size) => ChangeFile(name, size.bytes) }.toVector
    changelogBytes = bytesOf(chain)
    mergedBytes = bytesOf(chain.filter(_.name.isMerged))
  }

  /** Note a written changelog. */
  def committed(name: StateFileName, bytes: Long): Unit = synchronized {
    chain :+= ChangeFile(name, bytes)
    changelogBytes += bytes
  }

  /**
   * Forget the files of all versions after `version`, because these versions were undone.
   */
  def undone(version: Long): Unit = synchronized {
    chain = chain.takeWhile(_.name.version <= version)
    snapshot = snapshot.filter(_._1 <= version)
  }

  /** True if a snapshot is due for a state with `rowBytes` bytes of keys and values. */
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
   * Note a written snapshot of `state`. The snapshot replaces the files that lead to the state,
   * unless the files were undone.
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
   * Return the oldest files due for merging; empty if none are due. The versions of the files are
   * at most `settled`, and versions up to `settled` are never undone.
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

  /**
   * Note a merge. The merged file takes the place of the merged parts, unless the parts were undone
   * or replaced by a snapshot.
   */
  def merged(files: Seq[StateFileName], into: StateFileName, size: FileSize): Unit = synchronized {
    mergedBytes += size.bytes
    val begin = chain.indexWhere(_.name == files.head)
    if (begin >= 0) chain = chain.patch(begin, Seq(ChangeFile(into, size.bytes)), files.size)
  }
}

object SnapshotSchedule {
  private val MaxReadRatio = 2.5
  private val MaxRestoreRatio = 4
  /** Limit for the bytes of snapshots and merged files, for each byte of changelogs. */
  private val MaxWritten = 1.9
  /** Bytes of a file without rows. */
  private val EmptyFileBytes = 2L << 10
  /** Cost of opening a file: as much as reading this number of bytes. Twice `EmptyFileBytes`. */
  private val OpeningBytes = 4L << 10
  private val MergeWidth = 64
  /**
   * Size from which on files are not merged. Reading such a file alone is as fast as reading the
   * same bytes in a merged file.
   */
  private val SmallBytes = 256L << 10
  private val MaxMergedBytes = MergeWidth * SmallBytes

  private final case class ChangeFile(name: StateFileName, bytes: Long) {
    def isSmall: Boolean = bytes < SmallBytes
    /**
     * Two values: number of merges that led to the file; true if the file is small. Files are
     * merged only with files for which both values are the same.
     */
    def sort: (Int, Boolean) =
      ((63 - java.lang.Long.numberOfLeadingZeros(name.versions)) / 6, isSmall)
  }

  private def bytesOf(files: Seq[ChangeFile]): Long = files.map(_.bytes).sum
}
