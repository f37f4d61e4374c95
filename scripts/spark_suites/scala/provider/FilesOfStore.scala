package org.apache.spark.sql.execution.streaming.state.cowstate.suites

import java.io.File

import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.sql.execution.streaming.state.cowstate.base.StateFileName

/** The local files of a store. */
final case class FilesOfStore(id: StateStoreId) {
  private val directory = new File(id.storeCheckpointLocation().toUri.getPath)

  /** 0, the empty state, if there is no file. */
  def newestVersion: Long = all.map(_._1.version).maxOption.getOrElse(0L)

  /** The snapshots, or the changelogs, that end in a version. */
  def of(version: Long, isSnapshot: Boolean): Seq[File] = named(version, isSnapshot).map(_._2)

  /** The same, with the parts of their names. */
  def named(version: Long, isSnapshot: Boolean): Seq[(StateFileName, File)] = all.filter {
    case (name, _) =>
      name.version == version && (if (isSnapshot) name.isSnapshot else name.isChangelog)
  }

  private def all: Seq[(StateFileName, File)] = for {
    file <- Option(directory.listFiles).toSeq.flatten
    name <- StateFileName.parse(file.getName)
  } yield (name, file)
}
