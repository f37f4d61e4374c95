package org.apache.spark.sql.execution.streaming.state.cowstate.scripts

import java.io.IOException

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.cowstate.base.{
  CowStateDiskException, CowStateException, StateId
}
import org.apache.spark.sql.execution.streaming.state.cowstate.map.{
  CopyOnWritePagedMap, VersionedState
}
import org.apache.spark.sql.execution.streaming.state.cowstate.memory.{
  Block, MemoryAccount, StateMemory
}

/**
 * Two batches on a state in mapped files. The disk is full after some blocks of the second: for a
 * moment, so that the batch can be undone, or until it has ended.
 * Then the state is one that is to be restored from its files, or it is as before the batch, and the
 * batch can run again.
 */
final class FullDiskScript(withPrefix: Boolean, localDirectory: String) {
  import FullDiskScript._
  import ScriptedRows._

  /** "done", if so many blocks were enough, and otherwise what became of the state. */
  def run(blocks: Int, forAMoment: Boolean): String = {
    val account = new MemoryAccount(Long.MaxValue, "a state on a full disk")
    val memory = new FillingMemory(ScriptedMemory.in(localDirectory, account), forAMoment)
    val map = new CopyOnWritePagedMap(memory, shape(withPrefix).prefixOf())
    val versions = new VersionedState(map, memory, 2, StateId.Empty)
    val model = mutable.Map.empty[Int, String]
    def batch(writes: Iterator[Write]): Unit = {
      val undo = versions.begin(versions.head)
      writes.foreach {
        case Write(number, null) => map.remove(key(number), undo)
        case Write(number, text) => map.put(key(number), value(text), undo)
      }
      versions.commit(StateId(versions.head.version + 1, "1"))
    }
    def check(): Unit = {
      map.checkInvariants()
      val view = map.openView()
      val rows = view.rows(KeyFields, ValueFields)
        .map { case (key, value) => (showKey(key).toInt, showValue(value)) }.toSeq
      view.release()
      assert(rows.size == model.size && rows.toMap == model.toMap, "other rows than were put")
    }
    try {
      batch(First.iterator)
      First.foreach(write => model(write.number) = write.value)
      memory.blocksLeft = blocks
      val outcome = try {
        batch(Second.iterator)
        "done"
      } catch {
        case _: CowStateDiskException =>
          // Undoing takes blocks, too.
          try versions.abort()
          catch { case _: CowStateDiskException => assert(versions.isBroken) }
          if (versions.isBroken) "to be restored" else "undone"
      }
      memory.blocksLeft = Int.MaxValue
      if (outcome == "undone") {
        check()
        batch(Second.iterator)
      }
      if (outcome == "to be restored") {
        assertThrows(versions.entries(versions.head, KeyFields, ValueFields))
      } else {
        Second.foreach(w => if (w.value == null) model -= w.number else model(w.number) = w.value)
        check()
      }
      outcome
    } finally {
      account.close()
      map.close()
    }
  }

  private def assertThrows(read: => Any): Unit = {
    val isRefused = try { read; false }
    catch { case _: CowStateException => true }
    assert(isRefused, "a state that is none was read")
  }
}

private object FullDiskScript {
  /** null: the key is removed. */
  final case class Write(number: Int, value: String)

  private val First = (0 until 6000).map(number => Write(number, s"150:$number"))
  /** Other lengths, removals, and new keys, so that pages become sparse and tables grow. */
  private val Second = (0 until 9000).filter(_ % 5 > 0).map { number =>
    if (number % 5 == 1 && number < 6000) Write(number, null) else Write(number, s"151:$number")
  }
}

/**
 * Gives so many blocks, and then says that the disk is full, once or always. Few pages are changed
 * in place.
 */
private final class FillingMemory(memory: StateMemory, forAMoment: Boolean) extends StateMemory {
  var blocksLeft: Int = Int.MaxValue

  override def account: MemoryAccount = memory.account
  override def pagesChangedInPlace: Int = 1
  override def largestBlock: Long = memory.largestBlock
  override def allocate(bytes: Long): Block = counted(memory.allocate(bytes))
  override def allocateZeros(bytes: Long): Block = counted(memory.allocateZeros(bytes))
  override def free(block: Block): Unit = memory.free(block)
  override def mappedBytes: Long = memory.mappedBytes
  override def permits(bytes: Long): Boolean = memory.permits(bytes)
  override def isClosed: Boolean = memory.isClosed
  override def close(isRead: Boolean): Unit = memory.close(isRead)

  private def counted(block: => Block): Block = {
    if (blocksLeft == 0) {
      if (forAMoment) blocksLeft = Int.MaxValue
      throw CowStateDiskException.ofState(account.owner, "/full", new IOException("No space left"))
    }
    if (blocksLeft != Int.MaxValue) blocksLeft -= 1
    block
  }
}
