package org.apache.spark.sql.execution.streaming.state.cowstate.files

import java.io.ByteArrayInputStream
import java.nio.{ByteBuffer, ByteOrder}
import java.util.Locale

import com.github.luben.zstd.Zstd
import net.jpountz.lz4.{LZ4Factory, LZ4FrameInputStream}
import net.jpountz.xxhash.XXHashFactory
import org.apache.arrow.flatbuf.CompressionType

import org.apache.spark.sql.execution.streaming.state.cowstate.base.CowStateException

/**
 * Compression of the buffers of a record batch. A buffer is the uncompressed length as a long, then
 * the compressed bytes. The length is -1 for a buffer stored without compression. An instance is
 * used by one thread at a time.
 */
private[cowstate] sealed abstract class BufferCodec(val arrowType: Byte) {
  private var scratch = Array.emptyByteArray

  /** Return the greatest number of bytes that `compress` may need for `length` bytes. */
  protected def bound(length: Int): Long

  /** Compress the first `length` bytes into `to`. Returns the number of compressed bytes. */
  protected def compress(bytes: Array[Byte], length: Int, to: Array[Byte]): Int

  final def encode(bytes: Array[Byte], length: Int): Array[Byte] = {
    if (length == 0) return Array.emptyByteArray
    val most = bound(length)
    val isTried = length >= BufferCodec.MinBytes && most <= BufferCodec.MaxArrayBytes
    val size = if (isTried) compressed(bytes, length, most.toInt) else length
    val isSmall = size < length
    val result = ByteBuffer.allocate(8 + size.min(length)).order(ByteOrder.LITTLE_ENDIAN)
    result.putLong(if (isSmall) length else -1L)
    if (isSmall) result.put(scratch, 0, size) else result.put(bytes, 0, length)
    result.array
  }

  private def compressed(bytes: Array[Byte], length: Int, most: Int): Int = {
    if (scratch.length < most) scratch = new Array[Byte](most)
    compress(bytes, length, scratch)
  }
}

private[cowstate] object BufferCodec {
  private val MinBytes = 128
  private val MaxArrayBytes = Int.MaxValue - 8
  private val ZstdLevel = 1

  /**
   * Codec for LZ4 frames: magic number, descriptor, blocks with their lengths, and a length of
   * zero. The stream class of the LZ4 library is not used, because the class allocates more bytes
   * than it writes.
   */
  private final class Lz4 extends BufferCodec(CompressionType.LZ4_FRAME) {
    import Lz4._

    private val compressor = LZ4Factory.fastestInstance().fastCompressor()

    /**
     * A block that compression does not shorten is stored without compression, but the compressor
     * may ask for more room than the block takes.
     */
    override protected def bound(length: Int): Long = {
      val blocks = (length.toLong + BlockBytes - 1) / BlockBytes
      HeaderBytes + 4 + length + blocks * (4 + BlockBytes / 255 + 16)
    }

    override protected def compress(bytes: Array[Byte], length: Int, to: Array[Byte]): Int = {
      val frame = ByteBuffer.wrap(to).order(ByteOrder.LITTLE_ENDIAN)
      frame.putInt(Magic).put(Descriptor).put(DescriptorChecksum)
      var from = 0
      while (from < length) {
        val count = math.min(BlockBytes, length - from)
        val at = frame.position()
        val size = compressor.compress(bytes, from, count, to, at + 4)
        if (size < count) {
          frame.putInt(size).position(at + 4 + size)
        } else {
          frame.putInt(count | IsNotCompressed).put(bytes, from, count)
        }
        from += count
      }
      frame.putInt(0).position()
    }
  }

  /** Constants of the "LZ4 Frame Format Description", version 1.6. */
  private object Lz4 {
    val Magic = 0x184d2204
    /** Version 1, independent blocks, no checksums; blocks of at most 256 KiB. */
    val Descriptor: Array[Byte] = Array(0x60, 0x50)
    val BlockBytes: Int = 256 << 10
    val DescriptorChecksum: Byte = {
      val hash = XXHashFactory.fastestInstance().hash32()
      (hash.hash(Descriptor, 0, Descriptor.length, 0) >>> 8).toByte
    }
    val HeaderBytes = 7
    val IsNotCompressed: Int = 1 << 31
  }

  private final class ZstdCodec extends BufferCodec(CompressionType.ZSTD) {
    override protected def bound(length: Int): Long = Zstd.compressBound(length)

    override protected def compress(bytes: Array[Byte], length: Int, to: Array[Byte]): Int = {
      val size = Zstd.compressByteArray(to, 0, to.length, bytes, 0, length, ZstdLevel)
      if (Zstd.isError(size)) throw new CowStateException(Zstd.getErrorName(size))
      size.toInt
    }
  }

  /**
   * Return the codec for spark.sql.streaming.stateStore.compression.codec, a short name or a class.
   * Arrow knows lz4 and zstd. For snappy and lzf, unknown to Arrow, the codec is lz4.
   */
  def of(sparkCodec: String): BufferCodec =
    if (sparkCodec.toLowerCase(Locale.ROOT).contains("zstd")) new ZstdCodec else new Lz4

  /** Decode a buffer written with Arrow's codec number `arrowType`, -1 for no compression. */
  def decode(body: Array[Byte], offset: Int, length: Int, arrowType: Byte): Array[Byte] = {
    if (length == 0) return Array.emptyByteArray
    if (arrowType < 0) return java.util.Arrays.copyOfRange(body, offset, offset + length)
    val size = ByteBuffer.wrap(body).order(ByteOrder.LITTLE_ENDIAN).getLong(offset)
    val from = offset + 8
    val count = length - 8
    if (size == -1L) return java.util.Arrays.copyOfRange(body, from, from + count)
    val result = new Array[Byte](Math.toIntExact(size))
    if (arrowType == CompressionType.ZSTD) {
      val got = Zstd.decompressByteArray(result, 0, result.length, body, from, count)
      require(got == size, s"a buffer of $size bytes decompresses to $got")
    } else {
      val in = new LZ4FrameInputStream(new ByteArrayInputStream(body, from, count))
      val got = in.readNBytes(result, 0, result.length)
      require(got == size, s"a buffer of $size bytes decompresses to $got")
    }
    result
  }
}
