package org.apache.spark.sql.execution.streaming.state.cowstate

import java.io.OutputStream
import java.nio.file.{Files, Path, Paths}
import java.util.UUID

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.Using

import org.apache.hadoop.conf.Configuration

import org.apache.spark.SparkThrowable
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.unsafe.Platform

/**
 * A provider of one store in a local directory, which does what the lines of a script say, each
 * with one line of result. An error is a result too: its condition, or the name of its class.
 */
final class ProviderScript(root: String) {
  import ScriptedRows._

  private val id = StateStoreId(s"file://$root", 0, 0)
  private val directory = Paths.get(id.storeCheckpointLocation().toUri.getPath)
  private val shaped = shape(withPrefix = false)
  private val written = mutable.Map.empty[String, Long]
  private var provider: CowStateStoreProvider = _
  private var store: StateStore = _
  private var version = 0L
  private var runId: UUID = _

  /** The results of the lines. */
  def run(script: String): String = try {
    script.linesIterator.map { line =>
      try step(line.split(' ').toList) catch {
        case e: CowStateException => s"error ${e.getClass.getSimpleName}"
        case e: SparkThrowable => s"error ${e.getCondition}"
      }
    }.mkString("\n")
  } finally if (provider != null) provider.close()

  private def step(words: List[String]): String = words match {
    case "start" :: settings =>
      if (provider != null) provider.close()
      provider = started(settings.map(_.split('=')).map(pair => pair(0) -> pair(1)))
      ""
    case List("begin") =>
      store = provider.getStore(version, None, forceSnapshotOnCommit = false, loadEmpty = false)
      ""
    case List("put", numbers, text) =>
      numbersOf(numbers).foreach(number => store.put(key(number), value(text), Default))
      ""
    case List("remove", numbers) =>
      numbersOf(numbers).foreach(number => store.remove(key(number), Default))
      ""
    case List("commit") =>
      version = store.commit()
      ""
    case List("abort") =>
      store.abort()
      ""
    case List("maintain") =>
      provider.doMaintenance()
      measured()
    case _ => look(words)
  }

  private def look(words: List[String]): String = words match {
    case List("get", number) => showValue(store.get(key(number.toLong), Default))
    case List("entries") => entries(store.iterator(Default))
    case List("get", at, number) =>
      showValue(provider.getReadStore(at.toLong, None).get(key(number.toLong), Default))
    case List("entries", at) => entries(provider.getReadStore(at.toLong, None).iterator(Default))
    case List("flip", number) =>
      flip(number.toLong)
      ""
    case List("flip-old", number) =>
      val log = HeldBytes.newestUndoLog(state.versions)
      flip(log.firstValues().get(key(number.toLong)))
      ""
    case List("reported") =>
      val run = StateStoreProviderId(id, runId)
      StateStoreProvider.coordinatorRef.flatMap(_.getLatestSnapshotVersionForTesting(run)).mkString
    case List("files", kind) => filesOf(kind).size.toString
    case _ => throw new IllegalArgumentException(words.mkString(" "))
  }

  private val Default = StateStore.DEFAULT_COL_FAMILY_NAME

  private def started(settings: Seq[(String, String)]): CowStateStoreProvider = {
    val conf = new SQLConf
    val all = settings :+ ("stateStore.commitValidation.enabled" -> "false")
    all.foreach { case (key, text) => conf.setConfString(s"spark.sql.streaming.$key", text) }
    val hadoopConf = new Configuration
    runId = UUID.randomUUID
    hadoopConf.set(StreamExecution.RUN_ID_KEY, runId.toString)
    val made = new CowStateStoreProvider
    made.init(
      id, shaped.keySchema, shaped.valueSchema, NoPrefixKeyStateEncoderSpec(shaped.keySchema),
      useColumnFamilies = false, StateStoreConf(conf), hadoopConf, useMultipleValuesPerKey = false,
      None)
    made
  }

  /** "1,5-7" is 1, 5, 6 and 7; "-" is none. */
  private def numbersOf(text: String): Seq[Long] =
    if (text == "-") Nil
    else text.split(',').toSeq.flatMap { part =>
      val ends = part.split('-').map(_.toLong)
      ends.head to ends.last
    }

  private def entries(rows: Iterator[UnsafeRowPair]): String =
    show(rows.map(pair => (pair.key.copy(), pair.value.copy())))

  private def state: LoadedState = store.asInstanceOf[CowStateStore].state

  /** Change a bit of the value of a key where the map holds it. */
  private def flip(number: Long): Unit = {
    val view = state.versions.map.openView()
    val walk = view.cursor()
    val found = new UnsafeRow(KeyFields)
    while (walk.next()) {
      found.pointTo(walk.page, walk.keyOffset, walk.keyLength)
      if (found == key(number)) {
        found.pointTo(walk.page, walk.keyOffset + walk.keyLength, walk.valueLength)
        flip(found)
      }
    }
    view.release()
  }

  private def flip(row: UnsafeRow): Unit = {
    val bytes = row.getBaseObject.asInstanceOf[Array[Byte]]
    val index = (row.getBaseOffset - Platform.BYTE_ARRAY_OFFSET).toInt
    bytes(index) = (bytes(index) ^ 1).toByte
  }

  /**
   * Bytes of all changelogs and of all snapshots that were ever written, of the files that a
   * restore reads, and of what a snapshot of the state takes.
   */
  private def measured(): String = {
    Seq("changelog", "snapshot").flatMap(filesOf).foreach { file =>
      written.getOrElseUpdate(file.getFileName.toString, Files.size(file))
    }
    val names = new StateFiles(filesIn().map(_.getFileName.toString).flatMap(StateFileName.parse))
    val lineage = names.lineageOf(names.stateAt(version, None).get).toOption.get
    val read = lineage.files.map(name => Files.size(directory.resolve(name.toString))).sum
    s"${writtenAs("changelog")} ${writtenAs("snapshot")} $read ${snapshotBytes()}"
  }

  private def writtenAs(kind: String): Long =
    written.collect { case (name, bytes) if name.contains(s".$kind.") => bytes }.sum

  private def snapshotBytes(): Long = {
    val name = StateFileName(version, 1, "00000000000000aa", None)
    val writer = new StateFileWriter(
      () => OutputStream.nullOutputStream(), "lz4",
      StateFileMetadata.header(name, shaped.keySchema, shaped.valueSchema))
    provider.getReadStore(version, None).iterator(Default)
      .foreach(pair => writer.put(pair.key, pair.value))
    writer.finish()
    writer.writtenBytes
  }

  private def filesOf(kind: String): Seq[Path] =
    filesIn().filter(_.getFileName.toString.endsWith(s".$kind.arrow"))

  private def filesIn(): Seq[Path] =
    if (!Files.isDirectory(directory)) Nil
    else Using.resource(Files.list(directory))(_.iterator.asScala.toList)
}
