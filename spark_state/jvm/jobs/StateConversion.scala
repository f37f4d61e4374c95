package org.apache.spark.sql.execution.streaming.state.cowstate.jobs

import java.io.FileNotFoundException

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileStatus, FileSystem, Path}
import org.json4s.{DefaultFormats, Formats}
import org.json4s.jackson.JsonMethods

import org.apache.spark.TaskContext
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider
import org.apache.spark.sql.execution.streaming.state.cowstate.base.{
  CowStateConf, CowStateException, HdfsStateFile, StateFileName, StateId, StoreShape
}
import org.apache.spark.sql.execution.streaming.state.cowstate.checkpoints.{
  QueryPartitions, StateCheckpoints, StateFileContent
}
import org.apache.spark.sql.execution.streaming.state.cowstate.files.{
  HdfsStateFileReader, StateDirectory
}
import org.apache.spark.sql.execution.streaming.state.cowstate.gateway.{
  GatewayObjects, GatewayStateDirectory, PlacedStateDirectory, StateMarker, StatePlaces
}
import org.apache.spark.sql.execution.streaming.state.cowstate.provider.WholeAttempts
import org.apache.spark.sql.execution.streaming.state.cowstate.spark.OfSpark
import org.apache.spark.util.SerializableConfiguration

/** Store of a checkpoint. `unique`: id of its state in checkpoint format 2. */
final case class StoreToConvert(
    operator: Long, partition: Int, store: String, prefixColumns: Int, unique: Option[String])

/**
 * Order of `cowstate adopt`: read the state of `version` in each store with one provider, and write
 * the state for another provider.
 *
 * @param scratch  directory for the new files; the job writes nowhere else
 * @param place    empty directory in an object store, if the new files go there instead of to
 *                 `scratch`
 * @param settings settings of the state stores, as in the offset log
 */
final case class ConversionOrder(
    checkpoint: String,
    scratch: String,
    sourceClass: String,
    targetClass: String,
    version: Long,
    settings: Map[String, String],
    stores: Seq[StoreToConvert],
    place: Option[StateMarker] = None)

/**
 * New file, and its place in the checkpoint. In an object store, the file is already in its place,
 * and `to` is the path in the object store.
 */
final case class MovableFile(from: String, to: String)

/** Converted store, or the reason why the conversion failed. */
final case class ConvertedStore(
    store: StoreToConvert,
    rowsRead: Long = 0,
    files: Seq[MovableFile] = Nil,
    error: Option[String] = None) extends StoreOutcome

/**
 * Converts the state of a checkpoint from the files of one provider to the files of another
 * provider, in a Spark job with a task for each store and partition. The job reads and writes
 * through the interfaces of the providers.
 *
 * Each attempt writes into a directory of its own below `scratch` and reads its files back: the
 * rows must be as many as the rows read from the source, with the same bytes.
 */
object StateConversion {
  private implicit val formats: Formats = DefaultFormats
  private val Hdfs = classOf[HDFSBackedStateStoreProvider].getName

  /** Begin the job. Throws CowStateException if a store has no schema, or no usable schema. */
  def start(session: SparkSession, orderJson: String): StoreJob[ConvertedStore] = {
    val order = JsonMethods.parse(orderJson).extract[ConversionOrder]
    val hadoopConf = CheckpointStores.hadoopConfOf(session)
    val schemas = order.stores.map(s => (s.operator, s.store)).distinct.map(key =>
      key -> CheckpointStores.schemaOf(order.checkpoint, key._1, key._2, hadoopConf)).toMap
    val tasks = order.stores.map { store =>
      val (key, value) = schemas((store.operator, store.store))
      (store, StoreShape(key, value, store.prefixColumns))
    }
    val storeConf = CheckpointStores.storeConfOf(session, order.settings)
    val broadcastConf = session.sparkContext.broadcast(new SerializableConfiguration(hadoopConf))
    val withoutStores = order.copy(stores = Nil)
    StoreJob.submit(
      session.sparkContext.parallelize(tasks, math.max(tasks.size, 1)), tasks.size) { rows =>
      rows.map { case (store, shape) =>
        new StoreConversion(withoutStores, store, shape, storeConf,
          broadcastConf.value.value).run()
      }.toSeq
    }
  }

