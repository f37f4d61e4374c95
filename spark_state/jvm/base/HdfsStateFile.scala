package org.apache.spark.sql.execution.streaming.state.cowstate.base

/**
 * A file of Spark's HDFSBackedStateStoreProvider: `<version>.delta` with the changes of one batch,
 * or `<version>.snapshot`. In an adopted checkpoint, such files lie below the first versions of
 * cowstate.
 */
final case class HdfsStateFile(version: Long, isSnapshot: Boolean) {
  override def toString: String = s"$version.${if (isSnapshot) "snapshot" else "delta"}"
}

object HdfsStateFile {
  private val Name = """(\d+)\.(delta|snapshot)""".r

  def parse(name: String): Option[HdfsStateFile] = name match {
    case Name(version, kind) => Some(HdfsStateFile(version.toLong, kind == "snapshot"))
    case _ => None
  }
}
