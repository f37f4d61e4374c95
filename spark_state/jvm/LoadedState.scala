package org.apache.spark.sql.execution.streaming.state.cowstate

/**
 * A state in memory, and what is known of its files.
 *
 * @param generation of the files that are written from it
 */
private[cowstate] final class LoadedState(
    val account: MemoryAccount,
    val versions: VersionedState,
    val generation: Long,
    schedule: SnapshotSchedule) {
  private var loadTime = 0L

  def loadMs: Long = loadTime
  def loadMs_=(ms: Long): Unit = loadTime = ms

  /** The time that loading took, once. */
  def takeLoadMs(): Long = synchronized {
    val ms = loadTime
    loadTime = 0
    ms
  }

  /** A row was found to be damaged: the state is to be restored from its files. */
  def isDamaged: Boolean = versions.map.checksums.foundDamage

  def restored(files: Seq[(StateFileName, FileSize)]): Unit = schedule.restored(files)

  def committed(changelogBytes: Long): Unit = schedule.committed(changelogBytes)

  def snapshotIsDue: Boolean = {
    val rowBytes = versions.map.synchronized(versions.map.rowBytes)
    !isDamaged && schedule.isDue(rowBytes)
  }

  /** A view of the newest version, for a snapshot. No batch may be writing. */
  def takeView(): TakenView = {
    val (view, at) = versions.map.synchronized((versions.map.openView(), versions.head))
    new TakenView(this, view, at, schedule.replaceable)
  }

  def snapshotWritten(of: TakenView, size: FileSize): Unit = schedule.written(size, of.replaces)

  def close(): Unit = account.close()
}

/** A view of a version, to be written as a snapshot and then released. */
private[cowstate] final class TakenView(
    val state: LoadedState,
    val view: MapView,
    val at: StateId,
    val replaces: SnapshotSchedule.Changelogs)

/** Who has a write store, and hears of its end, once. */
private[cowstate] trait StoreSession {
  def begin(state: LoadedState, base: StateId): CowStateStore
  def committed(store: CowStateStore): Unit
  def aborted(): Unit
}
