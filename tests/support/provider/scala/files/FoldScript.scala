package org.apache.spark.sql.execution.streaming.state.cowstate.scripts

import scala.collection.mutable

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.SparkEnv
import org.apache.spark.memory.TaskMemoryManager
import org.apache.spark.sql.execution.streaming.state.cowstate.bytes.RowChecksums
import org.apache.spark.sql.execution.streaming.state.cowstate.checkpoints.{
  FoldedRows, StateCheckpoints, StateFileContent
}
import org.apache.spark.sql.execution.streaming.state.cowstate.files.{
  HdfsStateFileReader, StateDirectory
}

/** Reads states of the only store that a ProviderScript has written below `root`, without a map. */
final class FoldScript(root: String) {
  import ScriptedRows._

  private val directory = new Path(s"file:$root/0/0")
  private val shaped = shape(withPrefix = false)
  private val conf = new Configuration(false)
  private val checkpoints = new StateCheckpoints(
    StateDirectory.of(directory, conf), new HdfsStateFileReader(directory, conf, "lz4"),
    StateFileContent(shaped.keySchema, shaped.valueSchema))

  /** For each line "<version> <bytes for keys>", into how many parts keys were cut, and the rows. */
  def run(script: String): String =
    script.linesIterator.map(_.split(' ').toList).map {
      case List(version, mostBytes) => folded(version.toLong, mostBytes.toLong)
      case words => throw new IllegalArgumentException(words.mkString(" "))
    }.mkString("\n")

  private def folded(version: Long, mostBytes: Long): String = {
    val files = checkpoints.list()
    val lineage = files.lineageOf(files.stateAt(version, None).get).toOption.get
    val memory = new TaskMemoryManager(SparkEnv.get.memoryManager, 0)
    val rows = new FoldedRows(checkpoints, lineage, shaped, RowChecksums.Off, memory, mostBytes)
    val entries = mutable.ArrayBuffer.empty[String]
    try rows.foreach { row =>
        assert(row.keyHash == row.key.hashCode)
        entries += s"${showKey(row.key)}=${showValue(row.value)}"
      }
    finally {
      rows.close()
      memory.cleanUpAllAllocatedMemory()
    }
    s"${rows.parts} ${entries.sorted.mkString(" ")}"
  }
}