  /**
   * List the files below a directory, one file in a line: bytes, time of the last change, path
   * relative to `directory`. Empty if there is no such directory.
   */
  def listFiles(session: SparkSession, directory: String): String = {
    val (fs, root) = qualified(session, directory)
    val text = new StringBuilder
    try {
      filesBelow(fs, root).foreach { file =>
        val name = root.toUri.relativize(file.getPath.toUri).getPath
        text.append(s"${file.getLen}\t${file.getModificationTime}\t$name\n")
      }
    } catch { case _: FileNotFoundException if !fs.exists(root) => () }
    text.toString
  }

  /**
   * Return all files below a directory. An object store lists all files at once. With such a
   * listing, the local file system of Hadoop would start a process for each file to find the owner:
   * so directories of a local file system are listed one by one.
   */
  private def filesBelow(fs: FileSystem, directory: Path): Iterator[FileStatus] =
    if (fs.getScheme == "file") {
      fs.listStatus(directory).iterator.flatMap { status =>
        if (status.isDirectory) filesBelow(fs, status.getPath) else Iterator(status)
      }
    } else {
      val files = fs.listFiles(directory, true)
      Iterator.continually(files).takeWhile(_.hasNext).map(_.next())
    }

  private def qualified(session: SparkSession, path: String): (FileSystem, Path) = {
    val asked = new Path(path)
    val fs = asked.getFileSystem(session.sessionState.newHadoopConf())
    (fs, fs.makeQualified(asked))
  }

  private[cowstate] def isHdfs(providerClass: String): Boolean = providerClass == Hdfs
}

