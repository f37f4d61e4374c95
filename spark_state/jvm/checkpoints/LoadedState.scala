package org.apache.spark.sql.execution.streaming.state.cowstate

import java.util.concurrent.atomic.AtomicInteger

/**
 * A state in memory, and what is known of its files.
 *
 * @param at      where it begins
 * @param listing the generation of a writer that saw the directory when this was loaded
 */
private[cowstate] final class LoadedState(
    val memory: StateMemory,
    val versions: VersionedState,
    at: StateId,
    listing: Long,
    schedule: SnapshotSchedule) {
  private var loadTime = 0L
  private val users = new AtomicInteger(1)
  private var current = listing
  private var continued = Option(at)
  /** Whether the newest state is in all stores that its attempt wrote beside this one. */
  private var isWhole = () => true

  /** The generation of the files that are written from it. */
  def generation: Long = synchronized(current)

  /**
   * A batch begins upon `base`. Returns whether it continues what this holder loaded or committed
   * last: otherwise another attempt may have written files since.
   */
  def begin(base: StateId): Boolean = synchronized {
    val continues = continued.contains(base)
    continued = None
    schedule.undone(base.version)
    continues
  }

  /** From now on its files outrank those of a listing. */
  def outrank(files: StateFiles): Unit =
    synchronized { current = math.max(current + 1, files.nextGeneration) }

  /** From now on its files have this generation, or a higher one. */
  def raise(generation: Long): Unit = synchronized { current = math.max(current, generation) }

  def loadMs: Long = loadTime
  def loadMs_=(ms: Long): Unit = loadTime = ms

  /** The time that loading took; it is told once. */
  def takeLoadMs(): Long = synchronized {
    val ms = loadTime
    loadTime = 0
    ms
  }

  /** A row is damaged, or undoing failed: the state is to be restored from its files. */
  def isDamaged: Boolean = versions.map.checksums.foundDamage || versions.isBroken

  def restored(files: Seq[(StateFileName, FileSize)]): Unit = schedule.restored(files)

  /** `isWhole`: whether the attempt has committed all stores that it writes beside this one. */
  def committed(changelog: StateFileName, bytes: Long, isWhole: () => Boolean): Unit =
    synchronized {
      schedule.committed(changelog, bytes)
      continued = Some(changelog.state)
      this.isWhole = isWhole
    }

  /**
   * Whether a held state may count without a look at the files: not the newest if its attempt was
   * killed before it had committed the stores beside this one. A batch began upon all others.
   */
  def mayCount(state: StateId): Boolean =
    synchronized(state != versions.head || isWhole())

  def snapshotIsDue: Boolean = {
    val rowBytes = versions.map.synchronized(versions.map.rowBytes)
    schedule.isDue(rowBytes)
  }

  /** A view of the newest version, for a snapshot. No batch may be writing. */
  def takeView(): TakenView = {
    val (view, at) = versions.map.synchronized((versions.map.openView(), versions.head))
    new TakenView(this, view, at)
  }

  def snapshotWritten(view: TakenView, size: FileSize): Unit = schedule.written(view.at, size)

  /** The oldest files of changes that are to be merged; empty if there are none. */
  def mergeable: Seq[StateFileName] = schedule.mergeable(settled = versions.held.last.version)

  def merged(files: Seq[StateFileName], into: StateFileName, size: FileSize): Unit =
    schedule.merged(files, into, size)

  /** Another user begins: the state stays charged until every user has left. */
  def use(): this.type = {
    users.incrementAndGet()
    this
  }

  /** A user leaves; whoever made the state is its first user. */
  def leave(): Unit = if (users.decrementAndGet() == 0) close()

  /**
   * Charge nothing for it any more, even if it is still used. A state in files cannot be used any
   * more, except for open views.
   */
  def close(): Unit = versions.map.synchronized {
    memory.account.close()
    versions.map.close()
  }
}

/** A view of a version, to be written as a snapshot and then released. */
private[cowstate] final class TakenView(
    val state: LoadedState,
    val view: MapView,
    val at: StateId)

/** Owns a write store, and hears of its end, once. */
private[cowstate] trait StoreSession {
  /** Whether a snapshot is written before the commit returns. */
  def forcesSnapshot: Boolean
  /** The id by which Spark has named the state that the batch begins upon. */
  def askedFor: Option[String]
  def begin(state: LoadedState, base: StateId): CowStateStore
  /**
   * The first bytes of the changelog are to be written, at the latest. From then on the run of the
   * query writes to the store's directory, and its files outrank what others may have written.
   */
  def beginWriting(state: LoadedState): Unit
  def committed(store: CowStateStore): Unit
  def aborted(): Unit
}
