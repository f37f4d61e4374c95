package org.apache.spark.sql.execution.streaming.state.cowstate

import java.io.{ByteArrayInputStream, ByteArrayOutputStream}
import java.nio.{ByteBuffer, ByteOrder}
import java.util.Locale

import com.github.luben.zstd.Zstd
import net.jpountz.lz4.{LZ4FrameInputStream, LZ4FrameOutputStream}
import net.jpountz.lz4.LZ4FrameOutputStream.{BLOCKSIZE, FLG}
import org.apache.arrow.flatbuf.CompressionType

/**
 * Compression of the buffers of a record batch: the uncompressed length as long, -1 for a buffer
 * that is stored as it is, and the compressed bytes.
 */
private[cowstate] sealed abstract class BufferCodec(val arrowType: Byte) {
  protected def compressed(bytes: Array[Byte], length: Int): Array[Byte]

  final def encode(bytes: Array[Byte], length: Int): Array[Byte] = {
    if (length == 0) return Array.emptyByteArray
    val body = if (length < BufferCodec.MinBytes) null else compressed(bytes, length)
    val small = body != null && body.length < length
    val result = ByteBuffer.allocate(8 + (if (small) body.length else length))
    result.order(ByteOrder.LITTLE_ENDIAN).putLong(if (small) length else -1L)
    if (small) result.put(body) else result.put(bytes, 0, length)
    result.array
  }
}

private[cowstate] object BufferCodec {
  private val MinBytes = 128
  private val ZstdLevel = 1

  private object Lz4 extends BufferCodec(CompressionType.LZ4_FRAME) {
    override protected def compressed(bytes: Array[Byte], length: Int): Array[Byte] = {
      val out = new ByteArrayOutputStream(length / 2 + 64)
      val block = if (length <= (64 << 10)) BLOCKSIZE.SIZE_64KB else BLOCKSIZE.SIZE_256KB
      val stream = new LZ4FrameOutputStream(out, block, FLG.Bits.BLOCK_INDEPENDENCE)
      stream.write(bytes, 0, length)
      stream.close()
      out.toByteArray
    }
  }

  private object ZstdCodec extends BufferCodec(CompressionType.ZSTD) {
    override protected def compressed(bytes: Array[Byte], length: Int): Array[Byte] = {
      val out = new Array[Byte](Math.toIntExact(Zstd.compressBound(length)))
      val size = Zstd.compressByteArray(out, 0, out.length, bytes, 0, length, ZstdLevel)
      if (Zstd.isError(size)) throw new CowStateException(Zstd.getErrorName(size))
      java.util.Arrays.copyOf(out, size.toInt)
    }
  }

  /**
   * The codec of spark.sql.streaming.stateStore.compression.codec, a short name or a class. Arrow
   * knows lz4 and zstd; snappy and lzf, which it does not, become lz4.
   */
  def of(sparkCodec: String): BufferCodec =
    if (sparkCodec.toLowerCase(Locale.ROOT).contains("zstd")) ZstdCodec else Lz4

  /** The bytes of a buffer that was written with Arrow's codec `arrowType`, -1 for none. */
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
