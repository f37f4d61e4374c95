package org.apache.spark.sql.execution.streaming.state.cowstate.scripts

import java.io.{IOException, OutputStream, RandomAccessFile}
import java.nio.file.{Files, Path, Paths}
import java.util.{Properties, UUID}
import java.util.concurrent.{CompletableFuture, TimeUnit}

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.{Try, Using}

import org.apache.hadoop.conf.Configuration

import org.apache.spark.{SparkThrowable, TaskContext, TaskContextImpl}
import org.apache.spark.executor.TaskMetrics
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.cowstate.CowStateStoreProvider
import org.apache.spark.sql.execution.streaming.state.cowstate.base.{
  CowStateException, StateFileName, StateId
}
import org.apache.spark.sql.execution.streaming.state.cowstate.checkpoints.{
  Lineage, LoadedState, StateFiles
}
import org.apache.spark.sql.execution.streaming.state.cowstate.files.{
  ArrowRowsWriter, StateFileMetadata
}
import org.apache.spark.sql.execution.streaming.state.cowstate.map.CopyOnWritePagedMap
import org.apache.spark.sql.execution.streaming.state.cowstate.memory.MemoryAccount
import org.apache.spark.sql.execution.streaming.state.cowstate.provider.{
  CowStateStore, StoresOfRuns
}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.unsafe.Platform
import org.apache.spark.util.TaskCompletionListener

/**
 * A provider of one store in a local directory, which does what the lines of a script say, each
 * with one line of result. An error is a result too: its condition and its cause, or the name of
 * its class.
 * Providers of several executors may share the directory; `attempt` is of the tasks that begin.
 * They are of one run of the query, unless a `new-run` begins; `start` begins one, too. What is
 * `set` holds for executors that are new.
 */
final class ProviderScript(root: String) {
  import ScriptedRows._

  private val id = StateStoreId(s"file://$root", 0, 0)
  private val directory = Paths.get(id.storeCheckpointLocation().toUri.getPath)
  private val shaped = shape(withPrefix = false)
  private val written = mutable.Map.empty[String, Long]
  private val executors = mutable.Map.empty[String, CowStateStoreProvider]
  /** The run that each provider is of. */
  private val runs = mutable.Map.empty[CowStateStoreProvider, String]
  private var settings = Seq.empty[(String, String)]
  private var provider: CowStateStoreProvider = _
  private var store: StateStore = _
  private var reader: ReadStateStore = _
  private var watched: CopyOnWritePagedMap = _
  private var version = 0L
  private var runId = UUID.randomUUID
  private var maintenance: CompletableFuture[Void] = _
  private var full: MemoryAccount = _

  /** The results of the lines. */
  def run(script: String): String = try {
    script.linesIterator.map { line =>
      try step(line.split(' ').toList)
      catch {
        case e @ (_: CowStateException | _: IOException | _: NullPointerException) =>
          s"error ${shown(e)}"
        case e: Exception with SparkThrowable => s"error ${shown(e)}"
      }
    }.mkString("\n")
  } finally {
    TaskContext.unset()
    (executors.values ++ Option(provider)).foreach(_.close())
  }

  private def shown(error: Throwable): String = {
    val what = error match {
      case e: SparkThrowable =>
        (e.getCondition +: Option(error.getCause).toSeq.map(shown)).mkString(" by ")
      case e: IOException => e.getMessage
      case e => e.getClass.getSimpleName
    }
    (what +: error.getSuppressed.toSeq.map(shown)).mkString(", suppressed ")
  }

