package org.apache.spark.sql.execution.streaming.state.cowstate

/** The bytes of a state file, and those of the keys and values in it before compression. */
final case class FileSize(bytes: Long, rowBytes: Long) {
  def withRows(more: Long): FileSize = copy(rowBytes = rowBytes + more)
}

/**
 * Decides when a snapshot is due, from the sizes of the files that a restore reads: the last
 * snapshot and the changelogs after it.
 *
 * It is due when the changelogs are half as large again as the snapshot: each of their bytes then
 * costs less than two bytes of snapshots, since the new one holds no more than the old one and the
 * changelogs. It is also due when a restore would cost four times what reading a new snapshot
 * does, where opening a file counts as `OpeningBytes`: after many removes, when it is a quarter of
 * what it replaces, or after many small changelogs. Whatever the sizes, it is due when there are
 * `MaxChangelogs`, so that a restore does not open thousands of files.
 *
 * @param minChangelogs after a snapshot before the next one may be due
 */
final class SnapshotSchedule(minChangelogs: Int) {
  import SnapshotSchedule._

  private var snapshot: Option[FileSize] = None
  private var since = Changelogs(0, 0)

  /** The state was read from these files, in this order. */
  def restored(files: Seq[(StateFileName, FileSize)]): Unit = synchronized {
    val (snapshots, changelogs) = files.partition(_._1.isSnapshot)
    snapshot = snapshots.headOption.map(_._2)
    since = Changelogs(changelogs.size, changelogs.map(_._2.bytes).sum)
  }

  /** A changelog was written. */
  def committed(bytes: Long): Unit = synchronized {
    since = Changelogs(since.count + 1, since.bytes + bytes)
  }

  /** The changelogs that a snapshot of the newest version would replace. */
  def replaceable: Changelogs = synchronized(since)

  /** Whether a snapshot is due of a state with so many bytes of keys and values. */
  def isDue(rowBytes: Long): Boolean = synchronized {
    since.count >= minChangelogs && snapshot.forall { last =>
      val compression = last.bytes.toDouble / math.max(last.rowBytes, last.bytes)
      val restore = last.bytes + since.bytes + (since.count + 1) * OpeningBytes
      since.count >= MaxChangelogs || since.bytes >= last.bytes * 3 / 2 ||
        restore >= MaxRestoreRatio * (rowBytes * compression + OpeningBytes)
    }
  }

  /** A snapshot was written in the place of these changelogs. */
  def written(size: FileSize, replaced: Changelogs): Unit = synchronized {
    snapshot = Some(size)
    since = Changelogs(since.count - replaced.count, since.bytes - replaced.bytes)
  }
}

object SnapshotSchedule {
  private val MaxRestoreRatio = 4
  /** About twice what the smallest file has: so few that small changelogs outweigh snapshots. */
  private val OpeningBytes = 4L << 10
  private val MaxChangelogs = 200

  final case class Changelogs(count: Int, bytes: Long)
}
