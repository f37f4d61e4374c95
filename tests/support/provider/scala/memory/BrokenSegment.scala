package org.apache.spark.sql.execution.streaming.state.cowstate.scripts

import java.nio.file.Paths

import org.apache.spark.sql.execution.streaming.state.cowstate.base.CowStateException
import org.apache.spark.sql.execution.streaming.state.cowstate.memory.{
  Block, MappedMemory, MemoryAccount
}

/** Files of a mapped memory, of which the first cannot be given back. */
final class BrokenSegment(localDirectory: String) {
  private val account = new MemoryAccount(Long.MaxValue, "a broken segment")
  private val memory = new MappedMemory(account, Paths.get(localDirectory), "a broken segment")

  /** What closing the memory says, and how many of the other blocks may still be read then. */
  def close(): String = {
    val blocks = Seq.fill(4)(memory.allocate(1 << 20))
    HeldBytes.breakFirstSegment(memory)
    val told = try { memory.close(isRead = false); "closed" }
    catch { case e: NullPointerException => e.getClass.getSimpleName }
    s"$told ${blocks.tail.count(isReadable)}"
  }

  private def isReadable(block: Block): Boolean =
    try { block.start; true }
    catch { case _: CowStateException => false }
}
