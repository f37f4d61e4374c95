package org.apache.spark.sql.execution.streaming.state.cowstate

import org.json4s.JObject

/**
 * A place in an object store that the gateway opens.
 *
 * @param url           for fsspec, without a slash at its end
 * @param options       for fsspec
 * @param retrySeconds  for how long a call that fails is tried again
 * @param silentSeconds for how long the gateway may keep silent about a call that moves no bytes
 */
private[cowstate] final case class StoreLocation(
    url: String, options: JObject, retrySeconds: Long, silentSeconds: Long) {
  import StoreLocation._

  /** The same for a call that moves bytes, perhaps beside many others. */
  def silentSecondsFor(bytes: Long): Long = silentSeconds + bytes / MiB * SecondsOfMiB
}

private object StoreLocation {
  private val MiB = 1L << 20
  /** A slow store has as much, with all stores of an executor writing at once. */
  private val SecondsOfMiB = 10
}
