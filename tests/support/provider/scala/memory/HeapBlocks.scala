package org.apache.spark.sql.execution.streaming.state.cowstate.scripts

import java.lang.ref.WeakReference

import org.apache.spark.sql.execution.streaming.state.cowstate.memory.{
  HeapMemory, MemoryAccount, StateMemory
}
import org.apache.spark.unsafe.Platform

/** What becomes of full blocks of the heap that are given back. Every method uses a memory of its own. */
final class HeapBlocks {
  private val full = StateMemory.FullBlockBytes
  private def newMemory() = new HeapMemory(new MemoryAccount(Long.MaxValue, "blocks of a test"))

  /** Which of three blocks, two of them given back, the next three are, and what is charged. */
  def givenAgain(): String = {
    val memory = newMemory()
    val first = Seq.fill(3)(memory.allocate(full))
    first.take(2).foreach(memory.free)
    val again = Seq.fill(3)(memory.allocate(full))
    val places = again.map(block => first.indexWhere(_.base eq block.base))
    s"${places.mkString(" ")}; ${memory.account.bytes / full} charged"
  }

  /** Whether blocks of other lengths are arrays of their own. */
  def othersAreNew(bytes: Long): Boolean = {
    val memory = newMemory()
    val first = memory.allocate(bytes)
    memory.free(first)
    memory.allocate(bytes).base ne first.base
  }

  /** The sum of the bytes of a block of zeros, for which an array of a full block is long enough. */
  def sumOfZeros(): Long = {
    val memory = newMemory()
    val block = memory.allocate(full)
    Platform.setMemory(block.base, block.start, block.bytes, 1)
    memory.free(block)
    val zeros = memory.allocateZeros(full - 64)
    (0L until full - 64).map(at => Platform.getByte(zeros.base, zeros.start + at).toLong).sum
  }

  /** Whether the collector frees what was given back. */
  def isCollected(): Boolean = {
    val memory = newMemory()
    val array = returnedTo(memory)
    System.gc()
    val isFree = array.get == null
    // The memory was there all the time, and gives out another array.
    memory.allocate(full)
    isFree
  }

  private def returnedTo(memory: HeapMemory): WeakReference[AnyRef] = {
    val block = memory.allocate(full)
    memory.free(block)
    new WeakReference(block.base)
  }
}
