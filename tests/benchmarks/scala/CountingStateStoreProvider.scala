package org.apache.spark.sql.execution.streaming.state.benchmark

import java.lang.reflect.{InvocationHandler, InvocationTargetException, Method, Proxy}
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.LongAdder

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.reflect.ClassTag

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.cowstate.CowStateStoreProvider

/** The provider of cowstate, which counts the calls that Spark makes to its stores. */
class CountingStateStoreProvider extends CowStateStoreProvider {
  override def getStore(
      version: Long,
      stateStoreCkptId: Option[String],
      forceSnapshotOnCommit: Boolean,
      loadEmpty: Boolean): StateStore = StoreCalls.counted(
    super.getStore(version, stateStoreCkptId, forceSnapshotOnCommit, loadEmpty), new KeysOfCalls)

  override def getReadStore(version: Long, stateStoreCkptId: Option[String]): ReadStateStore =
    StoreCalls.counted(super.getReadStore(version, stateStoreCkptId), new KeysOfCalls)

  override def upgradeReadStoreToWriteStore(
      readStore: ReadStateStore,
      version: Long,
      stateStoreCkptId: Option[String],
      forceSnapshotOnCommit: Boolean): StateStore = {
    val reader = Proxy.getInvocationHandler(readStore).asInstanceOf[StoreCalls]
    val writer = super.upgradeReadStoreToWriteStore(
      reader.store, version, stateStoreCkptId, forceSnapshotOnCommit)
    StoreCalls.counted(writer, reader.keys)
  }
}

/** Keys that a task has named in calls to a store, and the calls. */
private final class KeysOfCalls {
  private val calls = mutable.HashMap.empty[UnsafeRow, mutable.Set[String]]
  private var last: UnsafeRow = _

  def note(call: String, key: UnsafeRow, count: CallCount): Unit = {
    if (key == last) count.ofLastKey.increment()
    last = key.copy()
    val earlier = calls.getOrElseUpdate(last, mutable.Set.empty)
    if (earlier.nonEmpty) count.ofKnownKeys.increment()
    if (!earlier.add(call)) count.again.increment()
  }
}

/**
 * Count of one call in a batch. `again`: for a key of an earlier such call in the batch.
 * `ofKnownKeys`: for a key of an earlier call of any kind. `ofLastKey`: for the key of the call
 * before. `rows`: rows that the call gave.
 */
private final class CallCount {
  val calls, again, ofKnownKeys, ofLastKey, rows = new LongAdder

  override def toString: String = Seq(calls, again, ofKnownKeys, ofLastKey, rows).mkString(" ")
}

/** Passes calls on to a store, and counts calls that name a key or give rows. */
private final class StoreCalls(val store: ReadStateStore, val keys: KeysOfCalls)
  extends InvocationHandler {
  import StoreCalls._

  override def invoke(proxy: Object, method: Method, arguments: Array[Object]): Object = {
    val result =
      try method.invoke(store, arguments: _*)
      catch { case e: InvocationTargetException => throw e.getCause }
    val key = Option(arguments).flatMap(_.headOption).collect { case key: UnsafeRow => key }
    val isScan = result.isInstanceOf[StateStoreIterator[_]]
    if (key.isEmpty && !isScan && method.getName != "multiGet") result
    else {
      val count = countOf(store, method.getName)
      count.calls.increment()
      key.foreach(keys.note(method.getName, _, count))
      result match {
        case scan: StateStoreIterator[UnsafeRowPair @unchecked] =>
          new StateStoreIterator(scan.tapEach(_ => count.rows.increment()), () => scan.close())
        case _ => result
      }
    }
  }
}

object StoreCalls {
  private val counts = new ConcurrentHashMap[String, CallCount]

  private def countOf(store: ReadStateStore, call: String): CallCount =
    counts.computeIfAbsent(
      s"${store.version} ${store.id.operatorId} ${store.id.storeName} $call", _ => new CallCount)

  private[benchmark] def counted[S <: ReadStateStore](store: S, keys: KeysOfCalls)(
      implicit interface: ClassTag[S]): S = {
    val classes = Array[Class[_]](interface.runtimeClass)
    val handler = new StoreCalls(store, keys)
    Proxy.newProxyInstance(getClass.getClassLoader, classes, handler).asInstanceOf[S]
  }

  /** The counts since the last call: batch, operator, store, call, and the numbers of the count. */
  def take(): String = {
    val lines = counts.asScala.map { case (call, count) => s"$call $count" }.toSeq.sorted
    counts.clear()
    lines.mkString("\n")
  }
}
