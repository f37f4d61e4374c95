package org.apache.spark.sql.execution.streaming.state.cowstate.scripts

import java.io.DataOutputStream
import java.nio.file.{Files, Paths}

import scala.util.Using

import org.apache.hadoop.fs.Path

import org.apache.spark.SparkConf
import org.apache.spark.io.CompressionCodec
import org.apache.spark.sql.execution.streaming.state.cowstate.base.StateFileName
import org.apache.spark.sql.execution.streaming.state.cowstate.bytes.RowChecksums
import org.apache.spark.sql.execution.streaming.state.cowstate.checkpoints.{
  StateCheckpoints, StateFileContent
}
import org.apache.spark.sql.execution.streaming.state.cowstate.files.{
  HdfsStateFileReader, StateDirectory
}
import org.apache.spark.sql.execution.streaming.state.cowstate.map.CopyOnWritePagedMap
import org.apache.spark.sql.execution.streaming.state.cowstate.memory.{HeapMemory, MemoryAccount}

/** Restores of a store in a directory of the faulty file system, as the lines of a script say. */
final class RestoreScript(root: String) {
  import ScriptedRows._

  private val directory = new Path(s"faulty:$root")
  private val shaped = shape(withPrefix = false)
  private var checkpoints = withCodec("lz4")
  FaultyFileSystem.watched = directory
  FaultyFileSystem.existsCalls.set(0)
  FaultyFileSystem.synced.set(0)

  private def withCodec(codec: String) = new StateCheckpoints(
    StateDirectory.of(directory, FaultyFileSystem.conf),
    new HdfsStateFileReader(directory, FaultyFileSystem.conf, codec),
    StateFileContent(shaped.keySchema, shaped.valueSchema))

  /** The results of the lines; an error's class and message are a result too. */
  def run(script: String): String =
    try {
      script.linesIterator.map { line =>
        try step(line.split(' ').toList)
        catch { case e: Exception => s"${e.getClass.getSimpleName} ${e.getMessage}" }
      }.mkString("\n")
    } finally {
      FaultyFileSystem.failing = Map.empty
      FaultyFileSystem.slowMs = Map.empty
      FaultyFileSystem.canSync = true
    }

  private def step(words: List[String]): String = words match {
    case List("write", count) =>
      (1L to count.toLong).foreach(write)
      ""
    case List("write-delta", version) =>
      writeDelta(version.toLong)
      ""
    case "fail" :: part :: text =>
      FaultyFileSystem.failing += part -> text.mkString(" ")
      ""
    case List("slow", part, ms) =>
      FaultyFileSystem.slowMs += part -> ms.toLong
      ""
    case List("codec", codec) =>
      checkpoints = withCodec(codec)
      ""
    case List("restore", version) => restore(version.toLong)
    case List("interrupt", version, ms) => interrupted(version.toLong, ms.toLong)
    case List("left-open") => leftOpen()
    case List("can-sync", can) =>
      FaultyFileSystem.canSync = can.toBoolean
      ""
    case List("synced-streams") => FaultyFileSystem.synced.get.toString
    case List("exists-calls") => FaultyFileSystem.existsCalls.get.toString
    case _ => throw new IllegalArgumentException(words.mkString(" "))
  }

  private def unique(version: Long): String = if (version == 0) "0" else f"$version%016x"

  private def write(version: Long): Unit = {
    val file = checkpoints.create(
      StateFileName(version, 1, unique(version), Some(unique(version - 1))))
    file.rows.put(key(version), value(s"1:$version"))
    file.commit()
  }

  private def writeDelta(version: Long): Unit = {
    val codec = CompressionCodec.createCodec(new SparkConf, "lz4")
    val file = Paths.get(root, s"$version.delta")
    Files.createDirectories(file.getParent)
    val compressed = codec.compressedOutputStream(Files.newOutputStream(file))
    Using.resource(new DataOutputStream(compressed)) { out =>
      Seq(key(version), value(s"1:$version")).foreach { row =>
        out.writeInt(row.getSizeInBytes)
        out.write(row.getBytes)
      }
      out.writeInt(-1)
    }
  }

  private def restore(version: Long): String = {
    val files = checkpoints.list()
    val account = new MemoryAccount(1L << 30, "test")
    val map = new CopyOnWritePagedMap(new HeapMemory(account), None, RowChecksums.Off)
    try {
      val lineage = files.lineageOf(files.stateAt(version, None).get).toOption.get
      checkpoints.restore(lineage, map)
      s"restored ${map.size}"
    } finally account.close()
  }

  private def interrupted(version: Long, ms: Long): String = {
    var result = ""
    val thread = new Thread(() => result = run(s"restore $version"))
    thread.start()
    Thread.sleep(ms)
    thread.interrupt()
    thread.join()
    result
  }

  /** How many files are open after all reads had the time to end. */
  private def leftOpen(): String = {
    def open = FaultyFileSystem.opened.get - FaultyFileSystem.closed.get
    val end = System.nanoTime + 5000000000L
    while (open != 0 && System.nanoTime < end) Thread.sleep(20)
    open.toString
  }
}
