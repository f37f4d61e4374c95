package org.apache.spark.sql.execution.streaming.state.cowstate

import java.io.{BufferedReader, IOException, InputStreamReader}
import java.nio.charset.StandardCharsets.UTF_8
import java.util.concurrent.{CompletableFuture, TimeoutException, TimeUnit}
import java.util.concurrent.atomic.AtomicInteger

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.apache.spark.{SparkConf, SparkEnv}
import org.apache.spark.internal.Logging

/**
 * A running gateway. It ends when its standard input does, which this process holds open until it
 * ends itself, however that happens. What the gateway logs goes to the log of the executor.
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

  /** Where it listens. Throws GatewayStartException, and GatewayKilledException. */
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

  /** One that was ended is gone for us, even if the system has not let it go yet. */
  def isAlive: Boolean = !isEnded && process.isAlive

  def pid: Long = process.pid

  /** It has answered a request. */
  def answered(): Unit = lastAnswerNs = System.nanoTime

  /**
   * A request that began then has no answer for too long. The gateway is ended, unless it answers
   * others: then one store is silent, and the others go on. Each silent request keeps a thread of
   * the gateway, so it is not spared for ever. Returns what was done.
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

  /** It ended before it listened. */
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
  /** From 128 on, an exit code tells the signal that ended a process. */
  private val SignalCodes = 128
  /** What Spark sets for its own processes, and for Python workers. */
  private val OfSpark = Seq("SPARK_", "PYSPARK_", "_PYSPARK", "PYTHON_", "PYTHONHASHSEED")

  /** Start one. Throws GatewayStartException, and GatewayKilledException. */
  def start(): GatewayProcess = {
    val python = interpreter
    // The directory in which an executor runs is nothing to import from.
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

  /** The Python of this executor, chosen as that of Spark's own workers is. */
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