/** Converts one store, inside a task. */
private final class StoreConversion(
    order: ConversionOrder,
    store: StoreToConvert,
    shape: StoreShape,
    storeConf: StateStoreConf,
    hadoopConf: Configuration) {
  private val task = TaskContext.get()
  private val scratch = s"${order.scratch}/${task.taskAttemptId()}"
  private val inPlace = idIn(s"${order.checkpoint}/state").storeCheckpointLocation()
  private val inScratch = idIn(scratch).storeCheckpointLocation()
  private val toHdfs = StateConversion.isHdfs(order.targetClass)
  private val path = StatePlaces.pathOf(idIn(scratch))
  private val inStore = order.place.map { place =>
    val objects = new GatewayObjects(
      CowStateConf(storeConf).store.at(place.url, place.directory))
    new GatewayStateDirectory(objects, path, None)
  }

  def run(): ConvertedStore =
    try {
      val unique =
        store.unique.map(StateId.uniqueOf).orElse(keptUnique).getOrElse(StateId.newUnique())
      // The provider finds the files by this marker when it reads the files back.
      order.place.foreach(StateMarker.create(new Path(scratch), hadoopConf, _))
      val read =
        withStore(order.sourceClass, s"${order.checkpoint}/state", order.version, store.unique) {
          rows => if (toHdfs) writeHdfs(rows) else writeOwn(rows, unique)
        }
      val scratchVersion = if (toHdfs) HdfsVersion else order.version
      val written = withStore(order.targetClass, scratch, scratchVersion, None)(tallyOf)
      if (written != read) {
        throw new CowStateException(
          s"$inScratch holds other rows than $inPlace: ${written.rows} instead of ${read.rows}")
      }
      ConvertedStore(store, read.rows, newFiles(unique))
    } catch {
      case NonFatal(e) =>
        ConvertedStore(store, error = Some(StoreJob.reasonOf(inPlace.toString, e)))
    }

  /**
   * Return the id that the old files give to the state, for use in the new files. So readers of the
   * old files can continue from the new files. Needed in checkpoint format 1, because Spark names
   * the id only in format 2. None if source and target have different providers. Also None for an
   * adopted state, because the files of another provider have no id.
   */
  private def keptUnique: Option[String] =
    if (order.sourceClass != order.targetClass) None
    else {
      val source = idIn(s"${order.checkpoint}/state")
      val directoryOf =
        new PlacedStateDirectory(_: StateStoreId, CowStateConf(storeConf).store, hadoopConf)
      val partitions = new QueryPartitions(source.checkpointRootLocation, hadoopConf)
      val files = checkpointsIn(directoryOf(source)).list().dealtOut(order.version, partitions.at)
      new WholeAttempts(source, directoryOf(_).list())
        .stateAt(order.version, None, files).map(_.unique).filterNot(_ == StateId.Adopted)
    }

  /** Version of the converted state in Spark's HDFS provider, whose store was empty before. */
  private val HdfsVersion = 1L

  private def idIn(root: String): StateStoreId =
    StateStoreId(root, store.operator, store.partition, store.store)

  private def open(providerClass: String, root: String): StateStoreProvider =
    CheckpointStores.open(providerClass, idIn(root), shape, storeConf, hadoopConf)

  private def withStore[T](
      providerClass: String, root: String, version: Long, unique: Option[String])(
      f: Iterator[UnsafeRowPair] => T): T = {
    val provider = open(providerClass, root)
    try {
      val opened = provider.getReadStore(version, unique)
      try f(opened.iterator())
      finally opened.release()
    } finally provider.close()
  }

  private def tallyOf(rows: Iterator[UnsafeRowPair]): StateTally =
    rows.foldLeft(StateTally()) { (tally, pair) =>
      task.killTaskIfInterrupted()
      tally.plus(pair.key, pair.value)
    }

  private def tallied(rows: Iterator[UnsafeRowPair])(f: UnsafeRowPair => Unit): StateTally =
    tallyOf(rows.map { pair =>
      f(pair)
      pair
    })

  private def writeHdfs(rows: Iterator[UnsafeRowPair]): StateTally = {
    val provider = open(order.targetClass, scratch)
    try {
      val target = OfSpark.storeWithSnapshot(provider, HdfsVersion - 1)
      val read = tallied(rows)(pair => target.put(pair.key, pair.value))
      target.commit()
      read
    } finally provider.close()
  }

  private def writeOwn(rows: Iterator[UnsafeRowPair], unique: String): StateTally = {
    val there = inStore.getOrElse(StateDirectory.of(inPlace, hadoopConf))
    val written = inStore.getOrElse(StateDirectory.of(inScratch, hadoopConf))
    val generation = checkpointsIn(there).list().nextGeneration
    val state = StateId(order.version, unique)
    val file = checkpointsIn(written).create(
      StateFileName.ofSnapshot(state, generation, StateId.newUnique()))
    try {
      val read = tallied(rows)(pair => file.rows.put(pair.key, pair.value))
      file.commit()
      read
    } catch {
      case e: Throwable =>
        file.cancel()
        throw e
    }
  }

  private def checkpointsIn(directory: StateDirectory): StateCheckpoints = {
    new StateCheckpoints(
      directory, new HdfsStateFileReader(inPlace, hadoopConf, storeConf.compressionCodec),
      StateFileContent(shape.keySchema, shape.valueSchema))
  }

  /**
   * Return the new files. For the HDFS provider, return only the snapshot, because the delta holds
   * changes upon an empty store.
   */
  private def newFiles(unique: String): Seq[MovableFile] = inStore match {
    case Some(directory) =>
      directory.list().flatMap(StateFileName.parse).filter(_.unique == unique).map { name =>
        MovableFile(s"${directory.url}/$name", s"$path/$name")
      }
    case None => filesInScratch()
  }

  private def filesInScratch(): Seq[MovableFile] = {
    val fs = inScratch.getFileSystem(hadoopConf)
    val written = HdfsStateFile(HdfsVersion, isSnapshot = true).toString
    val wanted = HdfsStateFile(order.version, isSnapshot = true).toString
    fs.listStatus(inScratch).toSeq.map(_.getPath.getName).flatMap { name =>
      val target =
        if (!toHdfs) Option.when(StateFileName.parse(name).isDefined)(name)
        else Option.when(name.startsWith(written))(wanted + name.stripPrefix(written))
      target.map(n =>
        MovableFile(new Path(inScratch, name).toString, new Path(inPlace, n).toString))
    }
  }
}
