package org.apache.spark.sql.execution.streaming.state.cowstate

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.state.StateStoreId

/**
 * The files of one store, in the checkpoint or in an object store. The checkpoint's marker says
 * where they are. A reader goes by that alone. What the session says counts for a writer: with a
 * store and without a marker, it begins there, if the checkpoint has no state yet; and it goes on
 * nowhere but where the session says, if that says something.
 *
 * Spark's state reader counts the partitions of an operator by their directories in the checkpoint.
 * So each of them has a note there, which copies of the checkpoint have, too.
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

  /** Until this store is written here, another executor's first batch may begin in a store. */
  private def lookedUp: StateDirectory = synchronized {
    if (place.isEmpty && !isSettled) settled(StatePlaces.ofReader(root, conf)) else current
  }

  /** Go on in this place, by the same directory if it is the same place. */
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

  /** Leave the note of a partition whose files are in an object store. */
  def note(id: StateStoreId, conf: Configuration): Unit = {
    val partition = new Path(id.checkpointRootLocation, s"${id.operatorId}/${id.partitionId}")
    StateMarker.writeOnce(new Path(partition, Note), conf, NoteText)
  }
}
