package org.apache.spark.sql.execution.streaming.state.cowstate.gateway

import java.io.FileNotFoundException
import java.util.{Collections, LinkedHashMap, Map => JavaMap, UUID}

import scala.util.Using

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.json4s.JString
import org.json4s.jackson.JsonMethods.parse

import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.sql.execution.streaming.state.cowstate.base.{
  CowStateException, CowStatePlaceException, StoreLocation, StoreSettings
}

/**
 * Places of the states of checkpoints, remembered for each run. `root` is `<checkpoint>/state`. A
 * place found by a run holds for all stores of the run on this executor: no marker changes once a
 * query has written a batch.
 */
private[cowstate] object StatePlaces {
  private val Remembered = 256
  private val Commits = "commits"
  private val Metadata = "metadata"
  private lazy val runOfThisProcess = UUID.randomUUID.toString

  private val read = remembered[(Path, String), StateMarker]()
  private val settled = remembered[(Path, String, Option[String]), Option[StateMarker]]()
  private val claims = remembered[(StoreLocation, Path, String), RunClaim]()

  /**
   * Return the marker for a reader. A missing marker is not remembered, because the first batch of
   * a query reads the marker before writing it.
   */
  def ofReader(root: Path, conf: Configuration): Option[StateMarker] = {
    val asked = (root, runOf(conf))
    // Read outside the map's lock: readers of other checkpoints do not wait for this checkpoint's
    // file system.
    Option(read.get(asked)).orElse {
      val marker = StateMarker.read(root, conf)
      marker.foreach(read.put(asked, _))
      marker
    }
  }

  /**
   * Return the place to which a query with these settings writes, from `version` on; None for the
   * checkpoint itself. `isBegun`: true if a store has files in the checkpoint. Throws
   * CowStatePlaceException if the state is in another place.
   */
  def ofWriter(
      root: Path,
      settings: StoreSettings,
      conf: Configuration,
      version: Long,
      isBegun: => Boolean): Option[StateMarker] = {
    val asked = (root, runOf(conf), settings.url)
    Option(settled.get(asked)).getOrElse {
      // Settle outside the map's lock: other queries do not wait for this store, and concurrent
      // tasks settle the same place.
      val place = newlySettled(root, settings, conf, version, isBegun)
      settled.put(asked, place)
      place
    }
  }

  private def newlySettled(
      root: Path,
      settings: StoreSettings,
      conf: Configuration,
      version: Long,
      isBegun: => Boolean): Option[StateMarker] =
    (StateMarker.read(root, conf), settings.url) match {
      case (Some(marker), Some(url)) if marker.url != url =>
        throw CowStatePlaceException.elsewhere(root, marker.url, url)
      case (None, Some(url)) if isBegun || lastCommitted(root, conf).isDefined =>
        throw CowStatePlaceException.elsewhere(root, root.toString, url)
      case (None, Some(url)) =>
        val directory = newDirectory(root, conf)
        // Claim before writing the marker: an unusable store fails here, so no checkpoint ever
        // names such a store.
        claimOf(new GatewayObjects(settings.at(url, directory)), root, conf).hold(version)
        Some(StateMarker.create(root, conf, StateMarker(url, directory)))
      case (marker, _) => marker
    }

  def claimOf(objects: GatewayObjects, root: Path, conf: Configuration): RunClaim =
    claims.computeIfAbsent(
      (objects.location, root, runOf(conf)), _ => new RunClaim(objects, root, runOf(conf), conf))

  /** Return the path of a store's files below the directory of the checkpoint. */
  def pathOf(id: StateStoreId): String = {
    val partition = s"state/${id.operatorId}/${id.partitionId}"
    if (id.storeName == StateStoreId.DEFAULT_STORE_NAME) partition
    else s"$partition/${id.storeName}"
  }

  /**
   * Return the name of a directory in the object store: the query's id, which is the same in all
   * runs. If the checkpoint has no metadata file, return the run's id.
   */
  private def newDirectory(root: Path, conf: Configuration): String = {
    val file = new Path(root.getParent, Metadata)
    try Using.resource(file.getFileSystem(conf).open(file))(in => parse(in) \ "id") match {
        case JString(id) => id
        case _ => throw new CowStateException(
            s"$file, which says the id of the query, is damaged: restore it from a copy")
      }
    catch { case _: FileNotFoundException => runOf(conf) }
  }

  /**
   * Return the last batch that Spark has committed to a checkpoint, in any run; None without a
   * commit.
   */
  def lastCommitted(root: Path, conf: Configuration): Option[Long] = {
    val commits = new Path(root.getParent, Commits)
    try {
      commits.getFileSystem(conf).listStatus(commits).flatMap { file =>
        Option(file.getPath.getName).filter(_.forall(_.isDigit)).map(_.toLong)
      }.maxOption
    } catch { case _: FileNotFoundException => None }
  }

  private def runOf(conf: Configuration): String =
    Option(conf.get(StreamExecution.RUN_ID_KEY)).getOrElse(runOfThisProcess)

  private def remembered[K, V](): JavaMap[K, V] =
    Collections.synchronizedMap(new LinkedHashMap[K, V](16, 0.75f, true) {
      override def removeEldestEntry(eldest: JavaMap.Entry[K, V]): Boolean = size > Remembered
    })
}
