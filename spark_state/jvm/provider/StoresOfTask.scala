package org.apache.spark.sql.execution.streaming.state.cowstate

import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import org.apache.spark.TaskContext
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.streaming.state.StateStoreId

/** A store that can bring what its lookups read into the processor's caches. */
private[cowstate] trait PrefetchingStore {
  def id: StateStoreId

  /** Whether it has begun a version, and has neither committed nor aborted it. */
  def isWriting: Boolean

  /**
   * To be called before the keys with these hashes are looked up. It changes nothing in the state.
   * Returns for how many of them it found a record, and tells in `isThere`, unless that is null, for
   * which.
   */
  def prefetch(hashes: Array[Int], count: Int, isThere: Array[Boolean]): Int
}

/**
 * What the stores have in common that one attempt of a task writes for an operator: the `unique` of
 * the states that it makes. If two attempts made one version, the four stores of a join must not
 * take it from different ones.
 */
private[cowstate] final class WriteAttempt {
  val unique: String = CowStateStoreProvider.newUnique()
  private val begun = ConcurrentHashMap.newKeySet[StateStoreId]
  private val uncommitted = ConcurrentHashMap.newKeySet[StateStoreId]

  /** False if the store was written before. */
  def begin(id: StateStoreId): Boolean = begun.add(id) && uncommitted.add(id)

  def committed(id: StateStoreId): Unit = uncommitted.remove(id): Unit

  /** Whether it has committed all stores that it began of a partition. */
  def isWhole(partition: Int): Boolean = !uncommitted.asScala.exists(_.partitionId == partition)
}

/**
 * The stores that tasks of this executor have opened, and what their operators will evict. Operators
 * that were put below or above another one use this to find its stores, and its stores to find each
 * other. A task may read several partitions, one after the other, and finds the store opened last.
 */
private[cowstate] object StoresOfTask {
  private val stores = new ByTask[PrefetchingStore]
  private val attempts = new ByTask[WriteAttempt]
  private val evictions = new ByTask[(StoreEviction, SQLMetric)]
  private val removedCounts = new ByTask[SQLMetric]

  /**
   * To be called where a store is opened. It is forgotten when the task ends. A reader of the state
   * may open a store of the same name for writing, while the operator writes its own.
   */
  def opened(store: PrefetchingStore): Unit = {
    val id = store.id
    if (!isWritten(id)) stores.put(id.checkpointRootLocation, id.operatorId, id.storeName, store)
  }

  /**
   * The attempt to which a store belongs that is about to be written. A task that writes a store
   * once more begins another attempt, and so does who opens a store that its operator is writing.
   */
  def attemptAt(id: StateStoreId): WriteAttempt = {
    val current = attempts.get(id.checkpointRootLocation, id.operatorId, AllStores)
    current.filter(_.begin(id)).getOrElse {
      val next = new WriteAttempt
      next.begin(id): Unit
      if (!isWritten(id)) {
        attempts.put(id.checkpointRootLocation, id.operatorId, AllStores, next)
      }
      next
    }
  }

  private def isWritten(id: StateStoreId): Boolean =
    of(id.checkpointRootLocation, id.operatorId, id.storeName)
      .exists(other => other.isWriting && other.id == id)

  /** What the running task has opened for an operator of a query. */
  def of(
      checkpoint: String,
      operator: Long,
      store: String = StateStoreId.DEFAULT_STORE_NAME): Option[PrefetchingStore] =
    stores.get(checkpoint, operator, store)

  /** What the running task has opened for the operator of a store, this store included. */
  def ofOperatorOf(id: StateStoreId): Seq[PrefetchingStore] =
    stores.ofOperator(id.checkpointRootLocation, id.operatorId)

  /** What an operator will evict in the running task, by store; and what counts the rows found. */
  def willEvict(
      checkpoint: String,
      operator: Long,
      byStore: Map[String, StoreEviction],
      oldRowCount: SQLMetric): Unit =
    byStore.foreach { case (store, eviction) =>
      evictions.put(checkpoint, operator, store, (eviction, oldRowCount))
    }

  /** The operator of a store has committed: whoever asks later in the task wants all rows. */
  def hasEvicted(id: StateStoreId): Unit =
    evictions.remove(id.checkpointRootLocation, id.operatorId, id.storeName)

  /** What the operator of a store will evict from it in the running task. */
  def evictionFrom(id: StateStoreId): Option[(StoreEviction, SQLMetric)] =
    evictions.get(id.checkpointRootLocation, id.operatorId, id.storeName)

  /** An operator counts the rows that it removes in the running task with this metric. */
  def countsRemoved(checkpoint: String, operator: Long, count: SQLMetric): Unit =
    removedCounts.put(checkpoint, operator, AllStores, count)

  /** What counts the rows that are removed for the operator of a store. */
  def removedCount(id: StateStoreId): Option[SQLMetric] =
    removedCounts.get(id.checkpointRootLocation, id.operatorId, AllStores)

  private val AllStores = ""

  /** Values of the running task for the stores of an operator, until it ends. */
  private final class ByTask[V] {
    private val values = new ConcurrentHashMap[(Long, String, Long, String), V]

    def put(checkpoint: String, operator: Long, store: String, value: V): Unit =
      Option(TaskContext.get()).foreach { task =>
        val key = (task.taskAttemptId(), checkpoint, operator, store)
        if (values.put(key, value) == null) {
          task.addTaskCompletionListener[Unit](_ => values.remove(key))
        }
      }

    def get(checkpoint: String, operator: Long, store: String): Option[V] =
      Option(TaskContext.get()).flatMap { task =>
        Option(values.get((task.taskAttemptId(), checkpoint, operator, store)))
      }

    def ofOperator(checkpoint: String, operator: Long): Seq[V] =
      Option(TaskContext.get()).toSeq.flatMap { task =>
        values.asScala.toSeq.collect {
          case ((attempt, `checkpoint`, `operator`, _), value)
              if attempt == task.taskAttemptId() => value
        }
      }

    def remove(checkpoint: String, operator: Long, store: String): Unit =
      Option(TaskContext.get()).foreach { task =>
        values.remove((task.taskAttemptId(), checkpoint, operator, store))
      }
  }
}
