package org.apache.spark.sql.execution.streaming.state.cowstate.provider

import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.sql.execution.streaming.state.cowstate.base.{CowStateException, StateId}
import org.apache.spark.sql.execution.streaming.state.cowstate.checkpoints.{
  LoadedState, TakenView, ViewHandover
}

/**
 * The state that a store holds in memory between batches, and the lock of the task that writes to
 * the state. There is at most one such state.
 *
 * The state is replaced, and given up, under the monitor of this object. Do not hold the monitor
 * when you call a method that restores from files: a restore takes long, and closing the provider
 * needs the monitor. While Spark closes a provider, all stores of the executor wait.
 */
private[cowstate] final class HeldState(store: ProvidedStore, restores: StateRestores) {
  val id: StateStoreId = store.id
  val lock = new StoreLock(store.toString, store.conf.lockSeconds)
  val handover = new ViewHandover
  @volatile private var loaded: LoadedState = _
  @volatile private var closed = false

  /** State in memory; None before the first batch or reader, and after giving up. */
  def current: Option[LoadedState] = Option(loaded)

  /**
   * Make the provider of an earlier run of the query give up its state, before a state is loaded
   * here. The caller must not hold the monitor.
   */
  def replaceEarlierRun(): Unit = if (loaded == null) StoresOfRuns.begin(this, store.hadoopConf)

  def versions: Seq[Long] = current.toSeq.flatMap(_.versions.held.map(_.version))

  /** Return the state in memory for a batch, if the state has this version. */
  def find(version: Long, unique: Option[String]): Option[(LoadedState, StateId)] = synchronized {
    val held = current.filterNot(_.isDamaged).flatMap { state =>
      state.versions.held
        .find(s =>
          s.version == version && unique.fold(state.mayCount(s))(StateId.uniqueOf(_) == s.unique))
        .map((state, _))
    }
    if (version > 0) store.metrics.versionAsked(isHeld = held.isDefined)
    held
  }

  /** Return a reader of the state in memory, if the state has this version. */
  def reader(version: Long, unique: Option[String]): Option[CowReadStore] =
    synchronized(find(version, unique).map { case (state, at) => readerOf(state, at) })

  private def readerOf(state: LoadedState, at: StateId) = new CowReadStore(store, state.use(), at)

  /** Return the state in memory, and count one more user, if the state `at` is held. */
  def lend(at: StateId): Option[LoadedState] = synchronized {
    current.filter(state => !state.isDamaged && state.versions.held.contains(at)).map(_.use())
  }

  /**
   * Restore a version for a reader. If no task uses the store, the restored state becomes the held
   * state. Otherwise the restored state is for the reader alone.
   */
  def restoredReader(version: Long, unique: Option[String]): CowReadStore = {
    val reader = new Object
    if (!lock.tryAcquire(reader)) CowReadStore.owning(store, restores.load(version, unique))
    else {
      try {
        val (state, at) = reload(version, unique, beside = None)
        readerOf(state, at)
      } finally lock.release(reader)
    }
  }

  /** Replace the held state by an empty state, which counts as the state of `version`. */
  def installEmpty(version: Long): (LoadedState, StateId) =
    install(restores.empty(StateId(version, StateId.Empty.unique)))

  private def install(state: LoadedState): (LoadedState, StateId) = synchronized {
    if (closed) {
      state.close()
      throw CowStateException.ofUnloaded(store.toString)
    }
    giveUp()
    loaded = state
    (state, state.versions.head)
  }

  /**
   * Restore a version from files, and replace the held state by the restored state. The held state
   * is given up before the restore, because two states at once may exceed the memory. Call with the
   * lock of the store.
   *
   * @param unique id of the state, if Spark gave an id
   * @param beside id of the attempt whose state to restore; None for any attempt. Given if the task
   *               already writes another store of the operator: both stores must begin upon states
   *               of the same attempt
   */
  def reload(
      version: Long, unique: Option[String], beside: Option[String]): (LoadedState, StateId) = {
    val files = restores.filesOf(version)
    val at = beside.fold(restores.stateAt(version, unique, files))(
      restores.stateBeside(_, version, files))
    synchronized(giveUp())
    install(restores.load(files, at))
  }

  /**
   * Give up the held state. Its memory is charged until the last reader leaves. No batch may be
   * writing to the state.
   */
  private def giveUp(): Unit = {
    handover.clear()
    current.foreach(_.leave())
    loaded = null
  }

  /** Give up the state because another run of the query has begun, unless a task uses the store. */
  def giveUpIfIdle(): Unit = {
    val next = new Object
    if (lock.tryAcquire(next)) try synchronized(giveUp())
    finally lock.release(next)
  }

  /**
   * Take a view of the newest version. While a batch is writing, ask the batch to leave a view at
   * the commit, for the next maintenance. The maintenance thread does not wait, because other
   * stores need the thread, too.
   */
  def viewBetweenBatches(state: LoadedState): Option[TakenView] = {
    val holder = new Object
    if (lock.tryAcquire(holder)) {
      try synchronized(Option.when(loaded eq state)(state.takeView()))
      finally lock.release(holder)
    } else {
      handover.ask()
      None
    }
  }

  def close(): Unit = synchronized {
    closed = true
    current.foreach(_.close())
    loaded = null
    handover.clear()
    StoresOfRuns.end(this)
  }
}
