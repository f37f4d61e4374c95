package org.apache.spark.sql.execution.streaming.state.cowstate.scripts

import org.apache.spark.sql.execution.streaming.state.cowstate.map.{OpenViews, RecordPages, UndoLog}
import org.apache.spark.sql.execution.streaming.state.cowstate.memory.{
  Block, MemoryAccount, StateMemory
}
import org.apache.spark.unsafe.Platform.BYTE_ARRAY_OFFSET

/** Rows of almost 2 GiB, in a memory that gives out blocks of a few bytes only. */
final class LongRows {
  private val memory = new ShortMemory
  private val length = Int.MaxValue - 63

  /** Whether a record that does not fit behind another one has a page of its own. */
  def getTheirPage: Boolean = {
    val records = new RecordPages(0, memory, new OpenViews(memory.account))
    val first = records.allocate(8, 8, 1)
    RecordPages.pageOf(records.allocate(8, length - 8, 1)) != RecordPages.pageOf(first)
  }

  /** How many blocks an undo log has after an entry that does not fit behind another one. */
  def getTheirBlock: Int = {
    val log = new UndoLog(1, memory)
    val room = log.getClass.getDeclaredMethods.find(_.getName.endsWith("room")).get
    room.setAccessible(true)
    room.invoke(log, Int.box(8), Int.box(8))
    room.invoke(log, Int.box(8), Int.box(length - 8))
    HeldBytes.blockCount(log)
  }

  private final class ShortMemory extends StateMemory {
    override val account = new MemoryAccount(Long.MaxValue, "long rows")
    override def pagesChangedInPlace: Int = Int.MaxValue
    override def largestBlock: Long = Long.MaxValue
    override def allocate(bytes: Long): Block =
      new Block(new Array[Byte](64), BYTE_ARRAY_OFFSET, bytes)
    override def allocateZeros(bytes: Long): Block = allocate(bytes)
    override def free(block: Block): Unit = ()
    override def mappedBytes: Long = 0
    override def permits(bytes: Long): Boolean = true
    override def isClosed: Boolean = false
    override def close(isRead: Boolean): Unit = ()
  }
}
