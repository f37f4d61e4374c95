package org.apache.spark.sql.execution.streaming.state.cowstate.scripts

import java.nio.file.{Files, Paths}
import java.util.{Properties, UUID}

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.Using

import org.apache.hadoop.conf.Configuration

import org.apache.spark.{TaskContext, TaskContextImpl}
import org.apache.spark.executor.TaskMetrics
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.cowstate.CowStateStoreProvider
import org.apache.spark.sql.internal.SQLConf

/**
 * Several stores of one operator, "<partition>/<name>", which a task writes. It does what the lines
 * of a script say, each with one line of result. An error is a result too: its message and that of
 * its cause. A `task` has stores of its own, as if it ran on another executor, and goes on until its
 * `end`; then another task on its executor may begin.
 */
final class StoresOfTaskScript(root: String) {
  import ScriptedRows._

  private val shaped = shape(withPrefix = false)
  private val providers = mutable.Map.empty[String, CowStateStoreProvider]
  private val stores = mutable.Map.empty[String, StateStore]
  private val runId = UUID.randomUUID
  private val tasks = mutable.Map.empty[Long, TaskContext]
  private var task = 0L

  /** The results of the lines. */
  def run(script: String): String = {
    beginTask()
    try {
      script.linesIterator.map { line =>
        try step(line.split(' ').toList)
        catch { case e: Exception => s"error ${messages(e).mkString(" by ")}" }
      }.mkString("\n")
    } finally {
      TaskContext.unset()
      providers.values.foreach(_.close())
    }
  }

  private def beginTask(): Unit = TaskContext.setTaskContext(tasks.getOrElseUpdate(
      task,
      new TaskContextImpl(
        0, 0, 0, task, 0, 1, null, new Properties, null, TaskMetrics.empty, 1, Map.empty)))

  private def messages(error: Throwable): List[String] =
    if (error == null) Nil else s"${error.getMessage}" :: messages(error.getCause)

  private def step(words: List[String]): String = words match {
    case List("task", number) =>
      task = number.toLong
      beginTask()
      ""
    case List("begin", store, version) =>
      val name = keyOf(store)
      stores(name) = providers.getOrElseUpdate(name, started(store))
        .getStore(version.toLong, None, forceSnapshotOnCommit = false, loadEmpty = false)
      ""
    case List("put", name, number, text) =>
      stores(keyOf(name)).put(key(number.toLong), value(text), Default)
      ""
    case List("commit", name) => stores(keyOf(name)).commit().toString
    case List("abort", name) =>
      stores(keyOf(name)).abort()
      ""
    case List("entries", name) =>
      show(stores(keyOf(name)).iterator(Default).map(pair => (pair.key.copy(), pair.value.copy())))
    case List("keep", name, other) =>
      stores(keyOf(other)) = stores(keyOf(name))
      ""
    case List("attempts", name) => changelogsOf(name).map(_.split('-').slice(1, 3).mkString("-"))
        .mkString(" ")
    case List("keys", name) => stores(keyOf(name)).metrics.numKeys.toString
    case List("wait", name) =>
      val limit = System.nanoTime + 60000000000L
      while (filesOf(name).isEmpty && System.nanoTime < limit) Thread.sleep(10)
      filesOf(name)
    case List("end") =>
      TaskContext.get().markTaskCompleted(None)
      tasks.remove(task)
      ""
    case _ => throw new IllegalArgumentException(words.mkString(" "))
  }

  private def keyOf(name: String): String = s"$task $name"

  private val Default = StateStore.DEFAULT_COL_FAMILY_NAME

  private def idOf(name: String): StateStoreId = {
    val (partition, store) = name.splitAt(name.indexOf('/'))
    StateStoreId(s"file://$root", 0, partition.toInt, store.tail)
  }

  private def started(name: String): CowStateStoreProvider = {
    val conf = new SQLConf
    // Values of scripts are not those of their schema.
    Seq("commitValidation", "formatValidation").foreach { what =>
      conf.setConfString(s"spark.sql.streaming.stateStore.$what.enabled", "false")
    }
    val hadoopConf = new Configuration
    hadoopConf.set(StreamExecution.RUN_ID_KEY, runId.toString)
    val provider = new CowStateStoreProvider
    provider.init(
      idOf(name), shaped.keySchema, shaped.valueSchema,
      NoPrefixKeyStateEncoderSpec(shaped.keySchema), useColumnFamilies = false,
      StateStoreConf(conf), hadoopConf, useMultipleValuesPerKey = false, None)
    provider
  }

  /** The versions of its changelogs. */
  private def filesOf(name: String): String =
    changelogsOf(name).map(_.takeWhile(_ != '-').toInt).mkString(" ")

  private def changelogsOf(name: String): Seq[String] = {
    val directory = Paths.get(idOf(name).storeCheckpointLocation().toUri.getPath)
    if (!Files.isDirectory(directory)) Nil
    else Using.resource(Files.list(directory)) { files =>
      files.iterator.asScala.map(_.getFileName.toString).filter(_.endsWith(".changelog.arrow"))
        .toSeq.sorted
    }
  }
}
