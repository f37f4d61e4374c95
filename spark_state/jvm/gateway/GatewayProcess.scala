package org.apache.spark.sql.execution.streaming.state.cowstate.gateway

import java.io.{BufferedReader, IOException, InputStreamReader}
import java.nio.charset.StandardCharsets.UTF_8
import java.util.concurrent.{CompletableFuture, TimeoutException, TimeUnit}
import java.util.concurrent.atomic.AtomicInteger

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.apache.spark.{SparkConf, SparkEnv}
import org.apache.spark.internal.Logging

/**
 * A running gateway. The gateway ends at the end of its standard input. The JVM holds the input
 * open until the JVM ends, for whatever reason. The gateway's log lines go to the executor's log.
 */
private[cowstate] final class GatewayProcess private (python: String, process: Process)
  extends Logging {
  import GatewayProcess._

  @volatile private var isEnded = false
  @volatile private var lastAnswerNs = System.nanoTime
  private val silentRequests = new AtomicInteger
  private val lastLines = new mutable.Queue[String]
  private val logger = inThread("cowstate-gateway-log") {
    lines(process.getErrorStream).foreach { line =>
      logWarning(line)
      lastLines.synchronized {
        lastLines.enqueue(line)
        if (lastLines.size > KeptLines) lastLines.dequeue()
      }
    }
  }

  /** Path of the gateway's socket. Throws GatewayStartException or GatewayKilledException. */
  val socketPath: String = {
    val said = new CompletableFuture[Option[String]]
    inThread("cowstate-gateway-start")(said.complete(lines(process.getInputStream).nextOption()))
    try said.get(StartSeconds, TimeUnit.SECONDS).getOrElse(throw ended())
    catch {
      case e: TimeoutException =>
        end()
        throw new GatewayStartException(
          s"The gateway to the object store did not start within $StartSeconds s: $python " +
            s"-m $Module", e)
      case e: InterruptedException =>
        end()
        throw e
    }
  }

  /** False once `end` was called, even if the operating system still runs the process. */
  def isAlive: Boolean = !isEnded && process.isAlive

  def pid: Long = process.pid

  /** Note the time of an answer. */
  def answered(): Unit = lastAnswerNs = System.nanoTime

  /**
   * Handle a request that began at `sinceNs` and has no answer for too long. The gateway is ended,
   * unless the gateway has answered another request since `sinceNs`: then only one store is silent,
   * and the requests to other stores go on. Each silent request keeps a thread of the gateway, so
   * after too many silent requests the gateway is ended anyway. Returns the action taken, for the
   * error message.
   */
  def keepsSilent(sinceNs: Long): String =
    if (lastAnswerNs - sinceNs > 0 && silentRequests.incrementAndGet() < MostSilentRequests) {
      "and answered others"
    } else {
      end()
      "and was ended"
    }

  def end(): Unit = {
    isEnded = true
    process.destroyForcibly(): Unit
  }

  /** Return the error for a gateway that ended before listening. */
  private def ended(): Exception = {
    val code = process.waitFor()
    logger.join(LogMillis)
    val last = lastLines.synchronized(lastLines.lastOption.getOrElse("it said nothing"))
    if (code > SignalCodes) {
      new GatewayKilledException(s"the gateway was ended by signal ${code - SignalCodes}")
    } else {
      new GatewayStartException(
        s"The gateway to the object store did not start: $python ended with exit code $code, " +
          s"last with: $last. ${wayOut(python)}", null)
    }
  }
}

private[cowstate] object GatewayProcess {
  private val Module = "spark_state.gateway.server"
  private val PythonKey = "spark.pyspark.python"
  private val StartSeconds = 60L
  private val LogMillis = 5000L
  private val KeptLines = 20
  private val MostSilentRequests = 32
  /** An exit code above 128 is 128 plus the signal that ended the process. */
  private val SignalCodes = 128
  /** Prefixes of the variables that Spark sets for its own processes and for Python workers. */
  private val OfSpark = Seq("SPARK_", "PYSPARK_", "_PYSPARK", "PYTHON_", "PYTHONHASHSEED")

  /** Start a gateway. Throws GatewayStartException or GatewayKilledException. */
  def start(): GatewayProcess = {
    val python = interpreter
    // Python must not import from the executor's working directory, hence PYTHONSAFEPATH below.
    val builder = new ProcessBuilder(python, "-m", Module)
    val environment = builder.environment
    environment.keySet.asScala.toSeq.filter(name => OfSpark.exists(name.startsWith))
      .foreach(environment.remove)
    environment.put("PYTHONSAFEPATH", "1")
    environment.put("PYTHONUNBUFFERED", "1")
    val process =
      try builder.start()
      catch {
        case e: IOException => throw new GatewayStartException(
            s"The gateway to the object store did not start: ${e.getMessage}. ${wayOut(python)}", e)
      }
    new GatewayProcess(python, process)
  }

  /** The executor's Python interpreter, chosen as for Spark's own Python workers. */
  def interpreter: String =
    Option(SparkEnv.get).map(_.conf).getOrElse(new SparkConf).getOption(PythonKey)
      .orElse(sys.env.get("PYSPARK_PYTHON")).getOrElse("python3")

  private def wayOut(python: String): String =
    s"Install cowstate for it on every executor ($python -m pip install cowstate, with the extra " +
      s"s3 for S3), or name another interpreter with $PythonKey or PYSPARK_PYTHON"

  private def lines(stream: java.io.InputStream): Iterator[String] = {
    val reader = new BufferedReader(new InputStreamReader(stream, UTF_8))
    Iterator.continually(reader.readLine()).takeWhile(_ != null)
  }

  private def inThread(name: String)(f: => Any): Thread = {
    val thread = new Thread(() => f: Unit, name)
    thread.setDaemon(true)
    thread.start()
    thread
  }
}
