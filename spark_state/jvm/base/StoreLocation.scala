package org.apache.spark.sql.execution.streaming.state.cowstate.base

import org.json4s.JObject

/**
 * A place in an object store, for the gateway to open.
 *
 * @param url           URL for fsspec, without a slash at the end
 * @param options       options for fsspec
 * @param retrySeconds  time limit for retries of a failing call
 * @param silentSeconds greatest time without an answer to a call that moves no bytes
 */
private[cowstate] final case class StoreLocation(
    url: String, options: JObject, retrySeconds: Long, silentSeconds: Long) {
  import StoreLocation._

  /**
   * Greatest time without an answer to a call that moves `bytes` bytes. The time also suffices
   * while many other calls move bytes.
   */
  def silentSecondsFor(bytes: Long): Long = silentSeconds + bytes / MiB * SecondsOfMiB
}

private[cowstate] object StoreLocation {
  private val MiB = 1L << 20
  /**
   * Seconds for each MiB. A slow object store needs this time while all stores of an executor write
   * at the same time.
   */
  private val SecondsOfMiB = 10
}
