package org.apache.spark.sql.execution.streaming.state.cowstate.gateway

import java.io.{Closeable, EOFException, IOException}
import java.net.{StandardProtocolFamily, UnixDomainSocketAddress}
import java.nio.ByteBuffer
import java.nio.channels.{ClosedByInterruptException, SocketChannel}
import java.nio.charset.StandardCharsets.UTF_8
import java.util.concurrent.TimeUnit

import org.json4s.{JNothing, JObject, JString, JValue}
import org.json4s.jackson.JsonMethods.{compact, parse, render}

import org.apache.spark.util.ThreadUtils

/** An answer of the gateway: a header, and bytes. */
private[cowstate] final case class GatewayAnswer(header: JValue, body: Array[Byte]) {
  /** The kind of error and the message, if the answer is an error. */
  def error: Option[(String, String)] = (header \ "error", header \ "message") match {
    case (JString(kind), JString(message)) => Some((kind, message))
    case (JNothing, _) => None
    case other => throw new IOException(s"the gateway answers $other")
  }
}

/**
 * A connection to the gateway, for one thread and one request at a time.
 * spark_state/gateway/frames.py draws the bytes of requests and answers.
 *
 * If a request has no answer for too long, the connection is closed: the gateway may wait for the
 * object store in a client library that has no time-out. If the gateway has answered no other
 * request meanwhile, the gateway is ended, too: its process may be suspended.
 *
 * @param silentSeconds greatest time without an answer to a call that moves no bytes
 */
private[cowstate] final class GatewayConnection(gateway: GatewayProcess, silentSeconds: Long)
  extends Closeable {
  import GatewayConnection._

  private val channel = connected(gateway, math.min(silentSeconds, MostConnectSeconds))
  // The buffer is outside of the heap, because Java copies a heap buffer to a buffer outside
  // anyway, and the thread keeps the copy.
  private val buffer = ByteBuffer.allocateDirect(BufferBytes)
  var lastUsedNs: Long = System.nanoTime

  /**
   * Make a request and return the answer. Throws GatewayUnreachableException if no answer comes
   * within `silentSeconds`, and IOException if the gateway is gone.
   */
  def ask(header: JObject, body: ByteBuffer, silentSeconds: Long): GatewayAnswer = {
    val beganNs = System.nanoTime
    within(channel, silentSeconds) { answerTo(header, body) } { e =>
      val done = gateway.keepsSilent(beganNs)
      throw new GatewayUnreachableException(
        s"gateway ${gateway.pid} did not answer for $silentSeconds s, $done", e)
    }
  }

  private def answerTo(header: JObject, body: ByteBuffer): GatewayAnswer = {
    val bytes = compact(render(header)).getBytes(UTF_8)
    buffer.clear()
    buffer.putInt(bytes.length)
    send(ByteBuffer.wrap(bytes))
    if (buffer.remaining < java.lang.Long.BYTES) drain()
    buffer.putLong(body.remaining)
    send(body.duplicate())
    drain()
    receive()
  }

  private def send(bytes: ByteBuffer): Unit = while (bytes.hasRemaining) {
    if (!buffer.hasRemaining) drain()
    val count = math.min(buffer.remaining, bytes.remaining)
    val part = bytes.slice()
    part.limit(count)
    buffer.put(part)
    bytes.position(bytes.position() + count)
  }

  private def drain(): Unit = {
    buffer.flip()
    while (buffer.hasRemaining) channel.write(buffer)
    buffer.clear()
  }

  private def receive(): GatewayAnswer = {
    buffer.clear().flip()
    val header = parse(new String(bytes(ByteBuffer.wrap(bytes(4)).getInt), UTF_8))
    val body = bytes(Math.toIntExact(ByteBuffer.wrap(bytes(8)).getLong))
    lastUsedNs = System.nanoTime
    gateway.answered()
    GatewayAnswer(header, body)
  }

  private def bytes(count: Int): Array[Byte] = {
    val into = new Array[Byte](count)
    var at = 0
    while (at < count) {
      if (!buffer.hasRemaining) fill()
      val more = math.min(buffer.remaining, count - at)
      buffer.get(into, at, more)
      at += more
    }
    into
  }

  private def fill(): Unit = {
    buffer.clear()
    if (channel.read(buffer) < 0) throw new EOFException("the gateway closed the connection")
    buffer.flip()
  }

  override def close(): Unit = channel.close()
}

private object GatewayConnection {
  private val BufferBytes = 64 << 10
  /**
   * Limit for connecting. The system connects at once, unless too many connections wait for a
   * suspended gateway.
   */
  private val MostConnectSeconds = 60L

  /** Return a channel to a gateway. A gateway that is alive but takes no connection is ended. */
  private def connected(gateway: GatewayProcess, seconds: Long): SocketChannel = {
    val channel = SocketChannel.open(StandardProtocolFamily.UNIX)
    def ended(why: String, e: IOException) = {
      gateway.end()
      new GatewayUnreachableException(
        s"gateway ${gateway.pid} took no connection ($why), and was ended", e)
    }
    val address = UnixDomainSocketAddress.of(gateway.socketPath)
    try {
      within(channel, seconds) { channel.connect(address) } { e =>
        throw ended(s"within $seconds s", e)
      }
      channel
    } catch {
      case e: GatewayUnreachableException => throw e
      case e: IOException =>
        channel.close()
        if (e.isInstanceOf[ClosedByInterruptException] || !gateway.isAlive) throw e
        throw ended(e.getMessage, e)
    }
  }

  /** Return the result of `f`, or of `late` if `f` took too long and the channel was closed. */
  private def within[T](channel: SocketChannel, seconds: Long)(f: => T)(
      late: IOException => T): T = {
    @volatile var isTooLate = false
    val end: Runnable = () => {
      isTooLate = true
      channel.close()
    }
    val deadline = Deadlines.schedule(end, seconds, TimeUnit.SECONDS)
    try f
    catch { case e: IOException if isTooLate => late(e) }
    finally deadline.cancel(false): Unit
  }

  private val Deadlines =
    ThreadUtils.newDaemonSingleThreadScheduledExecutor("cowstate-gateway-deadlines")
}
