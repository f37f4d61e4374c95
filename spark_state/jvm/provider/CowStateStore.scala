package org.apache.spark.sql.execution.streaming.state.cowstate.provider

import scala.util.control.NonFatal

import org.apache.spark.TaskContext
import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.cowstate.base.{
  CowStateCommitException, StateFileName, StateId, StoreShape
}
import org.apache.spark.sql.execution.streaming.state.cowstate.checkpoints.LoadedState
import org.apache.spark.sql.execution.streaming.state.cowstate.map.{
  CopyOnWritePagedMap, MapView, OldRecords, UndoLog
}
import org.apache.spark.sql.execution.streaming.state.cowstate.spark.StoreOfSpark
import org.apache.spark.sql.types.StructType

/**
 * Write store with the changes of one batch. The batch opens the store, and hears of the commit or
 * abort.
 */
private[cowstate] final class CowStateStore private (
    store: ProvidedStore,
    val state: LoadedState,
    base: StateId,
    private val batch: StoreBatch)
  extends StoreOfSpark with WithoutColumnFamilies with PrefetchingStore with Logging {
  import CowStateStore._
  import ProvidedStore.ProviderName

  val shape: StoreShape = store.shape
  private val versions = state.versions
  private[cowstate] val map = versions.map
  private val attempt = StoresOfTask.attemptAt(store.id)
  val newState: StateId = StateId(base.version + 1, attempt.unique)
  /** True if the generation of the changelog is fixed. Read and set under the lock of `attempt`. */
  private var isSettled = false
  private val changelog = store.checkpoints.create(changelogName, () => settledName())
  private var phase: Phase = Updating
  private var views = List.empty[() => Unit]
  private var commitMs = 0L
  /**
   * Number of rows of the committed version. When Spark asks for metrics, another task may already
   * write the next version.
   */
  private var committedSize = 0L
  private val undo = versions.begin(base)

  private def changelogName: StateFileName =
    StateFileName(newState.version, state.generation, newState.unique, Some(base.unique))

  /**
   * Return the name of the changelog. Called just before the first bytes of the changelog are
   * written: at this moment, all stores that the attempt writes for the partition get the same
   * generation. If two attempts make the same version, the changelog of the higher generation
   * counts, so the same attempt counts in every store.
   */
  private def settledName(): StateFileName = attempt.synchronized {
    if (!isSettled) {
      val together = this +: ofSamePartition.filter(_.attempt eq attempt)
      val open = together.filterNot(_.isSettled)
      open.foreach(other => other.batch.beginWriting(other.state))
      val generation = together.map(_.state.generation).max
      open.foreach { other =>
        other.state.raise(generation)
        other.isSettled = true
      }
    }
    changelogName
  }

  override def id: StateStoreId = store.id
  override def version: Long = base.version
  /** Id of the attempt that made the state upon which the batch began. */
  def begunUpon: String = base.unique
  override def hasCommitted: Boolean = phase == Committed
  override def isWriting: Boolean = phase == Updating || phase == Ending

  override def get(key: UnsafeRow, colFamilyName: String): UnsafeRow = {
    only(colFamilyName)
    map.get(key, shape.valueFields)
  }

  override def prefetch(hashes: Array[Int], count: Int, isThere: Array[Boolean]): Int =
    versions.prefetch(hashes, count, isThere)

  override def keyExists(key: UnsafeRow, colFamilyName: String): Boolean = {
    only(colFamilyName)
    map.contains(key)
  }

  override def put(key: UnsafeRow, value: UnsafeRow, colFamilyName: String): Unit = {
    only(colFamilyName)
    require(value != null, "Cannot put a null value")
    verifyUpdating("put")
    val checksum = map.checksums.of(key, value)
    map.put(key, value, checksum, undo)
    changelog.rows.put(key, value, checksum)
  }

  override def remove(key: UnsafeRow, colFamilyName: String): Unit = {
    only(colFamilyName)
    verifyUpdating("remove")
    if (map.remove(key, undo)) changelog.rows.remove(key)
  }

  /**
   * Remove many rows of the map by `remove`, under the lock of the map. Afterwards the caller
   * passes each removed key to `hasRemoved`, without the lock, because the changelog may write to
   * its file.
   */
  private[cowstate] def removing[T](remove: (CopyOnWritePagedMap, UndoLog) => T): T = {
    verifyUpdating("remove")
    map.synchronized(remove(map, undo))
  }

  private[cowstate] def hasRemoved(key: UnsafeRow): Unit = changelog.rows.remove(key)

  private[cowstate] def oldRecords(eviction: StoreEviction): OldRecords = {
    map.readTimes(eviction.time, shape.keyFields, shape.valueFields)
    map.oldRecords(eviction.upTo, shape.keyFields)
  }

  override def prefixScan(
      prefixKey: UnsafeRow, colFamilyName: String): StateStoreIterator[UnsafeRowPair] = {
    only(colFamilyName)
    if (shape.prefixColumns == 0) refuse("prefixScan")
    val entries = map.prefixScan(prefixKey, shape.keyFields, shape.valueFields)
    pairs(RowsAndRelease(entries.iterator, () => ()))
  }

  /**
   * Return the rows in the store now: all rows, or, if the operator evicts from the store, the rows
   * of an EvictionScan. Changes made while iterating do not show.
   */
  override def iterator(colFamilyName: String): StateStoreIterator[UnsafeRowPair] = {
    only(colFamilyName)
    val scan = if (phase == Committed) None else EvictionScan.of(this)
    scan.flatMap(_.open()).map(pairs).getOrElse(allRows())
  }

  /** Return all rows in the store now. */
  def allRows(): StateStoreIterator[UnsafeRowPair] = pairs(
    if (phase == Committed) {
      val (rows, release) = versions.entries(newState, shape.keyFields, shape.valueFields)
      kept(RowsAndRelease(rows, release))
    } else {
      rowsOf(map.openView())
    })

  private[cowstate] def oldRows(eviction: StoreEviction): RowsAndRelease = {
    map.readTimes(eviction.time, shape.keyFields, shape.valueFields)
    rowsOf(map.openOldRows(eviction.upTo))
  }

  private def rowsOf(view: MapView): RowsAndRelease =
    kept(RowsAndRelease(view.rows(shape.keyFields, shape.valueFields), () => view.release()))

  /**
   * Keep the function that releases an iterator, to call it at the end of the batch at the latest.
   */
  private def kept(rows: RowsAndRelease): RowsAndRelease = {
    views = rows.release :: views
    rows
  }

  override def commit(): Long =
    try written()
    catch { case NonFatal(e) => throw new CowStateCommitException(toString, e) }

  private def written(): Long = {
    if (phase != Ending) verifyUpdating("commit")
    val started = System.nanoTime
    try {
      ofSamePartition.foreach(_.commitAhead())
      changelog.commit()
    } catch {
      case e: Throwable =>
        try abortIfOpen()
        catch { case later: Throwable if later ne e => e.addSuppressed(later) }
        throw e
    }
    releaseViews()
    StoresOfTask.hasEvicted(id)
    versions.commit(newState)
    committedSize = versions.size
    attempt.committed(id)
    state.committed(
      changelogName, changelog.rows.writtenBytes, () => attempt.isWhole(id.partitionId))
    phase = Committed
    commitMs = (System.nanoTime - started) / 1000000
    batch.committed(this)
    newState.version
  }

  /** True if the operator itself opened this store, False if a reader of the state did. */
  private[cowstate] def isOfOperator: Boolean =
    StoresOfTask.of(id.checkpointRootLocation, id.operatorId, id.storeName).exists(_ eq this)

  /** Return the other stores of the same operator and partition. */
  private[cowstate] def ofSamePartition: Seq[CowStateStore] =
    if (!isOfOperator) Nil
    else StoresOfTask.ofOperatorOf(id).collect {
      case other: CowStateStore
          if other.isWriting && other.id.partitionId == id.partitionId && (other ne this) => other
    }

  /**
   * Begin to write the changelog. A join writes all rows, then commits its four stores one by one.
   * When the first store commits, the other stores begin to write their changelogs.
   */
  private def commitAhead(): Unit = if (phase == Updating) {
    phase = Ending
    changelog.commitAhead()
  }

  override def abort(): Unit = abortIfOpen()

  /** Undo all changes, unless the store was committed or aborted before. */
  def abortIfOpen(): Unit = synchronized {
    if (isWriting) {
      phase = Aborted
      try releaseViews()
      finally try changelog.cancel()
        finally try versions.abort()
          finally batch.aborted()
    } else {
      releaseViews()
    }
  }

  override def metrics: StateStoreMetrics =
    store.metrics.of(
      id, state, if (hasCommitted) committedSize else versions.size, commitMs,
      changelog.rows.writtenBytes, batch.forcesSnapshot)

  override def toString: String = s"CowStateStore[stateStoreId=$id, version=$version]"

  override def getStateStoreCheckpointInfo(): StateStoreCheckpointInfo = {
    val uses = store.usesCheckpointIds
    StateStoreCheckpointInfo(
      id.partitionId,
      newState.version,
      Option.when(uses)(newState.unique),
      Option.when(uses && base.version > 0)(batch.askedFor.getOrElse(base.unique)))
  }

  private def releaseViews(): Unit = {
    views.foreach(_())
    views = Nil
  }

  private def verifyUpdating(what: String): Unit =
    if (phase != Updating) {
      throw new IllegalStateException(s"Cannot $what after already committed or aborted")
    }

  override def createColFamilyIfAbsent(
      colFamilyName: String,
      keySchema: StructType,
      valueSchema: StructType,
      keyStateEncoderSpec: KeyStateEncoderSpec,
      useMultipleValuesPerKey: Boolean,
      isInternal: Boolean): Unit =
    throw StateStoreErrors.multipleColumnFamiliesNotSupported(ProviderName)

  override def removeColFamilyIfExists(colFamilyName: String): Boolean =
    throw StateStoreErrors.removingColumnFamiliesNotSupported(ProviderName)

  override def merge(key: UnsafeRow, value: UnsafeRow, colFamilyName: String): Unit =
    refuse("merge")

  override def mergeList(key: UnsafeRow, values: Array[UnsafeRow], colFamilyName: String): Unit =
    refuse("mergeList")

  override def putList(key: UnsafeRow, values: Array[UnsafeRow], colFamilyName: String): Unit =
    refuse("putList")
}

