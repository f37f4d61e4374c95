package org.apache.spark.sql.execution.streaming.state.cowstate.gateway

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.sql.execution.streaming.state.cowstate.base.{
  HdfsStateFile, StateFileName, StoreSettings
}
import org.apache.spark.sql.execution.streaming.state.cowstate.files.{
  StateDirectory, StateFileInput, StateFileOutput
}

/**
 * Files of one store, in the checkpoint or in an object store. If the files are in an object store,
 * the checkpoint's marker names the place. A reader looks at the marker alone. A writer looks at
 * the session's setting, too, if the session names an object store:
 *
 *   - If the checkpoint has neither marker nor state, the writer creates a marker for this store.
 *   - If the state is in another place, the writer throws CowStatePlaceException.
 *
 * Spark's state reader counts the partitions of an operator by the partition directories in the
 * checkpoint. So each partition has a note in the checkpoint. Copies of the checkpoint contain the
 * notes, too.
 */
private[cowstate] final class PlacedStateDirectory(
    id: StateStoreId, settings: StoreSettings, conf: Configuration) extends StateDirectory {
  private val root = new Path(id.checkpointRootLocation)
  private val inCheckpoint = StateDirectory.of(id.storeCheckpointLocation(), conf)
  private var place = Option.empty[StateMarker]
  private var directory = Option.empty[StateDirectory]
  private var isNoted = false
  private var isSettled = false

  private def current: StateDirectory = synchronized {
    directory.getOrElse(settled(StatePlaces.ofReader(root, conf)))
  }

  /**
   * Return the directory for a listing. Until this object has settled the place for writing, each
   * call reads the place anew, because the first batch may run on another executor and begin in an
   * object store.
   */
  private def lookedUp: StateDirectory = synchronized {
    if (place.isEmpty && !isSettled) settled(StatePlaces.ofReader(root, conf)) else current
  }

  /** Use the place of `marker`. Keeps the same directory if the place is the same. */
  private def settled(marker: Option[StateMarker]): StateDirectory = {
    if (directory.isEmpty || marker != place) {
      place = marker
      directory = Some(marker.fold(inCheckpoint)(inStore))
    }
    directory.get
  }

  private def inStore(marker: StateMarker): StateDirectory = {
    val objects = new GatewayObjects(settings.at(marker.url, marker.directory))
    val claim = StatePlaces.claimOf(objects, root, conf)
    new GatewayStateDirectory(objects, StatePlaces.pathOf(id), Some(claim))
  }

  override def beginWriting(version: Long): Boolean = synchronized {
    val before = directory
    val now = settled(StatePlaces.ofWriter(root, settings, conf, version, isBegun = hasFiles))
    isSettled = true
    if (place.isDefined && !isNoted) {
      PlacedStateDirectory.note(id, conf)
      isNoted = true
    }
    now.beginWriting(version) || before.exists(_ ne now)
  }

  private def hasFiles: Boolean = inCheckpoint.list().exists { name =>
    StateFileName.parse(name).isDefined || HdfsStateFile.parse(name).isDefined
  }

  override def url: String = current.url
  override def isInStore: Boolean = current.isInStore
  override def mayWrite: Boolean = current.mayWrite
  override def create(name: String, isDurable: Boolean): StateFileOutput =
    current.create(name, isDurable)
  override def open(name: String): StateFileInput = current.open(name)
  override def list(): Seq[String] = lookedUp.list()
  override def lengths(names: Seq[String]): Map[String, Long] = current.lengths(names)
  override def delete(names: Seq[String]): Unit = current.delete(names)
  override def sweepOrphans(): Unit = current.sweepOrphans()
}

private[cowstate] object PlacedStateDirectory {
  private val Note = "_cowstate-store"
  private val NoteText = s"The files of this partition are where ../../${StateMarker.Name} says."

  /** Write the note of a partition whose files are in an object store. */
  def note(id: StateStoreId, conf: Configuration): Unit = {
    val partition = new Path(id.checkpointRootLocation, s"${id.operatorId}/${id.partitionId}")
    StateMarker.writeOnce(new Path(partition, Note), conf, NoteText)
  }
}
