package org.apache.spark.sql.execution.streaming.state.cowstate

import org.json4s.JObject

/**
 * A place in an object store that the gateway opens.
 *
 * @param url          for fsspec, without a slash at its end
 * @param options      for fsspec
 * @param retrySeconds for how long a call that fails is tried again
 */
private[cowstate] final case class StoreLocation(
    url: String, options: JObject, retrySeconds: Long)
