package org.apache.spark.sql.execution.streaming.state.cowstate.benchmarks

import java.nio.ByteBuffer
import java.nio.file.{Path, Paths}

import scala.util.Random

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.cowstate.base.StateId
import org.apache.spark.sql.execution.streaming.state.cowstate.map.{
  CopyOnWritePagedMap, UndoLog, VersionedState
}
import org.apache.spark.sql.execution.streaming.state.cowstate.memory.{
  Block, HeapMemory, MappedMemory, MemoryAccount, StateMemory
}
import org.rocksdb.{BlockBasedTableConfig, BloomFilter, CompressionType, LRUCache, Options, RocksDB}
import org.rocksdb.{WriteBatch, WriteOptions}

/** A state that batches of updates change: each reads the value of a key and writes another one. */
private trait MeasuredState {
  def begin(): Unit
  def update(key: Long, seed: Long): Unit
  def commit(): Unit
}

/** Rows as an aggregation has them: a key of one long, a value of some words. */
private final class Rows(words: Int) {
  val valueBytes: Int = 8 + words * 8
  val key = new UnsafeRow(1)
  val value = new UnsafeRow(words)
  key.pointTo(new Array[Byte](16), 16)
  value.pointTo(new Array[Byte](valueBytes), valueBytes)

  def set(number: Long, seed: Long): Unit = {
    key.setLong(0, number)
    var word = 0
    while (word < words) {
      value.setLong(word, seed + word)
      word += 1
    }
  }
}

/** The provider's map, with undo logs, in one memory or another. */
private final class StateOfMap(words: Int, memory: StateMemory) extends MeasuredState {
  private val rows = new Rows(words)
  private val map = new CopyOnWritePagedMap(memory, None)
  private val versions = new VersionedState(map, memory, 2, StateId.Empty)
  private var undo: UndoLog = _

  override def begin(): Unit = undo = versions.begin(versions.head)

  override def update(key: Long, seed: Long): Unit = {
    rows.set(key, seed)
    map.get(rows.key, words)
    map.put(rows.key, rows.value, undo)
  }

  override def commit(): Unit = versions.commit(StateId(versions.head.version + 1, "0"))
}

/** Mapped files in which records are changed where they are. */
private final class ChangedInPlace(memory: StateMemory) extends StateMemory {
  override def account: MemoryAccount = memory.account
  override def pagesChangedInPlace: Int = Int.MaxValue
  override def largestBlock: Long = memory.largestBlock
  override def allocate(bytes: Long): Block = memory.allocate(bytes)
  override def allocateZeros(bytes: Long): Block = memory.allocateZeros(bytes)
  override def free(block: Block): Unit = memory.free(block)
  override def mappedBytes: Long = memory.mappedBytes
  override def permits(bytes: Long): Boolean = memory.permits(bytes)
  override def isClosed: Boolean = memory.isClosed
  override def close(isRead: Boolean): Unit = memory.close(isRead)
}

/**
 * The RocksDB of Spark's jars, with the filters, the compression and the cache of Spark's provider,
 * and without a write-ahead log: a batch is one write.
 */
private final class StateOfRocksDB(words: Int, directory: Path) extends MeasuredState {
  private val CacheBytes = 8L << 20
  RocksDB.loadLibrary()
  private val rows = new Rows(words)
  private val table = new BlockBasedTableConfig()
    .setFilterPolicy(new BloomFilter(10, false))
    .setBlockCache(new LRUCache(CacheBytes))
  private val options = new Options()
    .setCreateIfMissing(true)
    .setCompressionType(CompressionType.LZ4_COMPRESSION)
    .setTableFormatConfig(table)
  private val database = RocksDB.open(options, directory.resolve("rocksdb").toString)
  private val unlogged = new WriteOptions().setDisableWAL(true)
  private val batch = new WriteBatch

  override def begin(): Unit = batch.clear()

  override def update(key: Long, seed: Long): Unit = {
    rows.set(key, seed)
    val bytes = ByteBuffer.allocate(8).putLong(key).array
    database.get(bytes)
    batch.put(bytes, rows.value.getBytes)
  }

  override def commit(): Unit = database.write(unlogged, batch)
}

/** Loads keys, runs batches, and prints the milliseconds of each. */
object StateMemories {
  def main(args: Array[String]): Unit = {
    val (contender, keys, updates) = (args(0), args(1).toLong, args(2).toInt)
    val state = stateOf(contender, words = args(4).toInt, Paths.get(args(5)))
    val loading = (0L until keys).iterator.grouped(LoadedAtOnce)
    println(s"load ${milliseconds(loading.foreach(some => run(state, some.iterator, 0)))}")
    val chance = new Random(1)
    for (batch <- 1 to args(3).toInt) {
      val drawn = Iterator.fill(updates)(chance.nextLong(keys))
      println(s"batch ${milliseconds(run(state, drawn, batch))}")
    }
    System.out.flush()
    Runtime.getRuntime.halt(0)
  }

  private val LoadedAtOnce = 500000

  private def run(state: MeasuredState, keys: Iterator[Long], seed: Long): Unit = {
    state.begin()
    keys.foreach(state.update(_, seed))
    state.commit()
  }

  private def milliseconds(f: => Unit): Long = {
    val began = System.nanoTime
    f
    (System.nanoTime - began) / 1000000
  }

  private def stateOf(contender: String, words: Int, directory: Path): MeasuredState = {
    val account = new MemoryAccount(Long.MaxValue, contender)
    def mapped = new MappedMemory(account, directory, contender)
    contender match {
      case "heap" => new StateOfMap(words, new HeapMemory(account))
      case "mapped" => new StateOfMap(words, mapped)
      case "mapped_in_place" => new StateOfMap(words, new ChangedInPlace(mapped))
      case "rocksdb" => new StateOfRocksDB(words, directory)
    }
  }
}
