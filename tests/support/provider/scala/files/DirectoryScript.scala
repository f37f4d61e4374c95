package org.apache.spark.sql.execution.streaming.state.cowstate.scripts

import java.io.IOException
import java.nio.charset.StandardCharsets.UTF_8
import java.util.concurrent.{Callable, Executors, TimeUnit}

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.json4s.JObject
import org.json4s.jackson.JsonMethods.parse

import org.apache.spark.SparkEnv
import org.apache.spark.sql.execution.streaming.state.cowstate.base.{
  CowStateException, StoreLocation
}
import org.apache.spark.sql.execution.streaming.state.cowstate.files.{
  StateDirectory, StateFileInput, StateFileOutput
}
import org.apache.spark.sql.execution.streaming.state.cowstate.gateway.{
  Gateway, GatewayObjects, GatewayStateDirectory
}

/**
 * A directory of state files, of the kind "local", "managed" or "gateway", and what the lines of a
 * script do there, each with a line of result. An error is a result too.
 */
final class DirectoryScript(
    kind: String, root: String, options: String, retrySeconds: Int, silentSeconds: Int) {
  import DirectoryScript._

  private val path = "state/0/0"
  private val objects = new GatewayObjects(
    StoreLocation(
      root, parse(options).asInstanceOf[JObject], retrySeconds.toLong, silentSeconds.toLong))
  private val directory: StateDirectory = kind match {
    case "local" => StateDirectory.of(new Path(s"$root/$path"), new Configuration)
    case "managed" =>
      val conf = new Configuration
      conf.set("spark.sql.streaming.checkpointFileManagerClass", Manager)
      StateDirectory.of(new Path(s"$root/$path"), conf)
    case "gateway" => new GatewayStateDirectory(objects, path, None)
  }
  private val begun = mutable.Map.empty[String, StateFileOutput]

  /** The results of the lines. */
  def run(script: String): String = script.linesIterator.map { line =>
    try step(line.split(' ').toList)
    catch {
      case e @ (_: IOException | _: CowStateException) =>
        s"error ${e.getClass.getSimpleName} ${e.getMessage}"
    }
  }.mkString("\n")

  private def step(words: List[String]): String = words match {
    case List("begin", name, text) =>
      val file = directory.create(name, isDurable = true)
      begun(name) = file
      file.stream.write(text.getBytes(UTF_8))
      ""
    case List("commit", name) =>
      begun(name).commit()
      ""
    case List("cancel", name) =>
      begun(name).cancel()
      ""
    case List("put", name, count) =>
      put(name, count.toInt)
      ""
    case List("put-at-once", files, count) => putAtOnce(files.toInt, count.toInt)
    case List("read", name, from, count) => read(name, from.toLong, count.toInt)
    case List("whole", name, count) => whole(name, count.toInt)
    case List("length", name) => withFile(name)(_.length.toString)
    case List("list") => directory.list().filterNot(_.startsWith(".")).sorted.mkString(" ")
    case List("lengths", names) =>
      directory.lengths(names.split(',').toSeq).toSeq.sorted.map(_.productIterator.mkString("="))
        .mkString(" ")
    case List("delete", names) =>
      directory.delete(names.split(',').toSeq)
      ""
    case List("sweep") =>
      directory.sweepOrphans()
      ""
    case List("url") => directory.url
    case _ => process(words)
  }

  private def process(words: List[String]): String = words match {
    case List("gateway-pid") => Gateway.pid.map(_.toString).getOrElse("none")
    case List("python") =>
      SparkEnv.get.conf.remove(PythonKey)
      ""
    case List("python", interpreter) =>
      SparkEnv.get.conf.set(PythonKey, interpreter)
      ""
    case List("interrupted-put", name, ms) => interruptedPut(name, ms.toLong)
    case _ => throw new IllegalArgumentException(words.mkString(" "))
  }

  private def put(name: String, count: Int): Unit = {
    val file = directory.create(name, isDurable = true)
    val bytes = content(name, count)
    bytes.grouped(1 << 20).foreach(part => file.stream.write(part))
    file.commit()
  }

  /** So many files by as many threads; how many of them there are then. */
  private def putAtOnce(files: Int, count: Int): String = {
    val pool = Executors.newFixedThreadPool(files)
    try {
      val tasks = (0 until files).map { number =>
        new Callable[Unit] { override def call(): Unit = put(s"file-$number", count) }
      }
      pool.invokeAll(tasks.asJava).asScala.foreach(_.get)
      directory.list().count(_.startsWith("file-")).toString
    } finally {
      pool.shutdown()
      pool.awaitTermination(60, TimeUnit.SECONDS): Unit
    }
  }

  private def read(name: String, from: Long, count: Int): String = withFile(name) { file =>
    val into = new Array[Byte](count)
    file.readFully(from, into)
    new String(into, UTF_8)
  }

  /** Whether a file that `put` wrote has its bytes, read in parts: the end first, as readers do. */
  private def whole(name: String, count: Int): String = withFile(name) { file =>
    val expected = content(name, count)
    val starts = (0 until count by Part).reverse
    val same = starts.forall { from =>
      val into = new Array[Byte](math.min(Part, count - from))
      file.readFully(from.toLong, into)
      into.sameElements(expected.slice(from, from + into.length))
    }
    (same && file.length == count).toString
  }

  private def withFile(name: String)(f: StateFileInput => String): String = {
    val file = directory.open(name)
    try f(file)
    finally file.close()
  }

  /** A put in a thread that is interrupted meanwhile; what became of it. */
  private def interruptedPut(name: String, ms: Long): String = {
    var result = ""
    val thread = new Thread(() =>
      result =
        try {
          put(name, 10)
          "put"
        } catch { case e: Exception => e.getClass.getSimpleName })
    thread.start()
    Thread.sleep(ms)
    thread.interrupt()
    thread.join()
    result
  }
}

private object DirectoryScript {
  private val Manager = "org.apache.spark.sql.execution.streaming.checkpointing." +
    "FileSystemBasedCheckpointFileManager"
  private val PythonKey = "spark.pyspark.python"
  private val Part = 700001

  private def content(name: String, count: Int): Array[Byte] = {
    val bytes = new Array[Byte](count)
    new scala.util.Random(name.hashCode).nextBytes(bytes)
    bytes
  }
}
