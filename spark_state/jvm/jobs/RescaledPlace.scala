package org.apache.spark.sql.execution.streaming.state.cowstate.jobs

import java.io.{Closeable, IOException}

import scala.util.Using

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.{SparkEnv, TaskContext}
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.cowstate.CowStateStoreProvider
import org.apache.spark.sql.execution.streaming.state.cowstate.base.{
  CowStateConf, CowStateException, CowStateMissingException, PartitionNumbers, StateFileName,
  StateId, StoreShape
}
import org.apache.spark.sql.execution.streaming.state.cowstate.bytes.RowChecksums
import org.apache.spark.sql.execution.streaming.state.cowstate.checkpoints.{
  FoldedRow, FoldedRows, StateCheckpoints, StateFileContent, StateFiles
}
import org.apache.spark.sql.execution.streaming.state.cowstate.files.{
  HdfsStateFileReader, StateDirectory
}
import org.apache.spark.sql.execution.streaming.state.cowstate.gateway.{
  GatewayObjects, GatewayStateDirectory, ObjectStoreException, PlacedStateDirectory, StateMarker,
  StatePlaces
}
import org.apache.spark.sql.execution.streaming.state.cowstate.provider.WholeAttempts

/** Directory of one partition of a rescaled store: reads the old rows, and writes the new file. */
private[cowstate] final class RescaledPlace(
    order: RescaleOrder,
    store: StoreToRescale,
    shape: StoreShape,
    partition: Int,
    storeConf: StateStoreConf,
    hadoopConf: Configuration) {
  import RescaledPlace._

  private val id = idOf(order, store, partition)
  private val checksums = RowChecksums(storeConf, id.toString)
  private val checkpoints = new StateCheckpoints(
    directoryOf(id, storeConf, hadoopConf),
    new HdfsStateFileReader(
      id.storeCheckpointLocation(), hadoopConf, storeConf.compressionCodec),
    StateFileContent(shape.keySchema, shape.valueSchema, checksums, id.toString))

  private val attempts =
    new WholeAttempts(id, directoryOf(_, storeConf, hadoopConf).list())

  val url: String = checkpoints.directory.url

  def partitionOf(partitions: Int): UnsafeRow => Int =
    StorePartitioning.of(store.operatorName, store.store, shape.keySchema, order.settings)
      .partitionOf(partitions)

  /** Throws CowStateException if a row of this old partition belongs to another partition. */
  def check(belongsTo: Int): Unit = if (belongsTo != partition) {
    throw new CowStateException(
      s"a row belongs to partition $belongsTo by Spark's hash of its key, so the query was " +
        "partitioned in another way, which is not known. To get another number of partitions, " +
        "start the query with a new checkpoint")
  }

  /** Open the rows of the old partition, with their checksums if rows have checksums. */
  def openRows(): Iterator[FoldedRow] with Closeable = {
    val files = oldFiles()
    val state = oldState(files)
    files.lineageOf(state) match {
      case Right(lineage) if lineage.adopted.nonEmpty =>
        new StoreRows(open(), order.version, unique, checksums)
      case Right(lineage) =>
        new FoldedRows(
          checkpoints, lineage, shape, checksums, TaskContext.get().taskMemoryManager(), keyBytes)
      case Left(gap) => throw CowStateMissingException.onTheWay(url, state, gap, Nil)
    }
  }

  private def open(): StateStoreProvider =
    CheckpointStores.open(classOf[CowStateStoreProvider].getName, id, shape, storeConf, hadoopConf)

  private def unique: Option[String] = store.uniques.map(_(partition))

  private def oldFiles(): StateFiles =
    checkpoints.list().dealtOut(order.version, _ => order.from)

  private def oldState(files: StateFiles): StateId =
    attempts.stateAt(order.version, unique, files).getOrElse(
      throw CowStateMissingException.ofVersion(
        url, order.version, unique, files.latestVersion, files.latestOwn.isDefined,
        storeConf.minVersionsToRetain))

  /**
   * Write the file of the new partition. Returns the name of the file, and the tally of its rows.
   */
  def write(rows: ArrivedRows): (StateFileName, StateTally) = {
    if (placeOf(id, hadoopConf).isDefined) PlacedStateDirectory.note(id, hadoopConf)
    val files = oldFiles()
    val base = if (partition < order.from) oldState(files) else StateId.Empty
    val name = StateFileName(
      order.version, files.nextGeneration, StateId.newUnique(), Some(base.unique),
      attempt = Some(order.attempt), rescale = Some(PartitionNumbers(order.from, order.to)))
    val file = checkpoints.create(name)
    try {
      val tally = rows.putInto(file.rows)
      file.commit()
      (name, tally)
    } catch {
      case e: Throwable =>
        file.cancel()
        throw e match {
          case io: IOException if !io.isInstanceOf[ObjectStoreException] =>
            new CowStateException(
              s"$name cannot be written: $io. See to its disk, and run the command again", io)
          case other => other
        }
    }
  }

  /**
   * Read the file back. Throws CowStateException unless the file has the written rows, and each row
   * belongs to this partition.
   */
  def verify(name: StateFileName, written: StateTally): Unit = {
    val belongsTo = partitionOf(order.to)
    val key = new UnsafeRow(shape.keyFields)
    val value = new UnsafeRow(shape.valueFields)
    var read = StateTally()
    Using.resource(checkpoints.batches(Seq(name)))(_.foreach { case (_, batch) =>
      TaskContext.get().killTaskIfInterrupted()
      for (row <- 0 until batch.rows) {
        batch.pointToKey(row, key)
        batch.pointToValue(row, value)
        if (belongsTo(key) == partition) read = read.plus(key, value)
      }
    })
    if (read != written) {
      throw new CowStateException(
        s"$name does not hold the rows of its partition that were written: ${read.rows} instead of " +
          s"${written.rows}")
    }
  }
}

