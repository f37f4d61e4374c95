package org.apache.spark.sql.execution.streaming.state.cowstate

import java.util.UUID

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration

import org.apache.spark.TaskContext
import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType
import org.apache.spark.util.NextIterator

/**
 * State store provider on a copy-on-write paged map, for
 * spark.sql.streaming.stateStore.providerClass.
 *
 * One provider serves one store (operator, partition, name) on one executor. The provider holds the
 * newest state and, as undo logs, the versions before. A batch is one write session: the session
 * begins at the version that Spark asks for, changes the map in place, writes a changelog, and
 * commits. Aborting, or running a batch again, undoes changes. Maintenance runs while batches go
 * on. It writes a snapshot from a view when the changelogs since the last snapshot outweigh the
 * snapshot, merges small changelogs, and deletes files that no retained version needs.
 *
 * Files are never overwritten. Lineage decides which files make up a state, see StateFileName.
 */
class CowStateStoreProvider
  extends ProviderOfSpark with SupportsFineGrainedReplay with Logging {
  import CowStateLoadException.loading
  import CowStateStoreProvider._

  @volatile private var id: StateStoreId = _
  @volatile private var shape: StoreShape = _
  @volatile private var storeConf: StateStoreConf = _
  @volatile private var hadoopConf: Configuration = _
  @volatile private var checkpoints: StateCheckpoints = _
  @volatile private var restores: StateRestores = _
  @volatile private var lock: StoreLock = _
  @volatile private var loaded: LoadedState = _
  @volatile private var cleanup: StateFileCleanup = _
  @volatile private var closed = false
  private val handover = new ViewHandover
  private[cowstate] val metrics = new StoreMetrics

  override def init(
      stateStoreId: StateStoreId,
      keySchema: StructType,
      valueSchema: StructType,
      keyStateEncoderSpec: KeyStateEncoderSpec,
      useColumnFamilies: Boolean,
      storeConfs: StateStoreConf,
      hadoopConfiguration: Configuration,
      useMultipleValuesPerKey: Boolean,
      stateSchemaProvider: Option[StateSchemaProvider]): Unit = {
    if (useColumnFamilies) throw StateStoreErrors.multipleColumnFamiliesNotSupported(Name)
    if (useMultipleValuesPerKey) {
      throw StateStoreErrors.unsupportedOperationException("multipleValuesPerKey", Name)
    }
    id = stateStoreId
    shape = StoreShape.of(keySchema, valueSchema, keyStateEncoderSpec, Name)
    storeConf = storeConfs
    hadoopConf = hadoopConfiguration
    val conf = CowStateConf(storeConfs)
    lock = new StoreLock(toString, conf.lockSeconds)
    val codec = storeConfs.compressionCodec
    val checksums = RowChecksums(storeConfs, id.toString)
    checkpoints = new StateCheckpoints(
      new PlacedStateDirectory(id, conf.store, hadoopConf),
      new HdfsStateFileReader(id.storeCheckpointLocation(), hadoopConf, codec),
      StateFileContent(keySchema, valueSchema, codec, checksums, id.toString), conf.syncsChanges)
    restores =
      new StateRestores(id, toString, shape, storeConfs, hadoopConf, checkpoints, metrics)
    cleanup = new StateFileCleanup(checkpoints, storeConfs)
  }

  override def stateStoreId: StateStoreId = id

  override def toString: String =
    s"$Name[op=${id.operatorId}, part=${id.partitionId}, store=${id.storeName}]"

  override def close(): Unit = synchronized {
    closed = true
    if (loaded != null) loaded.close()
    loaded = null
    handover.clear()
    StoresOfRuns.end(this)
  }

  override def getStore(
      version: Long,
      stateStoreCkptId: Option[String],
      forceSnapshotOnCommit: Boolean,
      loadEmpty: Boolean): StateStore =
    loading(version)(write(version, stateStoreCkptId, forceSnapshotOnCommit, loadEmpty))

  override def getReadStore(version: Long, stateStoreCkptId: Option[String]): ReadStateStore =
    loading(version)(read(version, stateStoreCkptId))

  private def read(version: Long, stateStoreCkptId: Option[String]): CowReadStore = {
    if (loaded == null) StoresOfRuns.begin(this, hadoopConf)
    def of(held: (LoadedState, StateId)) = new CowReadStore(this, held._1.use(), held._2)
    lent(version, stateStoreCkptId)
      .orElse(synchronized(find(version, stateStoreCkptId).map(of)))
      .getOrElse {
        val reader = new Object
        if (!lock.tryAcquire(reader)) readerOf(restores.load(version, stateStoreCkptId))
        else {
          try of(reload(version, stateStoreCkptId, beside = None))
          finally lock.release(reader)
        }
      }
  }

  /** Return a reader of a run's state in memory, if the state counts as the version. */
  private def lent(version: Long, unique: Option[String]): Option[CowReadStore] =
    StoresOfRuns.otherThan(this).filter(_.heldVersions.contains(version)).flatMap { run =>
      val at = restores.stateAt(version, unique, restores.filesOf(version))
      run.lend(at).map(new CowReadStore(this, _, at))
    }

  private def heldVersions: Seq[Long] =
    Option(loaded).toSeq.flatMap(_.versions.held.map(_.version))

  /** Return the state in memory for one more user, if the state `at` is held. */
  private def lend(at: StateId): Option[LoadedState] = synchronized {
    Option(loaded).filter(state => !state.isDamaged && state.versions.held.contains(at))
      .map(_.use())
  }

  /** Return a reader that owns the state. */
  private def readerOf(own: LoadedState): CowReadStore =
    new CowReadStore(this, own, own.versions.head)

  override def upgradeReadStoreToWriteStore(
      readStore: ReadStateStore,
      version: Long,
      stateStoreCkptId: Option[String],
      forceSnapshotOnCommit: Boolean): StateStore = loading(version) {
    require(
      readStore.id == id && readStore.version == version,
      s"$this cannot write version $version after a reader of ${readStore.id}, version " +
        s"${readStore.version}")
    val store = write(version, stateStoreCkptId, forceSnapshotOnCommit, loadEmpty = false)
    readStore.asInstanceOf[CowReadStore].upgradedTo(store)
    store
  }

  private def write(
      version: Long,
      unique: Option[String],
      forceSnapshot: Boolean,
      loadEmpty: Boolean): CowStateStore = {
    val session = new WriteSession(version + 1, forceSnapshot, unique)
    lock.acquire(session)
    try {
      if (loaded == null) StoresOfRuns.begin(this, hadoopConf)
      if (session.isOfRun) checkpoints.directory.beginWriting(version + 1): Unit
      val (state, base) =
        if (loadEmpty) install(restores.empty(StateId(version, StateId.Empty.unique)))
        else {
          val beside = if (unique.isEmpty) begunBeside(version) else None
          synchronized(find(version, unique.orElse(beside)))
            .getOrElse(reload(version, unique, beside))
        }
      session.begin(state, base)
    } catch {
      case e: Throwable =>
        lock.release(session)
        throw e
    }
  }

  /**
   * Return the attempt upon which the task has begun in other stores of the same operator and
   * partition.
   */
  private def begunBeside(version: Long): Option[String] =
    StoresOfTask.ofOperatorOf(id).collectFirst {
      case store: CowStateStore
          if store.isWriting && store.id.partitionId == id.partitionId && store.id != id &&
            store.version == version => store.begunUpon
    }

  private def isFirstAttempt: Boolean =
    Option(TaskContext.get()).forall(t => t.attemptNumber() == 0 && t.stageAttemptNumber() == 0)

  /**
   * Hold of a batch on the store, from the beginning of the task to the commit or abort. A run of
   * the query claims the store's directory at once, to refuse an outdated run before the first row
   * goes out. Other writers claim the directory with their first changelog: Spark 4.2 reads the
   * state of a join from stores opened as if for writing.
   */
  private final class WriteSession(
      version: Long, isSnapshotAsked: Boolean, override val askedFor: Option[String])
    extends StoreSession {
    override def forcesSnapshot: Boolean = isSnapshotAsked && !checkpoints.directory.isInStore
    val isOfRun: Boolean = StoresOfRuns.isOfRun(CowStateStoreProvider.this, hadoopConf)
    private val isFirst = isFirstAttempt
    private var continues = false
    private var hasBegun = false

    override def begin(state: LoadedState, base: StateId): CowStateStore = {
      continues = state.begin(base)
      if (isOfRun) beginWriting(state)
      open(state, base, this)
    }

    override def beginWriting(state: LoadedState): Unit = if (!hasBegun) {
      val isOutdated = checkpoints.directory.beginWriting(version)
      if (!isFirst || !continues || isOutdated) state.outrank(checkpoints.list())
      hasBegun = true
    }

    override def committed(store: CowStateStore): Unit = {
      try {
        if (forcesSnapshot) {
          handover.clear()
          writeSnapshot(store.state.takeView())
        } else {
          handover.leave(store.state.takeView(), isForced = isSnapshotAsked)
        }
      } finally lock.release(this)
      if (storeConf.commitValidationEnabled) {
        StateStore.reportCommitToCoordinator(store.newState.version, id, hadoopConf)
      }
    }

    override def aborted(): Unit = lock.release(this)
  }

  /** Open a write store. The store is aborted at the latest when its task ends. */
  private def open(state: LoadedState, base: StateId, session: StoreSession): CowStateStore = {
    val store = new CowStateStore(this, state, base, session)
    try {
      Option(TaskContext.get()).foreach(_.addTaskCompletionListener[Unit](_ => store.abortIfOpen()))
      StoresOfTask.opened(store)
      store
    } catch {
      case e: Throwable =>
        store.abortIfOpen()
        throw e
    }
  }

  private[cowstate] def usesCheckpointIds: Boolean = storeConf.enableStateStoreCheckpointIds

  private[cowstate] def rowShape: StoreShape = shape

  private def find(version: Long, unique: Option[String]): Option[(LoadedState, StateId)] = {
    val held = Option(loaded).filterNot(_.isDamaged).flatMap { state =>
      state.versions.held
        .find(s => s.version == version && unique.fold(state.mayCount(s))(_ == s.unique))
        .map((state, _))
    }
    if (version > 0) metrics.versionAsked(isHeld = held.isDefined)
    held
  }

  private def install(state: LoadedState): (LoadedState, StateId) = synchronized {
    if (closed) {
      state.close()
      throw CowStateException.ofUnloaded(toString)
    }
    giveUp()
    loaded = state
    (state, state.versions.head)
  }

  /**
   * Restore a version from files, in place of the held state. The held state is given up first: two
   * states at once may exceed the memory. Call with the lock of the store, and without the monitor
   * of the provider: Spark closes a provider while all stores of the executor wait.
   */
  private def reload(
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
    if (loaded != null) loaded.leave()
    loaded = null
  }

  /** Give up the state because another run of the query has begun, unless a task uses the store. */
  private[cowstate] def giveUpIfIdle(): Unit = {
    val next = new Object
    if (lock.tryAcquire(next)) try synchronized(giveUp())
    finally lock.release(next)
  }

  override def doMaintenance(): Unit = {
    doSnapshotMaintenance()
    doCleanupMaintenance()
  }

  override def doSnapshotMaintenance(): Unit = triedAgainLater("writing a snapshot") {
    val state = loaded
    if (state == null || state.isDamaged || !checkpoints.directory.mayWrite) {
      handover.clear()
    } else if (state.snapshotIsDue || handover.isForced) {
      handover.take(state).orElse(viewBetweenBatches(state)).foreach(writeSnapshot)
      mergeChangelogs(state)
    } else {
      val head = state.versions.head.version
      handover.clear()
      mergeChangelogs(state)
      restores.reportCovered(head)
    }
  }

  private def mergeChangelogs(state: LoadedState): Unit =
    Iterator.continually(state.mergeable).takeWhile(_.nonEmpty).forall { files =>
      val into = StateFileName.merging(files, state.generation, newUnique())
      val merged = checkpoints.merge(files, into, state.memory.account)
      merged.foreach { size =>
        state.merged(files, into, size)
        metrics.changelogsMerged(size.bytes)
        logInfo(s"$this merged ${files.size} files of changes up to version ${into.version}: " +
          s"${size.bytes} bytes")
      }
      merged.isDefined // A later maintenance may have memory for the next files.
    }: Unit

  /**
   * Log a failure of maintenance. If the failure reached Spark, Spark would unload the provider and
   * the state in memory.
   */
  private def triedAgainLater(what: String)(f: => Unit): Unit =
    try f
    catch {
      case NonFatal(e) => logWarning(s"$this: $what failed, it is tried again later", e)
    }

  /**
   * Take a view of the newest version. While a batch is writing, ask the batch to leave a view at
   * the commit, for the next maintenance. The thread does not wait: other stores need the thread,
   * too.
   */
  private def viewBetweenBatches(state: LoadedState): Option[TakenView] = {
    val holder = new Object
    if (lock.tryAcquire(holder)) {
      try synchronized(Option.when(loaded eq state)(state.takeView()))
      finally lock.release(holder)
    } else {
      handover.ask()
      None
    }
  }

  private def writeSnapshot(taken: TakenView): Unit = {
    val started = System.nanoTime
    val version = taken.at.version
    try {
      val name = StateFileName.ofSnapshot(taken.at, taken.state.generation, newUnique())
      val size = checkpoints.writeSnapshot(name, taken.view)
      taken.state.snapshotWritten(taken, size)
      metrics.snapshotWritten(version, size.bytes, ms = (System.nanoTime - started) / 1000000)
      logInfo(s"$this wrote a snapshot of version $version: ${size.bytes} bytes")
      restores.reportCovered(version)
    } finally taken.view.release()
  }

  override def doCleanupMaintenance(): Unit = triedAgainLater("deleting orphans") {
    cleanup.sweepOrphans()
    val state = loaded
    if (state != null && checkpoints.directory.mayWrite) cleanup.deleteUnneeded(state.versions.head)
  }

  override def replayStateFromSnapshot(
      snapshotVersion: Long,
      endVersion: Long,
      readOnly: Boolean,
      snapshotVersionStateStoreCkptId: Option[String],
      endVersionStateStoreCkptId: Option[String]): StateStore = {
    val state = loading(endVersion)(restores.replay(
        snapshotVersion, endVersion, snapshotVersionStateStoreCkptId, endVersionStateStoreCkptId))
    val session = new StoreSession {
      override def forcesSnapshot: Boolean = false
      override def askedFor: Option[String] = endVersionStateStoreCkptId
      override def begin(state: LoadedState, base: StateId): CowStateStore =
        open(state, base, this)
      override def beginWriting(state: LoadedState): Unit =
        if (checkpoints.directory.beginWriting(endVersion + 1)) state.outrank(checkpoints.list())
      override def committed(store: CowStateStore): Unit = state.close()
      override def aborted(): Unit = state.close()
    }
    session.begin(state, state.versions.head)
  }

  override def replayReadStateFromSnapshot(
      snapshotVersion: Long,
      endVersion: Long,
      snapshotVersionStateStoreCkptId: Option[String],
      endVersionStateStoreCkptId: Option[String]): ReadStateStore = {
    val state = loading(endVersion)(restores.replay(
        snapshotVersion, endVersion, snapshotVersionStateStoreCkptId, endVersionStateStoreCkptId))
    readerOf(state)
  }

  override def getStateStoreChangeDataReader(
      startVersion: Long,
      endVersion: Long,
      colFamilyNameOpt: Option[String],
      endVersionStateStoreCkptId: Option[String])
      : NextIterator[(RecordType.Value, UnsafeRow, UnsafeRow, Long)] = {
    colFamilyNameOpt.filter(_ != StateStore.DEFAULT_COL_FAMILY_NAME).foreach { _ =>
      throw StateStoreErrors.multipleColumnFamiliesNotSupported(Name)
    }
    loading(endVersion)(restores.changes(startVersion, endVersion, endVersionStateStoreCkptId))
  }

  private[cowstate] def newChangelog(
      like: StateFileName, named: () => StateFileName): PendingStateFile =
    checkpoints.create(like, named)

  override def supportedCustomMetrics: Seq[StateStoreCustomMetric] = CowStateMetrics.All

  override def supportedInstanceMetrics: Seq[StateStoreInstanceMetric] =
    Seq(StateStoreSnapshotLastUploadInstanceMetric())
}

object CowStateStoreProvider {
  private[cowstate] val Name = "CowStateStoreProvider"

  private[cowstate] def newUnique(): String =
    UUID.randomUUID().toString.replace("-", "").take(16)
}
