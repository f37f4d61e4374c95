package org.apache.spark.sql.execution.streaming.state.cowstate.checkpoints

import java.io.Closeable
import java.util

import scala.annotation.tailrec
import scala.collection.mutable
import scala.util.Using

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.cowstate.base.{
  CowStateCorruptException, CowStateMissingException, HdfsStateFile, StateFileName, StoreShape
}
import org.apache.spark.sql.execution.streaming.state.cowstate.bytes.RowChecksums
import org.apache.spark.sql.execution.streaming.state.cowstate.files.{
  ArrowRowsReader, ArrowRowsWriter, HdfsStateFileReader, StateDirectory, StateFileBatch,
  StateFileInput, StateFileMetadata
}
import org.apache.spark.sql.execution.streaming.state.cowstate.map.{
  CopyOnWritePagedMap, KeyIndex, MapView, Prefetches
}
import org.apache.spark.sql.execution.streaming.state.cowstate.memory.MemoryAccount
import org.apache.spark.sql.types.StructType

/**
 * Description of the content of a store's files.
 *
 * @param owner name of the store, for errors about rows
 */
final case class StateFileContent(
    keySchema: StructType,
    valueSchema: StructType,
    checksums: RowChecksums = RowChecksums.Off,
    owner: String = "") {
  /** The schemas as the metadata of files has them. */
  val packedSchemas: String = StateFileMetadata.packed(keySchema, valueSchema)
}

/**
 * Checkpoints of one store: writes changelogs and snapshots, finds the files of a state, and reads
 * the files with all cores.
 *
 * @param syncsChanges true if a changelog survives a power failure as soon as the commit returns.
 *                     Snapshots and merged files always survive, because the files that they
 *                     replace are deleted
 */
