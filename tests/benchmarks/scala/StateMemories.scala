package org.apache.spark.sql.execution.streaming.state.cowstate.benchmarks

import java.nio.ByteBuffer
import java.nio.channels.FileChannel
import java.nio.file.{Files, Path, Paths, StandardOpenOption}
import java.util

import scala.collection.mutable
import scala.util.Random

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.cowstate.base.StateId
import org.apache.spark.sql.execution.streaming.state.cowstate.map.{
  CopyOnWritePagedMap, UndoLog, VersionedState
}
import org.apache.spark.sql.execution.streaming.state.cowstate.memory.{
  Block, HeapMemory, MappedMemory, MemoryAccount, StateMemory
}
import org.apache.spark.util.sketch.{BloomFilter => SketchOfKeys}
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

/**
 * A log-structured merge tree of plain files: each batch is a run, sorted by key, with a Bloom
 * filter. Eight runs of about one size are merged to one. Runs are mapped and searched by halves.
 */
private final class StateOfSortedRuns(words: Int, directory: Path) extends MeasuredState {
  import StateOfSortedRuns._
  private val rows = new Rows(words)
  private val recordBytes = 8 + rows.valueBytes
  private val changes = new util.TreeMap[java.lang.Long, Array[Byte]]
  private val read = new Array[Byte](rows.valueBytes)
  private val runs = mutable.ArrayBuffer.empty[Run]

  override def begin(): Unit = changes.clear()

  override def update(key: Long, seed: Long): Unit = {
    runs.reverseIterator.exists(_.get(key, read))
    rows.set(key, seed)
    changes.put(key, rows.value.getBytes)
  }

  override def commit(): Unit = {
    val run = new RunWriter(changes.size)
    changes.forEach((key, value) => run.put(key, value))
    runs += run.end()
    while (tiers.lastOption.exists(_.size >= Width)) {
      val merged = tiers.last
      runs.dropRightInPlace(merged.size)
      runs += merge(merged)
    }
  }

  /** The runs, oldest first, in groups of about one size. */
  private def tiers: Seq[Seq[Run]] =
    runs.toSeq.foldLeft(Vector.empty[Vector[Run]]) { (groups, run) =>
      if (groups.lastOption.exists(_.head.count < run.count * Width)) {
        groups.init :+ (groups.last :+ run)
      } else {
        groups :+ Vector(run)
      }
    }

  private def merge(merged: Seq[Run]): Run = {
    val into = new RunWriter(merged.map(_.count).sum)
    val cursors = merged.map(new Cursor(_))
    val bytes = new Array[Byte](rows.valueBytes)
    while (cursors.exists(!_.isAtEnd)) {
      val key = cursors.filterNot(_.isAtEnd).map(_.key).min
      val withKey = cursors.filter(cursor => !cursor.isAtEnd && cursor.key == key)
      withKey.last.value(bytes)
      into.put(key, bytes)
      withKey.foreach(_.advance())
    }
    into.end()
  }

  private final class Cursor(run: Run) {
    private var index = 0L
    def isAtEnd: Boolean = index == run.count
    def key: Long = run.keyAt(index)
    def value(into: Array[Byte]): Unit = run.valueAt(index, into)
    def advance(): Unit = index += 1
  }

  private final class Run(chunks: Seq[ByteBuffer], val count: Long, filter: SketchOfKeys) {
    private val chunksByNumber = chunks.toArray

    def keyAt(index: Long): Long =
      chunksByNumber((index / chunkRecords).toInt).getLong(
        (index % chunkRecords).toInt * recordBytes)

    def valueAt(index: Long, into: Array[Byte]): Unit =
      chunksByNumber((index / chunkRecords).toInt).get(
        (index % chunkRecords).toInt * recordBytes + 8, into)

    def get(key: Long, into: Array[Byte]): Boolean = filter.mightContainLong(key) && {
      var low = 0L
      var high = count - 1
      while (low < high) {
        val middle = (low + high) >>> 1
        if (keyAt(middle) < key) low = middle + 1 else high = middle
      }
      val isThere = keyAt(low) == key
      if (isThere) valueAt(low, into)
      isThere
    }
  }

  private def chunkRecords: Long = ChunkBytes / recordBytes

  private final class RunWriter(expected: Long) {
    private val channel = FileChannel.open(
      Files.createTempFile(directory, "run", ""), StandardOpenOption.READ, StandardOpenOption.WRITE,
      StandardOpenOption.DELETE_ON_CLOSE)
    private val filter = SketchOfKeys.create(math.max(expected, 1L), 0.01)
    private val buffer = ByteBuffer.allocateDirect((WriteBytes / recordBytes) * recordBytes)
    private var count = 0L

    def put(key: Long, value: Array[Byte]): Unit = {
      buffer.putLong(key).put(value)
      filter.putLong(key)
      count += 1
      if (!buffer.hasRemaining) flush()
    }

    private def flush(): Unit = {
      buffer.flip()
      while (buffer.hasRemaining) channel.write(buffer)
      buffer.clear()
    }

    def end(): Run = {
      flush()
      val bytes = count * recordBytes
      val chunkBytes = chunkRecords * recordBytes
      val chunks = (0L until bytes by chunkBytes).map(from =>
        channel.map(FileChannel.MapMode.READ_ONLY, from, math.min(chunkBytes, bytes - from)))
      channel.close()
      new Run(chunks, count, filter)
    }
  }
}

private object StateOfSortedRuns {
  private val Width = 8
  private val ChunkBytes = 1L << 30
  private val WriteBytes = 1 << 20
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
      case "sorted_runs" => new StateOfSortedRuns(words, directory)
    }
  }
}
