package org.apache.spark.sql.execution.streaming.state.cowstate.gateway

import java.io.IOException
import java.nio.ByteBuffer
import java.util.concurrent.TimeUnit
import java.util.concurrent.locks.ReentrantLock

import scala.collection.mutable

import org.json4s.{JInt, JObject, JString}

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.cowstate.base.{
  CowStateException, StoreLocation
}

/**
 * The gateway of this executor: a Python process that calls object stores through fsspec. The first
 * request starts the process. If the process dies, the next request starts another gateway.
 * Connections are kept for later requests to the same store.
 */
private[cowstate] object Gateway extends Logging {
  private val Format = 1
  private val IdleNs = TimeUnit.SECONDS.toNanos(60)

  private val starting = new ReentrantLock
  @volatile private var running: GatewayProcess = _
  private val idle = mutable.Map.empty[StoreLocation, mutable.Queue[GatewayConnection]]

  /**
   * Call `f` with a connection to a store. Throws IOException if the gateway is gone or dies
   * meanwhile, GatewayStartException if no gateway can start, and ObjectStoreException if the store
   * cannot be opened.
   */
  def withConnection[T](location: StoreLocation)(f: GatewayConnection => T): T = {
    val connection = takeIdle(location).getOrElse(opened(location))
    val result =
      try f(connection)
      catch {
        case e: Throwable =>
          connection.close()
          throw e
      }
    keep(location, connection)
    result
  }

  /** Process id of the gateway, None if no gateway runs. */
  def pid: Option[Long] = Option(running).filter(_.isAlive).map(_.pid)

  /** Close all idle connections. Connections of a dead gateway are useless. */
  def forgetConnections(): Unit = idle.synchronized {
    idle.values.flatten.foreach(_.close())
    idle.clear()
  }

  private def opened(location: StoreLocation): GatewayConnection = {
    val connection = new GatewayConnection(process(), location.silentSeconds)
    try {
      val request = JObject(
        "do" -> JString("open"), "format" -> JInt(Format), "url" -> JString(location.url),
        "options" -> location.options, "retry_seconds" -> JInt(location.retrySeconds))
      val answer = connection.ask(request, ByteBuffer.allocate(0), location.silentSeconds)
      answer.error.foreach { case (_, message) =>
        throw new ObjectStoreException(
          s"$message. The gateway runs in ${GatewayProcess.interpreter}")
      }
      connection
    } catch {
      case e: Throwable =>
        connection.close()
        throw e
    }
  }

  private def process(): GatewayProcess = {
    starting.lockInterruptibly()
    try {
      if (running == null || !running.isAlive) {
        if (running != null) logWarning(s"The gateway ${running.pid} has died; another one starts")
        running = GatewayProcess.start()
        logInfo(s"The gateway to object stores is process ${running.pid}")
      }
      running
    } finally starting.unlock()
  }

  private def takeIdle(location: StoreLocation): Option[GatewayConnection] = idle.synchronized {
    idle.get(location).filter(_.nonEmpty).map(_.removeLast())
  }

  /** Keep a connection. Closes idle connections of all stores after a minute without use. */
  private def keep(location: StoreLocation, connection: GatewayConnection): Unit =
    idle.synchronized {
      idle.getOrElseUpdate(location, mutable.Queue.empty).enqueue(connection)
      val limit = System.nanoTime - IdleNs
      idle.values.foreach { connections =>
        connections.dequeueWhile(_.lastUsedNs - limit < 0).foreach(_.close())
      }
      idle.filterInPlace { case (_, connections) => connections.nonEmpty }
    }
}

/**
 * Raised if no gateway can start. The message says which part is missing, and how to get the part.
 */
private[cowstate] final class GatewayStartException(message: String, cause: Throwable)
  extends CowStateException(message, cause)

/** Raised if the gateway was killed while starting. Another gateway may start. */
private[cowstate] final class GatewayKilledException(message: String) extends IOException(message)

/**
 * Raised if a living gateway takes no connection, or does not answer a request in time. The gateway
 * is killed before the exception is raised. Exception: a gateway that has answered other requests
 * meanwhile goes on, see GatewayProcess.keepsSilent.
 */
private[cowstate] final class GatewayUnreachableException(message: String, cause: IOException)
  extends IOException(message, cause)

/**
 * Raised if the object store refused a request or failed. The message gives the reason and the way
 * out.
 */
final class ObjectStoreException(message: String) extends IOException(message)
