package org.apache.spark.sql.execution.streaming.state.cowstate.provider

import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import org.apache.spark.TaskContext
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.sql.execution.streaming.state.cowstate.base.StateId

/** Store that can bring the memory read by its lookups into the processor's caches. */
private[cowstate] trait PrefetchingStore {
  def id: StateStoreId

  /** True if the store has begun a version, and has neither committed nor aborted the version. */
  def isWriting: Boolean

  /**
   * Fetch the memory for lookups of the keys with these hashes; call before the lookups. The state
   * does not change. Returns the number of records found. Sets `isThere` for each key, unless
   * `isThere` is null.
   */
  def prefetch(hashes: Array[Int], count: Int, isThere: Array[Boolean]): Int
}

/**
 * One attempt of a task at the stores of an operator. `unique` is the id of the states that the
 * attempt makes, the same in all stores. If two attempts made one version, the four stores of a
 * join must not take the version from different attempts.
 */
private[cowstate] final class WriteAttempt {
  val unique: String = StateId.newUnique()
  private val begun = ConcurrentHashMap.newKeySet[StateStoreId]
  private val uncommitted = ConcurrentHashMap.newKeySet[StateStoreId]

  /** Begin to write a store. Returns false if the attempt has begun the store before. */
  def begin(id: StateStoreId): Boolean = begun.add(id) && uncommitted.add(id)

  def committed(id: StateStoreId): Unit = uncommitted.remove(id): Unit

  /** True if the attempt has committed all begun stores of a partition. */
  def isWhole(partition: Int): Boolean = !uncommitted.asScala.exists(_.partitionId == partition)
}

/**
 * Registry of the stores that tasks of this executor have opened, and of the evictions of their
 * operators. A node below or above an operator uses the registry to find the stores of the
 * operator. The stores use the registry to find each other. A task may read several partitions, one
 * by one; the registry then has the last opened store.
 */
private[cowstate] object StoresOfTask {
  private val stores = new ByTask[PrefetchingStore]
  private val attempts = new ByTask[WriteAttempt]
  private val evictions = new ByTask[(StoreEviction, SQLMetric)]
  private val removedCounts = new ByTask[SQLMetric]

  /**
   * Register an opened store, until the task ends. While the operator writes a store, a reader of
   * the state may open a store of the same name for writing: the store of the operator stays
   * registered.
   */
  def opened(store: PrefetchingStore): Unit = {
    val id = store.id
    if (!isWritten(id)) stores.put(id.checkpointRootLocation, id.operatorId, id.storeName, store)
  }

  /**
   * Return the attempt for writing a store: the task's current attempt at the operator's stores. If
   * the current attempt has begun to write this store already, return a new attempt.
   *
   * A reader of the state may open the store a second time while the operator still writes the
   * store. Then the new attempt is for the reader only: the operator keeps its own attempt.
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

  /** Return the store that the running task has opened for an operator of a query. */
  def of(
      checkpoint: String,
      operator: Long,
      store: String = StateStoreId.DEFAULT_STORE_NAME): Option[PrefetchingStore] =
    stores.get(checkpoint, operator, store)

  /**
   * Return all stores that the running task has opened for the same operator as the store `id`,
   * including this store.
   */
  def ofOperatorOf(id: StateStoreId): Seq[PrefetchingStore] =
    stores.ofOperator(id.checkpointRootLocation, id.operatorId)

  /**
   * Note the evictions of an operator in the running task, by store, and the metric for old rows
   * found.
   */
  def willEvict(
      checkpoint: String,
      operator: Long,
      byStore: Map[String, StoreEviction],
      oldRowCount: SQLMetric): Unit =
    byStore.foreach { case (store, eviction) =>
      evictions.put(checkpoint, operator, store, (eviction, oldRowCount))
    }

  /**
   * Forget the eviction from a store, because the operator of the store has committed. Later
   * callers in the task want all rows.
   */
  def hasEvicted(id: StateStoreId): Unit =
    evictions.remove(id.checkpointRootLocation, id.operatorId, id.storeName)

  /** Return the eviction of the running task in a store, and the metric for old rows found. */
  def evictionFrom(id: StateStoreId): Option[(StoreEviction, SQLMetric)] =
    evictions.get(id.checkpointRootLocation, id.operatorId, id.storeName)

  /** Note the metric for the rows that an operator removes in the running task. */
  def countsRemoved(checkpoint: String, operator: Long, count: SQLMetric): Unit =
    removedCounts.put(checkpoint, operator, AllStores, count)

  /** Return the metric for rows removed on behalf of the operator of a store. */
  def removedCount(id: StateStoreId): Option[SQLMetric] =
    removedCounts.get(id.checkpointRootLocation, id.operatorId, AllStores)

  private val AllStores = ""

  /** Values of the running task for the stores of an operator, kept until the task ends. */
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
