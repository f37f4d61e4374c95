package org.apache.spark.sql.execution.streaming.state.cowstate.jobs

import java.io.FileNotFoundException
import java.util.UUID

import scala.util.Using

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.cowstate.base.{
  CowStateConf, CowStateException, StoreShape
}
import org.apache.spark.sql.types.StructType

/** Access of commands to the stores of a stopped query. */
private[cowstate] object CheckpointStores {
  private val Settings = "spark.sql.streaming.stateStore."

  /**
   * Return the session's Hadoop configuration with a new run id, so that a provider can be opened
   * outside of a query.
   */
  def hadoopConfOf(session: SparkSession): Configuration = {
    val conf = session.sessionState.newHadoopConf()
    conf.set(StreamExecution.RUN_ID_KEY, UUID.randomUUID().toString)
    conf
  }

  /** Return the session's configuration, with the settings of state stores from an offset log. */
  def storeConfOf(session: SparkSession, settings: Map[String, String]): StateStoreConf = {
    val conf = session.sessionState.conf.clone()
    settings.foreach { case (key, value) =>
      if (key.startsWith(Settings)) conf.setConfString(key, value)
    }
    // Drop the session's object store: the checkpoint and the order of a command say where the
    // files are.
    conf.unsetConf(CowStateConf.Store)
    conf.setConfString(s"${Settings}commitValidation.enabled", "false")
    conf.setConfString(s"${Settings}coordinatorReportSnapshotUploadLag", "false")
    new StateStoreConf(conf)
  }

  def schemaOf(
      checkpoint: String, operator: Long, store: String, conf: Configuration)
      : (StructType, StructType) = {
    val location = StateStoreId(s"$checkpoint/state", operator,
      StateStore.PARTITION_ID_TO_CHECK_SCHEMA, store).storeCheckpointLocation()
    val file = StateSchemaCompatibilityChecker.schemaFile(location)
    val schemas =
      try Using.resource(file.getFileSystem(conf).open(file))(
          StateSchemaCompatibilityChecker.readSchemaFile)
      catch {
        case _: FileNotFoundException => throw new CowStateException(
            s"$file is missing, so the types of the state are not known. Run the query once with " +
              "its present provider and " +
              "spark.sql.streaming.stateStore.stateSchemaCheck = true: it writes it")
      }
    schemas match {
      case List(only) => (only.keySchema, only.valueSchema)
      case several => throw new CowStateException(
          s"$file has ${several.size} column families; only stores with one can be read here")
    }
  }

  /** Open the provider of a store. */
  def open(
      providerClass: String,
      id: StateStoreId,
      shape: StoreShape,
      storeConf: StateStoreConf,
      hadoopConf: Configuration): StateStoreProvider = {
    val spec =
      if (shape.prefixColumns == 0) NoPrefixKeyStateEncoderSpec(shape.keySchema)
      else PrefixKeyScanStateEncoderSpec(shape.keySchema, shape.prefixColumns)
    val provider = StateStoreProvider.create(providerClass)
    provider.init(
      id, shape.keySchema, shape.valueSchema, spec, useColumnFamilies = false, storeConf,
      hadoopConf, useMultipleValuesPerKey = false, None)
    provider
  }
}
