package org.apache.spark.sql.execution.streaming.state.cowstate.checkpoints

import java.io.Closeable

import org.apache.spark.memory.TaskMemoryManager
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.cowstate.base.{
  CowStateException, StateFileName, StoreShape
}
import org.apache.spark.sql.execution.streaming.state.cowstate.bytes.RowChecksums
import org.apache.spark.sql.execution.streaming.state.cowstate.files.StateFileBatch
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.map.BytesToBytesMap

/**
 * Rows of a state, read from the state's files one after another. The state is not held in memory.
 *
 * If the files of changes have several rows for a key, only the last row counts. A row of the
 * snapshot counts if no file of changes has its key. So the files of changes are read twice: first
 * to note the place of the last row of each key, then, together with the snapshot, to return the
 * rows that count. If the noted keys take more than `mostBytes`, the keys are divided by hash into
 * 2, 4, 8 or more parts. The files are then read in this way for one part after another.
 *
 * The rows share the buffers of the files: a row is valid until the next row is requested.
 *
 * @param mostBytes limit for the keys of the changes, in bytes
 */
private[cowstate] final class FoldedRows(
    checkpoints: StateCheckpoints,
    lineage: Lineage,
    shape: StoreShape,
    checksums: RowChecksums,
    memory: TaskMemoryManager,
    mostBytes: Long) extends Iterator[FoldedRow] with Closeable {
  assert(lineage.adopted.isEmpty, "files of another provider are applied to a map")

  private val row = new FoldedRow(new UnsafeRow(shape.keyFields), new UnsafeRow(shape.valueFields))
  private var part = HashPart(0, 1)
  private var places = new LastPlaces(memory, mostBytes)
  private var batches = batchesOf(Nil)
  private var batch: StateFileBatch = _
  private var isSnapshot = false
  private var index = 0
  private var place = 0L
  private var isBegun = false

  /** Number of parts into which the keys are divided by hash; 1 if all keys fit into the memory. */
  def parts: Int = part.count

  private def batchesOf(files: Seq[StateFileName]) = checkpoints.batches(files)

  override def hasNext: Boolean = {
    if (!isBegun) beginPart()
    while (!atRow()) {
      if (!nextBatch()) {
        if (part.isLast) return false
        part = part.next
        beginPart()
      }
    }
    true
  }

  override def next(): FoldedRow = {
    if (!hasNext) throw new NoSuchElementException
    index += 1
    row
  }

  private def beginPart(): Unit = {
    isBegun = true
    while (!notePlaces()) part = half(part)
    batches = batchesOf(lineage.changes ++ lineage.snapshot)
    batch = null
    place = 0
  }

  private def half(part: HashPart): HashPart = {
    if (part.count >= FoldedRows.MostParts) {
      throw new CowStateException(
        s"${checkpoints.directory.url}: $mostBytes bytes of memory are too few to read its changes. " +
          "Raise spark.executor.memory, or spark.driver.memory with a local master")
    }
    part.half
  }

  /**
   * Note the place of the last row of each changed key in the current part of the hashes. Returns
   * false if the changed keys of the part exceed the memory.
   */
  private def notePlaces(): Boolean = {
    places.close()
    places = new LastPlaces(memory, mostBytes)
    var at = 0L
    val reading = batchesOf(lineage.changes)
    try reading.forall { case (_, rows) =>
        val isNoted = (0 until rows.rows).forall { i =>
          rows.pointToKey(i, row.key)
          val hash = row.key.hashCode
          !part.has(hash) || places.put(row.key, hash, at + i)
        }
        at += rows.rows
        isNoted
      }
    finally reading.close()
  }

  private def nextBatch(): Boolean = {
    if (batch != null && !isSnapshot) place += batch.rows
    batch = null
    batches.hasNext && {
      val (name, rows) = batches.next()
      isSnapshot = name.isSnapshot
      batch = rows
      index = 0
      true
    }
  }

  /**
   * Go to the next row that counts within the record batch. Returns false at the end of the record
   * batch.
   */
  private def atRow(): Boolean = {
    while (batch != null && index < batch.rows) {
      batch.pointToKey(index, row.key)
      row.keyHash = row.key.hashCode
      if (part.has(row.keyHash) && counts()) return true
      index += 1
    }
    false
  }

  private def counts(): Boolean = {
    val last = places.of(row.key, row.keyHash)
    val isLast = if (isSnapshot) last < 0 else last == place + index
    isLast && batch.pointToValue(index, row.value) && {
      row.checksum = batch.carried.fold(checksums.of(row.key, row.value))(_(index))
      true
    }
  }

  override def close(): Unit = {
    batches.close()
    places.close()
  }
}

private object FoldedRows {
  private val MostParts = 1 << 16
}

/** A row, with its checksum if rows have checksums. */
private[cowstate] final class FoldedRow(val key: UnsafeRow, val value: UnsafeRow) {
  var keyHash: Int = 0
  var checksum: Int = 0
}

/** Part `number` of `count` equal parts of the range of hashes. Hashes are unsigned numbers. */
private[cowstate] final case class HashPart(number: Int, count: Int) {
  def has(hash: Int): Boolean = count == 1 || ((hash & 0xffffffffL) * count >>> 32) == number

  def isLast: Boolean = number == count - 1

  def next: HashPart = copy(number = number + 1)

  def half: HashPart = HashPart(Math.multiplyExact(number, 2), Math.multiplyExact(count, 2))
}

/** Map from keys to places, within the memory of a task. */
private[cowstate] final class LastPlaces(memory: TaskMemoryManager, mostBytes: Long)
  extends Closeable {
  private val map = new BytesToBytesMap(
    memory, LastPlaces.FirstCapacity,
    math.min(memory.pageSizeBytes, math.max(mostBytes / 16, 4096)))
  private val location = new map.Location
  private val bytes = new Array[Byte](8)

  /** Note the place of a key. Returns false if there is no room for another key. */
  def put(key: UnsafeRow, hash: Int, place: Long): Boolean = {
    find(key, hash)
    if (location.isDefined) {
      Platform.putLong(location.getValueBase, location.getValueOffset, place)
      true
    } else {
      Platform.putLong(bytes, Platform.BYTE_ARRAY_OFFSET, place)
      map.getTotalMemoryConsumption <= mostBytes && location.append(
        key.getBaseObject, key.getBaseOffset, key.getSizeInBytes,
        bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length)
    }
  }

  /** Return the place of a key, -1 if the key is absent. */
  def of(key: UnsafeRow, hash: Int): Long = {
    find(key, hash)
    if (location.isDefined) Platform.getLong(location.getValueBase, location.getValueOffset) else -1
  }

  private def find(key: UnsafeRow, hash: Int): Unit =
    map.safeLookup(key.getBaseObject, key.getBaseOffset, key.getSizeInBytes, location, hash)

  override def close(): Unit = map.free()
}

private object LastPlaces {
  private val FirstCapacity = 1 << 10
}
