package org.apache.spark.sql.execution.streaming.state.cowstate.gateway

import java.io.IOException
import java.nio.ByteBuffer
import java.nio.channels.ClosedByInterruptException
import java.nio.file.{Files, Path}
import java.util.concurrent.TimeUnit

import scala.annotation.tailrec

import org.json4s.{JArray, JField, JInt, JObject, JString}

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.cowstate.base.StoreLocation

/**
 * The objects below a URL, accessed through the gateway. Names are relative to the URL.
 *
 * If the gateway dies before answering, the request is made again, until the store's retry time is
 * over. Making a request twice does no harm. For example, if a put finds its own bytes under the
 * name, an earlier try of the put has succeeded, because names are unique.
 *
 * If the store refuses a request, or still fails after the gateway's own retries, the error is an
 * ObjectStoreException.
 */
private[cowstate] final class GatewayObjects(val location: StoreLocation) extends Logging {
  import GatewayObjects._

  def url: String = location.url

  /** Create an object, durable on return. The object may exist already with the same bytes. */
  def put(name: String, content: ByteBuffer): Unit =
    request("put", Seq("name" -> JString(name)), content): Unit

  /** Create an object with the content of a local file. The gateway reads the file. */
  def put(name: String, file: Path): Unit =
    checked(answerTo(
        "put", Seq("name" -> JString(name), "file" -> JString(file.toString)), NoBody,
        Files.size(file))): Unit

  /**
   * Return the bytes from `start` on, up to `length` bytes or the end of the object. None if the
   * object does not exist.
   */
  def get(name: String, start: Long, length: Int): Option[Array[Byte]] = {
    val range =
      Seq("name" -> JString(name), "start" -> JInt(start), "length" -> JInt(length))
    val answer = answerTo("get", range, NoBody, length)
    if (answer.error.exists(_._1 == Missing)) None else Some(checked(answer).body)
  }

  /** Return names (with `prefix` at the beginning) and lengths of the objects in a directory. */
  def list(directory: String, prefix: String = ""): Map[String, Long] = {
    val where = Seq("directory" -> JString(directory), "prefix" -> JString(prefix))
    request("list", where).header \ "objects" match {
      case JArray(objects) => objects.map {
          case JArray(List(JString(name), JInt(length))) => name -> length.toLong
          case other => throw new IOException(s"the gateway lists $other")
        }.toMap
      case other => throw new IOException(s"the gateway lists $other")
    }
  }

  /** Delete objects. Objects that are already gone are no error. */
  def delete(names: Seq[String]): Unit =
    request("delete", Seq("names" -> JArray(names.map(JString(_)).toList))): Unit

  /** Delete the remains of killed writers once the remains are a day old. */
  def sweep(): Unit = request("sweep", Nil): Unit

  private def request(
      what: String, fields: Seq[JField], body: ByteBuffer = NoBody): GatewayAnswer =
    checked(answerTo(what, fields, body, body.remaining))

  private def checked(answer: GatewayAnswer): GatewayAnswer = {
    answer.error.foreach { case (_, message) => throw new ObjectStoreException(message) }
    answer
  }

  /** Make a request, and return the answer. `bytes`: number of bytes that the request moves. */
  private def answerTo(
      what: String, fields: Seq[JField], body: ByteBuffer, bytes: Long): GatewayAnswer = {
    val failing = new GatewayOutage(location.retrySeconds)
    val silentSeconds = location.silentSecondsFor(bytes)
    val header = JObject((("do" -> JString(what)) +: fields).toList)
    @tailrec
    def tried(): GatewayAnswer = {
      val answer =
        try Right(Gateway.withConnection(location)(_.ask(header, body, silentSeconds)))
        catch {
          case e @ (_: ClosedByInterruptException | _: ObjectStoreException) => throw e
          case e: IOException => Left(e)
        }
      answer match {
        case Right(given) => given
        case Left(error) =>
          logWarning(s"The gateway to $url is gone (${error.getMessage}); asking again")
          Gateway.forgetConnections()
          failing.await(error)
          tried()
      }
    }
    tried()
  }
}

private object GatewayObjects {
  private val Missing = "missing"
  private def NoBody: ByteBuffer = ByteBuffer.allocate(0)
}

/** Failures of the gateway while one request is tried again and again, with growing waits. */
private final class GatewayOutage(retrySeconds: Long) {
  private var deaths = 0
  private lazy val began = System.nanoTime

  /** Wait before the next try. Throws ObjectStoreException when the retry time is over. */
  def await(last: IOException): Unit = {
    val seconds = TimeUnit.NANOSECONDS.toSeconds(-began + System.nanoTime)
    deaths += 1
    if (seconds >= retrySeconds) {
      val (what, way) = last match {
        case _: GatewayUnreachableException => ("could not be asked", "")
        case _ => ("died", "; if memory is short, raise spark.executor.memoryOverhead")
      }
      throw new ObjectStoreException(
        s"the gateway to the object store $what $deaths times in $seconds s, last: " +
          s"${last.getMessage}. Its log is in that of the executor$way")
    }
    Thread.sleep(math.min(LongestWaitMs, FirstWaitMs << math.min(deaths - 1, 10)))
  }

  private val FirstWaitMs = 20L
  private val LongestWaitMs = 2000L
}