private[cowstate] object CowStateStore {
  private sealed trait Phase
  private case object Updating extends Phase
  /** The changelog is being written, and no row may change any more. */
  private case object Ending extends Phase
  private case object Committed extends Phase
  private case object Aborted extends Phase

  /** Open a write store. The store is aborted at the latest when its task ends. */
  def open(
      store: ProvidedStore, state: LoadedState, base: StateId, batch: StoreBatch): CowStateStore = {
    val opened = new CowStateStore(store, state, base, batch)
    try {
      Option(TaskContext.get())
        .foreach(_.addTaskCompletionListener[Unit](_ => opened.abortIfOpen()))
      StoresOfTask.opened(opened)
      opened
    } catch {
      case e: Throwable =>
        opened.abortIfOpen()
        throw e
    }
  }

  def pairs(scan: RowsAndRelease): StateStoreIterator[UnsafeRowPair] = {
    import scan._
    val pair = new UnsafeRowPair
    val iterator = new Iterator[UnsafeRowPair] {
      override def hasNext: Boolean = {
        val more = rows.hasNext
        if (!more) release()
        more
      }
      override def next(): UnsafeRowPair = {
        val (key, value) = rows.next()
        pair.withRows(key, value)
      }
    }
    new StateStoreIterator(iterator, release)
  }
}
