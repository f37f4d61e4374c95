package org.apache.spark.sql.execution.streaming.state.cowstate.files

import java.nio.{ByteBuffer, ByteOrder}
import java.nio.charset.StandardCharsets.UTF_8

import com.google.flatbuffers.FlatBufferBuilder
import org.apache.arrow.flatbuf.{Binary, Block, BodyCompression, BodyCompressionMethod, Buffer}
import org.apache.arrow.flatbuf.{Endianness, Field, FieldNode, Footer, Int => IntType, KeyValue}
import org.apache.arrow.flatbuf.{Message, MessageHeader, MetadataVersion, RecordBatch, Schema, Type}

/**
 * Arrow IPC messages of a state file (https://arrow.apache.org/docs/format/Columnar.html), for the
 * schema of state files:
 *
 *   key       binary, never null
 *   value     binary, null: the key was removed
 *   checksum  int32, never null, in files of rows with checksums only (see RowChecksums)
 *
 * A message is FF FF FF FF, its length as int, a flatbuffer, and padding to 8 bytes. The buffers of
 * a record batch follow the message.
 */
private[cowstate] object ArrowIpc {
  val Magic: Array[Byte] = "ARROW1".getBytes(UTF_8)
  /** Offset in the body and length of each buffer of a record batch. */
  type Buffers = Array[(Long, Long)]

  final case class FileBlock(offset: Long, metadataBytes: Int, bodyBytes: Long)

  def padded(length: Int): Int = (length + 7) & ~7

  /**
   * Number of buffers of a record batch: validity, offsets and data of the two binary columns;
   * validity and data of the checksums.
   */
  def bufferCount(checksums: Boolean): Int = if (checksums) 8 else 6

  def schemaMessage(checksums: Boolean): Array[Byte] = {
    val builder = new FlatBufferBuilder(512)
    message(builder, MessageHeader.Schema, schema(builder, checksums, Nil), 0)
  }

  /** Return the message of a record batch. BufferCodec has encoded the buffers. */
  def recordBatchMessage(
      rows: Int, removed: Int, buffers: Buffers, bodyBytes: Long): Array[Byte] = {
    val builder = new FlatBufferBuilder(512)
    val checksums = buffers.length == bufferCount(checksums = true)
    RecordBatch.startNodesVector(builder, if (checksums) 3 else 2)
    if (checksums) FieldNode.createFieldNode(builder, rows, 0)
    FieldNode.createFieldNode(builder, rows, removed)
    FieldNode.createFieldNode(builder, rows, 0)
    val nodes = builder.endVector()
    RecordBatch.startBuffersVector(builder, buffers.length)
    buffers.reverse.foreach { case (offset, length) =>
      Buffer.createBuffer(builder, offset, length)
    }
    val list = builder.endVector()
    val compression = BodyCompression.createBodyCompression(
      builder, BufferCodec.ArrowType, BodyCompressionMethod.BUFFER)
    RecordBatch.startRecordBatch(builder)
    RecordBatch.addLength(builder, rows)
    RecordBatch.addNodes(builder, nodes)
    RecordBatch.addBuffers(builder, list)
    RecordBatch.addCompression(builder, compression)
    message(builder, MessageHeader.RecordBatch, RecordBatch.endRecordBatch(builder), bodyBytes)
  }

  /** Return the footer's flatbuffer, with the places of the record batches and with `metadata`. */
  def footer(
      blocks: Seq[FileBlock], checksums: Boolean, metadata: Seq[(String, String)]): Array[Byte] = {
    val builder = new FlatBufferBuilder(1024)
    val schemaOffset = schema(builder, checksums, metadata)
    Footer.startDictionariesVector(builder, 0)
    val dictionaries = builder.endVector()
    Footer.startRecordBatchesVector(builder, blocks.length)
    blocks.reverse.foreach(b => Block.createBlock(builder, b.offset, b.metadataBytes, b.bodyBytes))
    val list = builder.endVector()
    Footer.startFooter(builder)
    Footer.addVersion(builder, MetadataVersion.V5)
    Footer.addSchema(builder, schemaOffset)
    Footer.addDictionaries(builder, dictionaries)
    Footer.addRecordBatches(builder, list)
    builder.finish(Footer.endFooter(builder))
    builder.sizedByteArray()
  }

  /**
   * Return the number of rows of a record batch and its `count` buffers, parsed from the flatbuffer
   * of the message.
   */
  def parseRecordBatch(message: Array[Byte], count: Int): (Int, Buffers) = {
    val buffer = ByteBuffer.wrap(message).order(ByteOrder.LITTLE_ENDIAN).position(8)
    val header = Message.getRootAsMessage(buffer)
    require(header.headerType == MessageHeader.RecordBatch, "the message is no record batch")
    val batch = new RecordBatch
    header.header(batch)
    require(batch.buffersLength == count, s"a record batch has ${batch.buffersLength} buffers")
    require(
      batch.compression != null && batch.compression.codec == BufferCodec.ArrowType,
      "a record batch is not compressed with Zstandard")
    val buffers = Array.tabulate(count) { i =>
      val place = batch.buffers(i)
      (place.offset, place.length)
    }
    (Math.toIntExact(batch.length), buffers)
  }

  private def message(
      builder: FlatBufferBuilder, kind: Byte, header: Int, bodyBytes: Long): Array[Byte] = {
    Message.startMessage(builder)
    Message.addHeaderType(builder, kind)
    Message.addHeader(builder, header)
    Message.addVersion(builder, MetadataVersion.V5)
    Message.addBodyLength(builder, bodyBytes)
    builder.finish(Message.endMessage(builder))
    val bytes = builder.sizedByteArray()
    val whole = ByteBuffer.allocate(8 + padded(bytes.length)).order(ByteOrder.LITTLE_ENDIAN)
    whole.putInt(-1).putInt(padded(bytes.length)).put(bytes)
    whole.array
  }

  private def schema(
      builder: FlatBufferBuilder, checksums: Boolean, metadata: Seq[(String, String)]): Int = {
    val pairs = metadata.map { case (key, value) =>
      KeyValue.createKeyValue(builder, builder.createString(key), builder.createString(value))
    }
    val custom = if (pairs.isEmpty) 0 else Schema.createCustomMetadataVector(builder, pairs.toArray)
    val binary = Seq(
      binaryField(builder, "key", nullable = false), binaryField(builder, "value", nullable = true))
    val fields = if (checksums) binary :+ checksumField(builder) else binary
    val list = Schema.createFieldsVector(builder, fields.toArray)
    Schema.startSchema(builder)
    Schema.addEndianness(builder, Endianness.Little)
    Schema.addFields(builder, list)
    if (custom != 0) Schema.addCustomMetadata(builder, custom)
    Schema.endSchema(builder)
  }

  private def binaryField(builder: FlatBufferBuilder, name: String, nullable: Boolean): Int = {
    Binary.startBinary(builder)
    field(builder, name, nullable, Type.Binary, Binary.endBinary(builder))
  }

  private def checksumField(builder: FlatBufferBuilder): Int =
    field(builder, "checksum", nullable = false, Type.Int, IntType.createInt(builder, 32, true))

  private def field(
      builder: FlatBufferBuilder,
      name: String,
      nullable: Boolean,
      kind: Byte,
      typeOffset: Int): Int = {
    val nameOffset = builder.createString(name)
    val children = Field.createChildrenVector(builder, Array.empty[Int])
    Field.startField(builder)
    Field.addName(builder, nameOffset)
    Field.addNullable(builder, nullable)
    Field.addTypeType(builder, kind)
    Field.addType(builder, typeOffset)
    Field.addChildren(builder, children)
    Field.endField(builder)
  }
}
