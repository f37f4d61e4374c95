package org.apache.spark.sql.execution.streaming.state.cowstate.memory

import java.lang.ref.WeakReference
import java.nio.file.{Path, Paths}
import java.util

import org.apache.spark.SparkEnv
import org.apache.spark.sql.execution.streaming.state.cowstate.base.{
  CowStateConf, CowStateException
}
import org.apache.spark.unsafe.Platform.{BYTE_ARRAY_OFFSET, LONG_ARRAY_OFFSET}

/**
 * A block of memory of a state, and the only way to its address. (`base`, `start`) is the address
 * of the first byte in the sense of Platform. `bytes` is the number of charged bytes. `holder` is
 * the object that must stay reachable while the block is used, if not `base` itself.
 *
 * A block is revoked when its memory is unmapped: `start` then throws. So a caller asks for the
 * address anew under each lock, and never keeps the address longer. Blocks are revoked under the
 * lock of the map, when no view is open.
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

  /** Stop giving out the address. `owner`: name of the store, for the error. */
  def revoke(owner: String): Unit = {
    revokedFrom = owner
    if (copiedTo != null) copiedTo.forget(number)
  }

  /**
   * Note that `blocks` holds a copy of the address, under a number, until the block is revoked.
   * `blocks` is null if there is no copy.
   */
  private[cowstate] def copyTo(blocks: NumberedBlocks, number: Int): Unit = {
    copiedTo = blocks
    this.number = number
  }
}

/**
 * Blocks by number, for fast access with each record: the addresses lie in an array, so asking for
 * an address reads no block. A block is in at most one NumberedBlocks.
 */
private[cowstate] final class NumberedBlocks {
  import NumberedBlocks._

  private var blocks = new Array[Block](8)
  private var bases = new Array[AnyRef](8)
  private var starts = new Array[Long](8)

  def apply(number: Int): Block = blocks(number)

  def has(number: Int): Boolean = blocks(number) != null

  def base(number: Int): AnyRef = bases(number)

  /** Return the start of a block. Throws, as `Block.start` does, if the block was revoked. */
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
  /**
   * Address at which no block begins: an array has a header in front, and the system maps nothing
   * at 0.
   */
  private final val Nowhere = 0L
}

/**
 * Memory for the pages and tables of a map and for undo logs. Used under the lock of the map.
 * Exception: views read the bytes of pages without the lock.
 */
private[cowstate] trait StateMemory {
  def account: MemoryAccount

  /**
   * Number of pages, counted back from the newest page, whose records may be changed in place. A
   * change of an older page costs more than a copy of the record.
   */
  def pagesChangedInPlace: Int

  /** Greatest number of bytes of a block. */
  def largestBlock: Long

  /**
   * Allocate a block of `bytes` bytes, with unknown content. Throws a CowStateException if there is
   * no room.
   */
  def allocate(bytes: Long): Block

  /**
   * Allocate a block filled with zeros. If possible, the block begins at a line of the processor's
   * cache; then the charge is greater than the block.
   */
  def allocateZeros(bytes: Long): Block

  /** Give a block back. No reader may be left. */
  def free(block: Block): Unit

  /** Bytes of memory in files. The account counts the bytes on the heap. */
  def mappedBytes: Long

  /** True if `bytes` more may be allocated. */
  def permits(bytes: Long): Boolean

  /** True once `close` was called. Always false for memory on the heap. */
  def isClosed: Boolean

  /**
   * Give out no more blocks, revoke all blocks, and free their memory. If `isRead` is true, a view
   * may still read pages: all blocks then stay until a second call with false.
   */
  def close(isRead: Boolean): Unit
}

private[cowstate] object StateMemory {
  /**
   * Full size of pages and of blocks of undo logs. Four full blocks, with their object headers, fit
   * into a 1 MiB region of the garbage collector.
   */
  val FullBlockBytes: Long = (256L << 10) - 64

  /**
   * Return the kind of memory that the configuration asks for. Files go to the executor's local
   * directories.
   */
  def of(conf: CowStateConf, account: MemoryAccount, owner: String): StateMemory =
    if (conf.isOnDisk) {
      new MappedMemory(
        account, conf.localDirectory.map(Paths.get(_)).getOrElse(localDirectoryOf(owner)), owner)
    } else {
      new HeapMemory(account)
    }

  /** Choose one of Spark's local directories by the store's name, to spread the stores. */
  private def localDirectoryOf(owner: String): Path = {
    val directories = SparkEnv.get.blockManager.diskBlockManager.localDirs
    directories(Math.floorMod(owner.hashCode, directories.length)).toPath
  }
}

/**
 * Arrays on the heap, charged to the account. The garbage collector frees unused arrays.
 *
 * A batch needs about as many full blocks as the batch before gives back. Such blocks are old: the
 * collector has moved them to a place where it rarely collects. New blocks would fill the heap and
 * be moved in turn. So full blocks are given out again, as long as the collector leaves them.
 */
private[cowstate] final class HeapMemory(val account: MemoryAccount) extends StateMemory {
  import HeapMemory._

  /** Blocks given back; the collector may free them at any time. */
  private val returned = new util.ArrayDeque[WeakReference[Array[Byte]]]

  override val pagesChangedInPlace: Int = Int.MaxValue
  override val largestBlock: Long = 8L << 30

  override def allocate(bytes: Long): Block = {
    account.acquire(bytes)
    val again = if (bytes == StateMemory.FullBlockBytes) givenAgain() else null
    if (again != null) new Block(again, BYTE_ARRAY_OFFSET, bytes) else newBlock(bytes)
  }

  /**
   * Return the array given back last, which is likely in the processor's cache; null if there is
   * none.
   */
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
    // The collector keeps a large array at the beginning of a region. Byte 64, counted from the
    // array's header, is the first cache line start behind the header.
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
  /** Limit for an array of bytes: the number of elements must fit into an Int. */
  private val LargestOfBytes = 1L << 30
  private final val LineBytes = 64L
}
