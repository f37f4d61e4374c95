package org.apache.spark.sql.execution.streaming.state.cowstate.suites

import java.util.UUID

import scala.util.Random

import org.apache.hadoop.conf.Configuration
import org.scalatest.BeforeAndAfter

import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.StateStoreTestsHelper._
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.test.SharedSparkSession
import org.apache.spark.sql.types.StructType

/**
 * Spark's suite for all providers. Runs on CountedProvider, not on the replacement for
 * HDFSBackedStateStoreProvider, because the suite makes some demands on every provider except
 * HDFSBackedStateStoreProvider.
 */
class StateStoreBaseSuite
  extends StateStoreSuiteBase[CountedProvider] with SharedSparkSession with BeforeAndAfter {

  before {
    StateStore.stop()
    spark.streams.stateStoreCoordinator
  }

  after(StateStore.stop())

  override def newStoreProvider(): CountedProvider = started(newId())

  override def newStoreProvider(storeId: StateStoreId): CountedProvider = started(storeId)

  override def newStoreProvider(
      storeId: StateStoreId, useColumnFamilies: Boolean): CountedProvider = started(storeId)

  override def newStoreProvider(storeId: StateStoreId, conf: Configuration): CountedProvider =
    started(storeId, hadoopConf = conf)

  override def newStoreProvider(
      minDeltasForSnapshot: Int, numOfVersToRetainInMemory: Int): CountedProvider =
    started(newId(), sqlConf = getDefaultSQLConf(minDeltasForSnapshot, numOfVersToRetainInMemory))

  override def newStoreProvider(
      keySchema: StructType,
      keyStateEncoderSpec: KeyStateEncoderSpec,
      useColumnFamilies: Boolean): CountedProvider = started(newId(), keyStateEncoderSpec)

  override def newStoreProvider(useColumnFamilies: Boolean): CountedProvider = started(newId())

  override def newStoreProviderWithClonedConf(storeId: StateStoreId): CountedProvider =
    started(storeId, sqlConf = cloneSQLConf())

  override def newStoreProviderNoInit(): CountedProvider = new CountedProvider

  override def getLatestData(
      provider: CountedProvider, useColumnFamilies: Boolean): Set[((String, Int), Int)] =
    getData(
      provider, FilesOfStore(provider.stateStoreId).newestVersion.toInt, useColumnFamilies)

  override def getData(
      provider: CountedProvider,
      version: Int,
      useColumnFamilies: Boolean): Set[((String, Int), Int)] =
    tryWithProviderResource(started(provider.stateStoreId)) { reloaded =>
      rowPairsToDataSet(reloaded.getReadStore(version, None).iterator())
    }

  override def getDefaultSQLConf(
      minDeltasForSnapshot: Int, numOfVersToRetainInMemory: Int): SQLConf = {
    val conf = cloneSQLConf()
    conf.setConf(SQLConf.STATE_STORE_MIN_DELTAS_FOR_SNAPSHOT, minDeltasForSnapshot)
    conf.setConf(SQLConf.MAX_BATCHES_TO_RETAIN_IN_MEMORY, numOfVersToRetainInMemory)
    conf
  }

  override protected def testQuietly(name: String)(f: => Unit): Unit =
    super[StateStoreSuiteBase].testQuietly(name)(f)

  private def newId(): StateStoreId = StateStoreId(newDir(), Random.nextInt(), 0)

  private def started(
      id: StateStoreId,
      encoder: KeyStateEncoderSpec = NoPrefixKeyStateEncoderSpec(keySchema),
      sqlConf: SQLConf = SQLConf.get,
      hadoopConf: Configuration = new Configuration): CountedProvider = {
    hadoopConf.set(StreamExecution.RUN_ID_KEY, UUID.randomUUID().toString)
    val provider = new CountedProvider
    provider.init(
      id, keySchema, valueSchema, encoder, useColumnFamilies = false, new StateStoreConf(sqlConf),
      hadoopConf)
    provider
  }
}
