package org.apache.spark.sql.execution.streaming.state.cowstate.suites

import java.io.File

import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.sql.execution.streaming.state.cowstate.base.StateFileName

/** State files of a store in a local directory. */
final case class FilesOfStore(id: StateStoreId) {
  private val directory = new File(id.storeCheckpointLocation().toUri.getPath)

  /** Newest version with a file; 0, the version of the empty state, if there is no file. */
  def newestVersion: Long = all.map(_._1.version).maxOption.getOrElse(0L)

  /** Return the snapshots of a version, or the changelogs that lead to the version. */
  def of(version: Long, isSnapshot: Boolean): Seq[File] = named(version, isSnapshot).map(_._2)

  /** Return the snapshots or changelogs of a version, each file with its parsed name. */
  def named(version: Long, isSnapshot: Boolean): Seq[(StateFileName, File)] = all.filter {
    case (name, _) =>
      name.version == version && (if (isSnapshot) name.isSnapshot else name.isChangelog)
  }

  private def all: Seq[(StateFileName, File)] = for {
    file <- Option(directory.listFiles).toSeq.flatten
    name <- StateFileName.parse(file.getName)
  } yield (name, file)
}
