package org.apache.spark.sql.execution.streaming.state.cowstate

import java.lang.ref.WeakReference
import java.nio.file.{Path, Paths}
import java.util

import org.apache.spark.SparkEnv
import org.apache.spark.unsafe.Platform.{BYTE_ARRAY_OFFSET, LONG_ARRAY_OFFSET}

/**
 * Bytes of a state, and the only way to them. `base` and `start` are what Platform takes for the
 * first byte; `bytes` are charged; `holder` is what must not be collected as long as they are used,
 * if that is not `base`.
 *
 * A block whose bytes are unmapped is revoked: `start` throws. So an address is asked for anew under
 * each lock under which it is used, and outlives that nowhere. Blocks are revoked under the lock of
 * the map, when no view is open.
 */
private[cowstate] final class Block(
    val base: AnyRef, first: Long, val bytes: Long, val holder: AnyRef = null) {
  private var revokedFrom: String = _
  private var copiedTo: NumberedBlocks = _
  private var number = 0

  def start: Long = {
    if (revokedFrom != null) throw CowStateException.ofUnloaded(revokedFrom)
    first
  }

  /** Give the address out no more; `owner`: whose state it was, for the error. */
  def revoke(owner: String): Unit = {
    revokedFrom = owner
    if (copiedTo != null) copiedTo.forget(number)
  }

  /** `blocks` has a copy of the address, by a number, until it is revoked; null: nobody has. */
  private[cowstate] def copyTo(blocks: NumberedBlocks, number: Int): Unit = {
    copiedTo = blocks
    this.number = number
  }
}

/**
 * Blocks by their numbers, for whoever asks for their bytes with each record: the addresses lie in
 * an array, and asking for one reads no block. A block is in one of these at most.
 */
private[cowstate] final class NumberedBlocks {
  import NumberedBlocks._

  private var blocks = new Array[Block](8)
  private var bases = new Array[AnyRef](8)
  private var starts = new Array[Long](8)

  def apply(number: Int): Block = blocks(number)

  def has(number: Int): Boolean = blocks(number) != null

  def base(number: Int): AnyRef = bases(number)

  /** As the block's: throws for a block that is revoked. */
  def start(number: Int): Long = {
    val first = starts(number)
    if (first == Nowhere) blocks(number).start else first
  }

  def add(number: Int, block: Block): Unit = {
    if (number >= blocks.length) {
      blocks = util.Arrays.copyOf(blocks, number * 2)
      bases = util.Arrays.copyOf(bases, number * 2)
      starts = util.Arrays.copyOf(starts, number * 2)
    }
    blocks(number) = block
    bases(number) = block.base
    starts(number) = block.start
    block.copyTo(this, number)
  }

  def remove(number: Int): Unit = {
    blocks(number).copyTo(null, 0)
    forget(number)
    blocks(number) = null
    bases(number) = null
  }

  private[cowstate] def forget(number: Int): Unit = starts(number) = Nowhere
}

private object NumberedBlocks {
  /** No block begins there: an array has its header in front, and the system maps nothing. */
  private final val Nowhere = 0L
}

/**
 * Where a map has its pages and tables, and where undo logs are. Used under the lock of the map,
 * but for the bytes of pages, which views read without it.
 */
private[cowstate] trait StateMemory {
  def account: MemoryAccount

  /** How many of the newest pages are changed in place, where a change elsewhere costs more. */
  def pagesChangedInPlace: Int

  /** The most bytes that a block may have. */
  def largestBlock: Long

  /** Room for so many bytes; what is in it is unknown. Throws a CowStateException without room. */
  def allocate(bytes: Long): Block

  /**
   * The same, filled with zeros. Where the memory can, it begins at a line of the processor's cache;
   * then more bytes are charged than are there.
   */
  def allocateZeros(bytes: Long): Block

  /** Give a block back. Nobody reads it any more. */
  def free(block: Block): Unit

  /** Bytes of files; what is on the heap, the account has. */
  def mappedBytes: Long

  /** Whether so many bytes more would be granted. */
  def permits(bytes: Long): Boolean

  /** Whether `close` has given all blocks back. */
  def isClosed: Boolean

  /**
   * Give everything back: blocks are revoked, and no more are given out. `isRead`: a view may still
   * read pages, so all of it stays until this is called again without one.
   */
  def close(isRead: Boolean): Unit
}

