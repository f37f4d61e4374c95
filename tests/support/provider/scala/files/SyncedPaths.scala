package org.apache.spark.sql.execution.streaming.state.cowstate.scripts

import java.nio.file.Files

import scala.jdk.CollectionConverters._

import jdk.jfr.Recording
import jdk.jfr.consumer.RecordingFile

/** What this JVM forces to disk while it is watched, as its flight recorder sees it. */
final class SyncedPaths {
  private val recording = new Recording
  recording.enable("jdk.FileForce").withoutThreshold().withoutStackTrace()
  recording.start()

  /** The paths until now, one a line, in order. Ends the watch. */
  def end(): String = {
    recording.stop()
    val dump = Files.createTempFile("synced", ".jfr")
    try {
      recording.dump(dump)
      RecordingFile.readAllEvents(dump).asScala.sortBy(_.getStartTime)
        .map(_.getString("path")).mkString("\n")
    } finally {
      recording.close()
      Files.delete(dump)
    }
  }
}
