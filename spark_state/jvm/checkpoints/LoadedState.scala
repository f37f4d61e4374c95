package org.apache.spark.sql.execution.streaming.state.cowstate.checkpoints

import java.util.concurrent.atomic.AtomicInteger

import org.apache.spark.sql.execution.streaming.state.cowstate.base.{StateFileName, StateId}
import org.apache.spark.sql.execution.streaming.state.cowstate.map.{MapView, VersionedState}
import org.apache.spark.sql.execution.streaming.state.cowstate.memory.StateMemory

/**
 * A state in memory, with the known facts about the state's files.
 *
 * @param at      id of the loaded state
 * @param listing generation of the first new file: above the generations of all files that the
 *                directory had at the time of loading, see StateFileName
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
  /**
   * Returns true if the attempt that made the newest state has written all of its stores, not only
   * this store.
   */
  private var isWhole = () => true

  /** Generation of files written from this state. */
  def generation: Long = synchronized(current)

  /**
   * Begin a batch upon `base`. Returns true if `base` is the state loaded or committed last. If
   * not, another attempt may have written files since.
   */
  def begin(base: StateId): Boolean = synchronized {
    val continues = continued.contains(base)
    continued = None
    schedule.undone(base.version)
    continues
  }

  /** Raise the generation, so that new files outrank all files of a listing. */
  def outrank(files: StateFiles): Unit =
    synchronized { current = math.max(current + 1, files.nextGeneration) }

  /** Raise the generation of new files to at least `generation`. */
  def raise(generation: Long): Unit = synchronized { current = math.max(current, generation) }

  def loadMs: Long = loadTime
  def loadMs_=(ms: Long): Unit = loadTime = ms

  /** Return the load time in milliseconds; later calls return 0. */
  def takeLoadMs(): Long = synchronized {
    val ms = loadTime
    loadTime = 0
    ms
  }

  /** True if a row is damaged or undoing failed: the state must be restored from files. */
  def isDamaged: Boolean = versions.map.checksums.foundDamage || versions.isBroken

  def restored(files: Seq[(StateFileName, FileSize)]): Unit = schedule.restored(files)

  /**
   * Note a commit. `isWhole` returns true if the attempt has committed all of its stores, not only
   * this store.
   */
  def committed(changelog: StateFileName, bytes: Long, isWhole: () => Boolean): Unit =
    synchronized {
      schedule.committed(changelog, bytes)
      continued = Some(changelog.state)
      this.isWhole = isWhole
    }

  /**
   * True if a batch or a reader may use a state in memory without looking at the files. For the
   * newest state, true if the attempt that made the state has committed all stores: an attempt
   * killed before does not count. For an older state, always true, because a batch has begun upon
   * the state.
   */
  def mayCount(state: StateId): Boolean =
    synchronized(state != versions.head || isWhole())

  def snapshotIsDue: Boolean = {
    val rowBytes = versions.map.synchronized(versions.map.rowBytes)
    schedule.isDue(rowBytes)
  }

  /** Take a view of the newest version, for a snapshot. No batch may be writing. */
  def takeView(): TakenView = {
    val (view, at) = versions.map.synchronized((versions.map.openView(), versions.head))
    new TakenView(this, view, at)
  }

  def snapshotWritten(view: TakenView, size: FileSize): Unit = schedule.written(view.at, size)

  /** Return the oldest files of changes due for merging; empty if none are due. */
  def mergeable: Seq[StateFileName] = schedule.mergeable(settled = versions.held.last.version)

  def merged(files: Seq[StateFileName], into: StateFileName, size: FileSize): Unit =
    schedule.merged(files, into, size)

  /** Add a user. The state stays charged until every user has left. */
  def use(): this.type = {
    users.incrementAndGet()
    this
  }

  /** Remove a user. The maker of the state is the first user. */
  def leave(): Unit = if (users.decrementAndGet() == 0) close()

  /**
   * Stop charging the state, even if some users have not left. Afterwards, a state in mapped
   * files can be read through open views only.
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
