package org.apache.spark.sql.execution.streaming.state.cowstate

import java.io.Closeable
import java.util

import scala.annotation.tailrec
import scala.collection.mutable
import scala.util.Using

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.types.StructType

/**
 * What the files of a store hold.
 *
 * @param codec as Spark names it
 * @param owner whose rows they are, for errors of rows
 */
final case class StateFileContent(
    keySchema: StructType,
    valueSchema: StructType,
    codec: String,
    checksums: RowChecksums = RowChecksums.Off,
    owner: String = "")

/**
 * The checkpoints of one store: writes changelogs and snapshots, finds what a state is made of, and
 * reads it with all cores.
 *
 * @param syncsChanges whether changelogs outlive a power failure as soon as they are committed.
 *                     Other files always do: the files that they stand for are deleted
 */
final class StateCheckpoints(
    val directory: StateDirectory,
    adopted: HdfsStateFileReader,
    content: StateFileContent,
    syncsChanges: Boolean = true) {
  import StateCheckpoints._
  import content._

  /** What is in the directory now. */
  def list(): StateFiles = {
    val names = directory.list()
    new StateFiles(
      names.flatMap(StateFileName.parse), new HdfsStateFiles(names.flatMap(HdfsStateFile.parse)))
  }

  /** A file, begun when its first bytes are to be written. */
  def create(name: StateFileName): PendingStateFile = create(name, () => name)

  /** The same; `named` tells then which name it has, of another generation perhaps. */
  def create(like: StateFileName, named: () => StateFileName): PendingStateFile =
    new PendingStateFile(
      () => directory.create(named().toString, isDurable = syncsChanges || !like.isChangelog),
      codec, headerOf(like), checksums)

  private def headerOf(name: StateFileName): Seq[(String, String)] =
    StateFileMetadata.header(name, keySchema, valueSchema) ++
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

  /** Write a file of the rows that `f` puts; returns its size. */
  private def written(name: StateFileName)(f: StateFileWriter => Unit): FileSize = {
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
   * Write one file with the outcome of files of changes, each of which is upon the one before it.
   * Their rows are in the heap meanwhile, charged to `account`. They may take a quarter of what the
   * executor's state may still take, so that batches go on; None, and no file, if they need more.
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

  /** Read the files of a lineage into an empty map, in order; returns their sizes. */
  def restore(lineage: Lineage, map: CopyOnWritePagedMap): Seq[(StateFileName, FileSize)] = {
    val key = new UnsafeRow(keySchema.length)
    val value = new UnsafeRow(valueSchema.length)
    val hashes = new Array[Int](Prefetches.Window)
    lineage.adopted.foreach(adopted(_, map))
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
        // Each call takes the lock, which costs less for who has it.
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
   * How many entries a restore from files may end with; `first` is the first of them. A snapshot
   * has its entries; changelogs count as if no key came twice and all their rows were equally long.
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

  /** The record batches of the files, in order. Other threads read ahead until it is closed. */
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
   * Whether a file may stand for others. One that was cut has no footer. A merged file is read to its
   * end: nothing else has the changes of the files that were merged. Behind a snapshot is another one.
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
      val reader = new StateFileReader(input, s"${directory.url}/$name", owner)
      check(name, reader)
      val first = reader.groupsFrom(0).nextOption()
      new OpenFile(name, input, reader, first.toSeq.flatMap(reader.batches(_)))
    } catch {
      case e: Throwable =>
        input.close()
        throw e
    }
  }

  private def check(name: StateFileName, reader: StateFileReader): Unit = {
    val header = headerOf(name)
    val expected = header.toMap
    val keys = header.map(_._1)
      .filterNot(key => key == StateFileMetadata.KeySchema || key == StateFileMetadata.ValueSchema)
    keys.find(key => !reader.metadata.get(key).contains(expected(key))).foreach { key =>
      throw new CowStateCorruptException(s"${directory.url}/$name",
        s"it says ${key.stripPrefix("cowstate.")} = " +
          s"${reader.metadata.getOrElse(key, "nothing")}, its name ${expected(key)}")
    }
  }

  /** The rows of one file, for a change feed: key, value (null: removed). */
  def rowsOf(name: StateFileName): Iterator[(UnsafeRow, UnsafeRow)] = {
    val file = openFile(name)
    val batches = Using.resource(file.input) { _ =>
      file.first ++ file.reader.groupsFrom(file.first.size).flatMap(file.reader.batches(_))
    }
    batches.iterator.flatMap { batch =>
      Iterator.range(0, batch.rows).map(rowOf(batch, _))
    }
  }

  /** The rows of a delta of an adopted checkpoint: key, value (null: removed). */
  def adoptedRowsOf(delta: HdfsStateFile, shape: StoreShape): Seq[(UnsafeRow, UnsafeRow)] =
    adopted.rowsOf(delta, shape)

  /** A row, which shares the batch's bytes: key, value (null: removed). */
  private def rowOf(batch: StateFileBatch, row: Int): (UnsafeRow, UnsafeRow) = {
    val key = new UnsafeRow(keySchema.length)
    val value = new UnsafeRow(valueSchema.length)
    batch.pointToKey(row, key)
    (key, if (batch.pointToValue(row, value)) value else null)
  }
}

object StateCheckpoints {
  /** In rescaled files: how many partitions the query had, and how many it has. */
  private val Former = "cowstate.former_partitions"
  private val Partitions = "cowstate.partitions"

  /** In the map of a merge, beside the row's own bytes. */
  private val BytesOfMergedRow = 200L

  private final class OpenFile(
      val name: StateFileName,
      val input: StateFileInput,
      val reader: StateFileReader,
      val first: Seq[StateFileBatch])
}