  private def step(words: List[String]): String = words match {
    case "message" :: words =>
      try step(words)
      catch { case e: Exception => e.getMessage.replace('\n', ' ') }
    case "start" :: words =>
      if (provider != null) provider.close()
      settings = words.map(_.split("=", 2)).map(pair => pair(0) -> pair(1))
      runId = UUID.randomUUID
      provider = started(settings)
      ""
    case List("start-range-scan") =>
      started(Nil, RangeKeyScanStateEncoderSpec(shaped.keySchema, Seq(0)))
      ""
    case List("executor", name) =>
      executors.get(name).foreach(provider = _)
      if (!executors.contains(name)) executors(name) = { provider = started(settings); provider }
      ""
    case List("set", pair) =>
      val (key, text) = pair.splitAt(pair.indexOf('='))
      settings = settings :+ (key -> text.tail)
      ""
    case List("new-run") =>
      runId = UUID.randomUUID
      ""
    case List("attempt", number) =>
      TaskContext.setTaskContext(new TaskContextImpl(
          0, 0, 0, 0, number.toInt, 1, null, new Properties, null, TaskMetrics.empty, 1, Map.empty))
      ""
    case List("begin") => begin(version)
    case List("begin", at) => begin(at.toLong)
    case List("begin-forced") => begin(version, isForced = true)
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
    case _ => hold(words)
  }

  /** What holds memory and locks, and lets go of them. */
  private def hold(words: List[String]): String = words match {
    case List("read", at) =>
      reader = provider.getReadStore(at.toLong, None)
      ""
    case List("open", at) =>
      store = opened(at.toLong)
      ""
    case List("replay", from, to) =>
      reader = provider.replayReadStateFromSnapshot(from.toLong, to.toLong, None, None)
      ""
    case List("reader-entries") => entries(reader.iterator(Default))
    case List("release") =>
      reader.release()
      ""
    case List("end-task") =>
      TaskContext.get().markTaskCompleted(None)
      TaskContext.unset()
      ""
    case List("upgrade", at) =>
      provider.upgradeReadStoreToWriteStore(reader, at.toLong, None)
      ""
    case List("fail-listener") =>
      TaskContext.setTaskContext(new TaskWithoutListeners)
      ""
    case List("is-held-elsewhere") => StoresOfRuns.otherThan(started(Nil).held).isDefined.toString
    case List("close") =>
      provider.close()
      ""
    case List("close-beside-restore", at, file) => closeBesideRestore(at.toLong, file)
    case List("fill-memory") =>
      val account = state.memory.account
      full = new MemoryAccount(Long.MaxValue, "another store")
      full.grant(account.permittedBytes)
      ""
    case List("empty-memory") =>
      full.close()
      ""
    case List("charged") => MemoryAccount.executorBytes.toString
    case List("begin-maintenance") =>
      maintenance = CompletableFuture.runAsync(() => provider.doMaintenance())
      ""
    case List("end-maintenance", file) =>
      Files.delete(Paths.get(file))
      maintenance.join()
      ""
    case List("await-content", file) =>
      while (Files.size(Paths.get(file)) == 0 && !maintenance.isDone) Thread.sleep(10)
      (Files.size(Paths.get(file)) > 0).toString
    case List("maintenance-seconds") =>
      val started = System.nanoTime
      provider.doMaintenance()
      ((System.nanoTime - started) / 1000000000L).toString
    case List("watch") =>
      watched = state.versions.map
      ""
    case List("watched-views") => HeldBytes.openViews(watched).toString
    case List("break", "abort") =>
      HeldBytes.writtenUndoLog(state.versions).close()
      ""
    case List("break", "undo") =>
      HeldBytes.newestUndoLog(state.versions).close()
      ""
    case List("break", "files") =>
      HeldBytes.redirect(store, BrokenDirectory)
      ""
    case List("write-if-due") =>
      provider.doSnapshotMaintenance()
      ""
    case List("clean") =>
      provider.doCleanupMaintenance()
      ""
    case List("bytes", kind) => filesOf(kind).map(Files.size).sum.toString
    case List("damage", kind) =>
      filesOf(kind).foreach { file =>
        val bytes = Files.readAllBytes(file)
        bytes(bytes.length / 2) = (bytes(bytes.length / 2) ^ 1).toByte
        Files.write(file, bytes)
      }
      ""
    case _ => look(words)
  }

  /** A restore opens `file`, a pipe, and waits for who writes to it. Does the provider close then? */
  private def closeBesideRestore(at: Long, file: String): String = {
    val restoring = CompletableFuture.runAsync(() => provider.getReadStore(at, None).release())
    while (!isAtDirectory && !restoring.isDone) Thread.sleep(10)
    val closing = CompletableFuture.runAsync(() => provider.close())
    val isClosed = Try(closing.get(PatienceSeconds, TimeUnit.SECONDS)).isSuccess
    new RandomAccessFile(file, "rw").close()
    Try(restoring.join()): Unit
    if (isClosed) "closed" else "waits for the restore"
  }