private[cowstate] object StateMemory {
  /**
   * What pages, and blocks of undo logs, grow to. Four of them, with their object headers, fit into a
   * region of 1 MiB of the collector.
   */
  val FullBlockBytes: Long = (256L << 10) - 64

  /** What the configuration asks for. Files go to the executor's local directories. */
  def of(conf: CowStateConf, account: MemoryAccount, owner: String): StateMemory =
    if (conf.isOnDisk) {
      new MappedMemory(
        account, conf.localDirectory.map(Paths.get(_)).getOrElse(localDirectoryOf(owner)), owner)
    } else {
      new HeapMemory(account)
    }

  /** One of Spark's, for each store another one. */
  private def localDirectoryOf(owner: String): Path = {
    val directories = SparkEnv.get.blockManager.diskBlockManager.localDirs
    directories(Math.floorMod(owner.hashCode, directories.length)).toPath
  }
}

/**
 * Arrays of the heap, charged to the account. The collector frees what nobody reads any more.
 *
 * A batch needs about as many full blocks as the batch before it gives back. They are old by then:
 * the collector has moved them to where it collects seldom. New ones instead would fill the heap and
 * be moved in turn. So full blocks are given out again, as long as the collector leaves them.
 */
private[cowstate] final class HeapMemory(val account: MemoryAccount) extends StateMemory {
  import HeapMemory._

  /** What the collector may free at any time. */
  private val returned = new util.ArrayDeque[WeakReference[Array[Byte]]]

  override val pagesChangedInPlace: Int = Int.MaxValue
  override val largestBlock: Long = 8L << 30

  override def allocate(bytes: Long): Block = {
    account.acquire(bytes)
    val again = if (bytes == StateMemory.FullBlockBytes) givenAgain() else null
    if (again != null) new Block(again, BYTE_ARRAY_OFFSET, bytes) else newBlock(bytes)
  }

  /** The one that was used last, which is likely in the processor's cache; null if there is none. */
  private def givenAgain(): Array[Byte] = {
    var again: Array[Byte] = null
    while (again == null && !returned.isEmpty) again = returned.pollLast().get
    again
  }

  private def newBlock(bytes: Long): Block =
    if (bytes <= LargestOfBytes) {
      new Block(new Array[Byte](bytes.toInt), BYTE_ARRAY_OFFSET, bytes)
    } else {
      new Block(new Array[Long](Math.toIntExact(bytes / 8)), LONG_ARRAY_OFFSET, bytes)
    }

  override def allocateZeros(bytes: Long): Block = {
    account.acquire(bytes + LineBytes)
    val block = newBlock(bytes + LineBytes)
    // A large array stays at the beginning of a region of the collector. Byte 64 of it, counted from
    // its header, is the first behind the header where a line begins.
    new Block(block.base, LineBytes, block.bytes)
  }

  override def free(block: Block): Unit = {
    account.release(block.bytes)
    if (block.bytes == StateMemory.FullBlockBytes) {
      returned.addLast(new WeakReference(block.base.asInstanceOf[Array[Byte]]))
    }
  }

  override def mappedBytes: Long = 0

  override def permits(bytes: Long): Boolean = account.permits(bytes)

  override def isClosed: Boolean = false

  override def close(isRead: Boolean): Unit = ()
}

private object HeapMemory {
  /** An array of bytes has about as many at most as an Int can count. */
  private val LargestOfBytes = 1L << 30
  private final val LineBytes = 64L
}