final class StateCheckpoints(
    val directory: StateDirectory,
    adopted: HdfsStateFileReader,
    content: StateFileContent,
    syncsChanges: Boolean = true) {
  import StateCheckpoints._
  import content._

  /** List the files in the directory. */
  def list(): StateFiles = {
    val names = directory.list()
    new StateFiles(
      names.flatMap(StateFileName.parse), new HdfsStateFiles(names.flatMap(HdfsStateFile.parse)))
  }

  /** Return a file to write. The file is created with the first bytes. */
  def create(name: StateFileName): PendingStateFile = create(name, () => name)

  /**
   * Return a file to write. `named` returns the name of the file, and is called just before the
   * first bytes are written. `like` is the name expected now; only the generation may still change.
   */
  def create(like: StateFileName, named: () => StateFileName): PendingStateFile =
    new PendingStateFile(
      () => directory.create(named().toString, isDurable = syncsChanges || !like.isChangelog),
      headerOf(like), checksums)

  private def headerOf(name: StateFileName): Seq[(String, String)] =
    StateFileMetadata.header(name, packedSchemas) ++
      name.rescale.toSeq.flatMap { rescale =>
        Seq(Former -> rescale.former.toString, Partitions -> rescale.partitions.toString)
      }

  /** Write a view as the snapshot of a state. */
  def writeSnapshot(name: StateFileName, view: MapView): FileSize = written(name) { rows =>
    view.foreach { walk =>
      walk.verify()
      rows.put(walk.base, walk.keyOffset, walk.keyLength, walk.valueLength, walk.checksum)
    }
  }

  /** Write a file of the rows that `f` puts. Returns the size of the file. */
  private def written(name: StateFileName)(f: ArrowRowsWriter => Unit): FileSize = {
    val file = create(name)
    try {
      f(file.rows)
      file.commit()
      FileSize(file.rows.writtenBytes, file.rows.rowBytes)
    } catch {
      case e: Throwable =>
        file.cancel()
        throw e
    }
  }

  /**
   * Merge consecutive files of changes into one file. The rows are on the heap meanwhile, charged
   * to `account`. The rows may take a quarter of the memory left to the executor's states, so that
   * batches can go on. Returns None, and writes no file, if the rows need more.
   */
  def merge(files: Seq[StateFileName], into: StateFileName, account: MemoryAccount)
      : Option[FileSize] = {
    val last = new util.LinkedHashMap[UnsafeRow, (UnsafeRow, Int)]
    val mostBytes = account.permittedBytes / 4
    var bytes = 0L
    try {
      val fit = Using.resource(batches(files))(_.forall { case (_, batch) =>
        val more = batch.rowBytes + batch.rows * BytesOfMergedRow
        val fits = bytes + more <= mostBytes
        if (fits) {
          account.grant(more)
          bytes += more
          for (row <- 0 until batch.rows) {
            val (key, value) = rowOf(batch, row)
            val checksum = batch.carried.map(_(row)).getOrElse(checksums.of(key, value))
            last.put(key, (value, checksum))
          }
        }
        fits
      })
      Option.when(fit)(written(into) { rows =>
        last.forEach { case (key, (value, checksum)) =>
          if (value == null) rows.remove(key) else rows.put(key, value, checksum)
        }
      })
    } finally account.release(bytes)
  }

  /** Read the files of a lineage into an empty map, in order. Returns the sizes of the files. */
  def restore(lineage: Lineage, map: CopyOnWritePagedMap): Seq[(StateFileName, FileSize)] = {
    val key = new UnsafeRow(keySchema.length)
    val value = new UnsafeRow(valueSchema.length)
    val hashes = new Array[Int](Prefetches.Window)
    lineage.adopted.foreach { file =>
      adopted.foreach(file, map.checksums) { (key, value) =>
        if (value == null) map.remove(key, null) else map.put(key, value, null)
      }
    }
    val sizes = mutable.LinkedHashMap.empty[StateFileName, FileSize]
    val onFile = (file: OpenFile) => {
      if (sizes.isEmpty) map.reserve(expectedEntries(lineage.files, file))
      sizes(file.name) = FileSize(file.input.length, 0)
    }
    foreachBatch(lineage.files, onFile) { (name, batch) =>
      sizes(name) = sizes(name).withRows(batch.rowBytes)
      val checksumOf = batch.carried.getOrElse((_: Int) => map.checksums.of(key, value))
      var from = 0
      while (from < batch.rows) {
        val count = math.min(hashes.length, batch.rows - from)
        var i = 0
        while (i < count) {
          batch.pointToKey(from + i, key)
          hashes(i) = KeyIndex.hashOf(key)
          i += 1
        }
        // Take the lock here once: each call below takes the lock again, which is cheap for the
        // owner.
        map.synchronized {
          map.prefetch(hashes, count)
          i = 0
          while (i < count) {
            val row = from + i
            batch.pointToKey(row, key)
            val present = batch.pointToValue(row, value)
            if (name.isSnapshot) map.add(key, hashes(i), value, checksumOf(row))
            else if (present) map.put(key, hashes(i), value, checksumOf(row), null)
            else map.remove(key, null)
            i += 1
          }
        }
        from += count
      }
    }
    map.trim()
    sizes.toSeq
  }

  /**
   * Estimate the number of entries after a restore from `files`; `first` is the first file. For a
   * snapshot, the estimate is the number of its rows. For changelogs, the estimate assumes that no
   * key comes twice, and that all rows are equally long.
   */
  private def expectedEntries(files: Seq[StateFileName], first: OpenFile): Long =
    if (first.name.isSnapshot || files.size == 1) first.reader.rows
    else {
      val bytes = directory.lengths(files.map(_.toString)).values.sum
      (first.reader.rows.toDouble * bytes / first.input.length).toLong
    }

  /** Call `f` with each record batch of the files, in order. Other threads read ahead. */
  private def foreachBatch(
      files: Seq[StateFileName], onFile: OpenFile => Unit)(
      f: (StateFileName, StateFileBatch) => Unit): Unit =
    Using.resource(new Batches(files, onFile))(_.foreach(f.tupled))

  /**
   * Return the record batches of the files, in order. Other threads read ahead until the iterator
   * is closed.
   */
  def batches(files: Seq[StateFileName]): Iterator[(StateFileName, StateFileBatch)] with Closeable =
    new Batches(files, _ => ())

  private final class Batches(files: Seq[StateFileName], onFile: OpenFile => Unit)
    extends Iterator[(StateFileName, StateFileBatch)] with Closeable {
    private val opened = new ReadAhead[OpenFile](
      files.iterator.map(name => () => openFile(name)), _.input.close())
    private var open = Option.empty[OpenFile]
    private var groups = new ReadAhead[Seq[StateFileBatch]](Iterator.empty, _ => ())
    private var batches = Iterator.empty[StateFileBatch]

    @tailrec
    override def hasNext: Boolean =
      batches.hasNext || {
        closeFile()
        opened.hasNext && {
          val file = opened.next()
          open = Some(file)
          onFile(file)
          val reader = file.reader
          groups = new ReadAhead(
            reader.groupsFrom(file.first.size).map(group => () => reader.batches(group).toSeq),
            _ => ())
          batches = file.first.iterator ++ groups.flatten
          hasNext
        }
      }

    override def next(): (StateFileName, StateFileBatch) = {
      if (!hasNext) throw new NoSuchElementException
      (open.get.name, batches.next())
    }

    private def closeFile(): Unit = {
      groups.close()
      open.foreach(_.input.close())
      open = None
    }

    override def close(): Unit = {
      closeFile()
      opened.close()
    }
  }

  /**
   * True if a snapshot or merged file is whole, so that the files that it replaces may be deleted.
   * A merged file is read to the end, because after the deletion no other file has the changes. Of
   * a snapshot only the footer is read: a truncated snapshot has no footer, and if the rows of a
   * snapshot are damaged, the previous snapshot is still there.
   */
  def isWhole(name: StateFileName): Boolean =
    try {
      if (name.isMerged) foreachBatch(Seq(name), _ => ())((_, _) => ())
      else openFile(name).input.close()
      true
    } catch { case _: CowStateCorruptException | _: CowStateMissingException => false }

  private def openFile(name: StateFileName): OpenFile = {
    val input = directory.open(name.toString)
    try {
      val reader = new ArrowRowsReader(input, s"${directory.url}/$name", owner)
      check(name, reader)
      val first = reader.groupsFrom(0).nextOption()
      new OpenFile(name, input, reader, first.toSeq.flatMap(reader.batches(_)))
    } catch {
      case e: Throwable =>
        input.close()
        throw e
    }
  }

  private def check(name: StateFileName, reader: ArrowRowsReader): Unit = {
    val header = headerOf(name)
    val expected = header.toMap
    val keys = header.map(_._1).filterNot(_ == StateFileMetadata.Schemas)
    keys.find(key => !reader.metadata.get(key).contains(expected(key))).foreach { key =>
      throw new CowStateCorruptException(s"${directory.url}/$name",
        s"it says ${key.stripPrefix("cowstate.")} = " +
          s"${reader.metadata.getOrElse(key, "nothing")}, its name ${expected(key)}")
    }
  }

  /** Return the rows of a file, for a change feed: key, value (null: removed). */
  def rowsOf(name: StateFileName): Iterator[(UnsafeRow, UnsafeRow)] = {
    val file = openFile(name)
    val batches = Using.resource(file.input) { _ =>
      file.first ++ file.reader.groupsFrom(file.first.size).flatMap(file.reader.batches(_))
    }
    batches.iterator.flatMap { batch =>
      Iterator.range(0, batch.rows).map(rowOf(batch, _))
    }
  }

  /** Return the rows of a delta of an adopted checkpoint: key, value (null: removed). */
  def adoptedRowsOf(delta: HdfsStateFile, shape: StoreShape): Seq[(UnsafeRow, UnsafeRow)] =
    adopted.rowsOf(delta, shape)

  /** Return a row that shares the batch's bytes: key, value (null: removed). */
  private def rowOf(batch: StateFileBatch, row: Int): (UnsafeRow, UnsafeRow) = {
    val key = new UnsafeRow(keySchema.length)
    val value = new UnsafeRow(valueSchema.length)
    batch.pointToKey(row, key)
    (key, if (batch.pointToValue(row, value)) value else null)
  }
}

object StateCheckpoints {
  /** Metadata of rescaled files: the numbers of partitions before and after. */
  private val Former = "cowstate.former_partitions"
  private val Partitions = "cowstate.partitions"

  /** Bytes of a row in the map of a merge, beyond the bytes of key and value. */
  private val BytesOfMergedRow = 200L

  private final class OpenFile(
      val name: StateFileName,
      val input: StateFileInput,
      val reader: ArrowRowsReader,
      val first: Seq[StateFileBatch])
}