  private def isAtDirectory: Boolean = Thread.getAllStackTraces.values.asScala.exists { frames =>
    frames.exists(_.getMethodName == "open0") &&
      frames.exists(_.getClassName.contains("LocalStateDirectory"))
  }

  private val PatienceSeconds = 20L

  private def begin(at: Long, isForced: Boolean = false): String = {
    store = asLoaded(opened(at, isForced))
    ""
  }

  private def opened(at: Long, isForced: Boolean = false): StateStore =
    provider.getStore(at, None, forceSnapshotOnCommit = isForced, loadEmpty = false)

  /** As if Spark had loaded the provider for the run. It does not come to know of it otherwise. */
  private def asLoaded[T](f: => T): T = {
    val field = StateStore.getClass.getDeclaredFields.find(_.getName == "loadedProviders").get
    field.setAccessible(true)
    val ofSpark = field.get(StateStore)
      .asInstanceOf[mutable.HashMap[StateStoreProviderId, StateStoreProvider]]
    val run = StateStoreProviderId(id, UUID.fromString(runs(provider)))
    // Its maintenance waits for the lock, and does not see the provider.
    ofSpark.synchronized {
      ofSpark.put(run, provider)
      try f
      finally ofSpark.remove(run): Unit
    }
  }

  private def look(words: List[String]): String = words match {
    case List("get", number) => showValue(store.get(key(number.toLong), Default))
    case List("entries") => entries(store.iterator(Default))
    case List("multi-get", numbers) => values(store, numbers)
    case List("multi-get", at, numbers) => withReader(at)(values(_, numbers))
    case List("multi-get-of-family", family) => store.multiGet(Array.empty, family).mkString
    case List("metric", name) =>
      store.metrics.customMetrics.collect { case (metric, n) if metric.name == name => n }.mkString
    case List("get", at, number) =>
      withReader(at)(reader => showValue(reader.get(key(number.toLong), Default)))
    case List("entries", at) => withReader(at)(reader => entries(reader.iterator(Default)))
    case List("flip", number) =>
      flip(number.toLong)
      ""
    case List("flip-old", number) =>
      val log = HeldBytes.newestUndoLog(state.versions)
      flip(log.valueBefore(key(number.toLong)).get)
      ""
    case List("reported") =>
      val run = StateStoreProviderId(id, runId)
      StateStoreProvider.coordinatorRef.flatMap(_.getLatestSnapshotVersionForTesting(run)).mkString
    case List("files", kind) => filesOf(kind).size.toString
    case List("changes", start, end) =>
      provider.getStateStoreChangeDataReader(start.toLong, end.toLong, None, None)
        .map { case (_, key, value, batch) => s"$batch:${showKey(key)}=${showValue(value)}" }
        .mkString(" ")
    case List("replay", snapshot, end) =>
      val replayed = provider.replayReadStateFromSnapshot(snapshot.toLong, end.toLong, None, None)
      entries(replayed.iterator(Default))
    case List("chain") => lineage().files.size.toString
    case List("names") => filesIn().map(_.getFileName.toString).sorted.mkString(" ")
    case _ => throw new IllegalArgumentException(words.mkString(" "))
  }

  private def withReader(at: String)(read: ReadStateStore => String): String = {
    val reader = provider.getReadStore(at.toLong, None)
    try read(reader)
    finally reader.release()
  }

  private val Default = StateStore.DEFAULT_COL_FAMILY_NAME

  private def started(
      settings: Seq[(String, String)],
      encoder: KeyStateEncoderSpec = NoPrefixKeyStateEncoderSpec(shaped.keySchema))
      : CowStateStoreProvider = {
    val conf = new SQLConf
    val all = settings :+ ("stateStore.commitValidation.enabled" -> "false")
    all.foreach { case (key, text) => conf.setConfString(s"spark.sql.streaming.$key", text) }
    val hadoopConf = new Configuration
    hadoopConf.set(StreamExecution.RUN_ID_KEY, runId.toString)
    val made = new CowStateStoreProvider
    runs(made) = runId.toString
    made.init(
      id, shaped.keySchema, shaped.valueSchema, encoder, useColumnFamilies = false,
      StateStoreConf(conf), hadoopConf, useMultipleValuesPerKey = false, None)
    made
  }