private[cowstate] object RescaledPlace {
  /** Share of a task's memory for the keys of changes. The shuffle needs memory, too. */
  private val MemoryFraction = 0.4

  def idOf(order: RescaleOrder, store: StoreToRescale, partition: Int): StateStoreId =
    StateStoreId(s"${order.checkpoint}/state", store.operator, partition, store.store)

  private def placeOf(id: StateStoreId, hadoopConf: Configuration): Option[StateMarker] =
    StatePlaces.ofReader(new Path(id.checkpointRootLocation), hadoopConf)

  /**
   * Return the directory of a store: in the checkpoint, or in the object store that the
   * checkpoint's marker names. No claim is needed, because no run of the query writes.
   */
  def directoryOf(
      id: StateStoreId, storeConf: StateStoreConf, hadoopConf: Configuration): StateDirectory =
    placeOf(id, hadoopConf) match {
      case Some(place) =>
        val store = CowStateConf(storeConf).store.at(place.url, place.directory)
        new GatewayStateDirectory(new GatewayObjects(store), StatePlaces.pathOf(id), None)
      case None => StateDirectory.of(id.storeCheckpointLocation(), hadoopConf)
    }

  private def keyBytes: Long = {
    val env = SparkEnv.get
    val tasks = env.conf.getInt("spark.executor.cores", Runtime.getRuntime.availableProcessors)
    (env.memoryManager.maxOnHeapStorageMemory * MemoryFraction / math.max(tasks, 1)).toLong
  }
}

/** Iterator over the rows of a store in a loaded provider. */
private final class StoreRows(
    provider: StateStoreProvider,
    version: Long,
    unique: Option[String],
    checksums: RowChecksums)
  extends Iterator[FoldedRow] with Closeable {
  private val store = provider.getReadStore(version, unique)
  private val rows = store.iterator()

  override def hasNext: Boolean = rows.hasNext

  override def next(): FoldedRow = {
    val pair = rows.next()
    val row = new FoldedRow(pair.key, pair.value)
    row.keyHash = pair.key.hashCode
    row.checksum = checksums.of(pair.key, pair.value)
    row
  }

  override def close(): Unit =
    try store.release()
    finally provider.close()
}
