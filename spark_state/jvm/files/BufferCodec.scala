package org.apache.spark.sql.execution.streaming.state.cowstate.files

import java.nio.{ByteBuffer, ByteOrder}

import com.github.luben.zstd.Zstd
import org.apache.arrow.flatbuf.CompressionType

import org.apache.spark.sql.execution.streaming.state.cowstate.base.CowStateException

/**
 * Compression of the buffers of a record batch with Zstandard. A buffer is the uncompressed length
 * as a long, then the compressed bytes. The length is -1 for a buffer stored without compression.
 * An instance is used by one thread at a time.
 */
private[cowstate] final class BufferCodec {
  import BufferCodec._

  private var scratch = Array.emptyByteArray

  /** Return the first `length` bytes as a buffer of a record batch. */
  def encode(bytes: Array[Byte], length: Int): Array[Byte] = {
    if (length == 0) return Array.emptyByteArray
    val most = Zstd.compressBound(length)
    val isTried = length >= MinBytes && most <= MaxArrayBytes
    val size = if (isTried) compressed(bytes, length, most.toInt) else length
    val isSmall = size < length
    val result = ByteBuffer.allocate(8 + size.min(length)).order(ByteOrder.LITTLE_ENDIAN)
    result.putLong(if (isSmall) length else -1L)
    if (isSmall) result.put(scratch, 0, size) else result.put(bytes, 0, length)
    result.array
  }

  private def compressed(bytes: Array[Byte], length: Int, most: Int): Int = {
    if (scratch.length < most) scratch = new Array[Byte](most)
    val size = Zstd.compressByteArray(scratch, 0, scratch.length, bytes, 0, length, Level)
    if (Zstd.isError(size)) throw new CowStateException(Zstd.getErrorName(size))
    size.toInt
  }
}

private[cowstate] object BufferCodec {
  val ArrowType: Byte = CompressionType.ZSTD
  private val MinBytes = 128
  private val MaxArrayBytes = Int.MaxValue - 8
  private val Level = 1

  /**
   * Return the decoded bytes of a buffer. The buffer begins at `offset` of `body` and takes `length`
   * bytes, with its length prefix.
   */
  def decode(body: Array[Byte], offset: Int, length: Int): Array[Byte] = {
    if (length == 0) return Array.emptyByteArray
    val size = ByteBuffer.wrap(body).order(ByteOrder.LITTLE_ENDIAN).getLong(offset)
    val from = offset + 8
    val count = length - 8
    if (size == -1L) return java.util.Arrays.copyOfRange(body, from, from + count)
    val result = new Array[Byte](Math.toIntExact(size))
    val got = Zstd.decompressByteArray(result, 0, result.length, body, from, count)
    require(got == size, s"a buffer of $size bytes decompresses to $got")
    result
  }
}