  /** "1,5-7" is 1, 5, 6 and 7; "-" is none. */
  private def numbersOf(text: String): Seq[Long] =
    if (text == "-") Nil
    else text.split(',').toSeq.flatMap { part =>
      val ends = part.split('-').map(_.toLong)
      ends.head to ends.last
    }

  private def values(store: ReadStateStore, numbers: String): String =
    store.multiGet(numbersOf(numbers).map(key).toArray, Default).map(showValue).mkString(" ")

  private def entries(rows: Iterator[UnsafeRowPair]): String =
    show(rows.map(pair => (pair.key.copy(), pair.value.copy())))

  private def state: LoadedState = store.asInstanceOf[CowStateStore].state

  /** Change a bit of the value of a key where the map holds it. */
  private def flip(number: Long): Unit = {
    val view = state.versions.map.openView()
    val row = new UnsafeRow(KeyFields)
    view.foreach { walk =>
      row.pointTo(walk.base, walk.keyOffset, walk.keyLength)
      if (row == key(number)) {
        row.pointTo(walk.base, walk.keyOffset + walk.keyLength, walk.valueLength)
        flip(row)
      }
    }
    view.release()
  }

  private def flip(row: UnsafeRow): Unit = {
    val byte = Platform.getByte(row.getBaseObject, row.getBaseOffset)
    Platform.putByte(row.getBaseObject, row.getBaseOffset, (byte ^ 1).toByte)
  }

  /**
   * Bytes of all changelogs and of all other files that were ever written, of the files that a
   * restore reads, and of what a snapshot of the state takes; how many files a restore reads.
   */
  private def measured(): String = {
    Seq("changelog", "merged", "snapshot").flatMap(filesOf).foreach { file =>
      written.getOrElseUpdate(file.getFileName.toString, Files.size(file))
    }
    val names = lineage().files
    val read = names.map(name => Files.size(directory.resolve(name.toString))).sum
    val count = names.size
    val others = writtenAs("snapshot") + writtenAs("merged")
    s"${writtenAs("changelog")} $others $read ${snapshotBytes()} $count"
  }

  private def lineage(): Lineage = {
    val names = new StateFiles(filesIn().map(_.getFileName.toString).flatMap(StateFileName.parse))
    names.lineageOf(names.stateAt(version, None).get).toOption.get
  }

  private def writtenAs(kind: String): Long =
    written.collect { case (name, bytes) if name.contains(s".$kind.") => bytes }.sum

  private def snapshotBytes(): Long = {
    val name = StateFileName.ofSnapshot(StateId(version, "00000000000000aa"), 1, "00000000000000ab")
    val writer = new ArrowRowsWriter(
      () => OutputStream.nullOutputStream(),
      StateFileMetadata.header(
        name, StateFileMetadata.packed(shaped.keySchema, shaped.valueSchema)))
    val reader = provider.getReadStore(version, None)
    reader.iterator(Default).foreach(pair => writer.put(pair.key, pair.value))
    reader.release()
    writer.finish()
    writer.writtenBytes
  }

  private def filesOf(kind: String): Seq[Path] =
    filesIn().filter(_.getFileName.toString.endsWith(s".$kind.arrow"))

  private def filesIn(): Seq[Path] =
    if (!Files.isDirectory(directory)) Nil
    else Using.resource(Files.list(directory))(_.iterator.asScala.toList)
}

/** A task that cannot be told what to do at its end. */
private final class TaskWithoutListeners
  extends TaskContextImpl(0, 0, 0, 0, 0, 1, null, new Properties, null, TaskMetrics.empty, 1,
    Map.empty) {
  override def addTaskCompletionListener(listener: TaskCompletionListener): this.type =
    throw new CowStateException("no listener")
}
