package org.apache.spark.sql.execution.streaming.state.cowstate.files

import java.nio.{ByteBuffer, ByteOrder}
import java.nio.charset.StandardCharsets.UTF_8

import com.google.flatbuffers.FlatBufferBuilder
import org.apache.arrow.flatbuf.{Binary, Block, BodyCompression, BodyCompressionMethod, Buffer}
import org.apache.arrow.flatbuf.{Endianness, Field, FieldNode, FixedSizeBinary, Footer}
import org.apache.arrow.flatbuf.{Int => IntType, KeyValue, Message, MessageHeader}
import org.apache.arrow.flatbuf.{MetadataVersion, RecordBatch, Schema, Type}

/**
 * Arrow IPC messages of a state file (https://arrow.apache.org/docs/format/Columnar.html). A
 * message is FF FF FF FF, the length of the rest of the message as int, a flatbuffer, and padding
 * to 8 bytes. The buffers of a record batch follow the message.
 */
private[cowstate] object ArrowIpc {
  val Magic: Array[Byte] = "ARROW1".getBytes(UTF_8)

  /** Place of a buffer in the body of a record batch. */
  final case class Place(offset: Long, length: Long)

  final case class FileBlock(offset: Long, metadataBytes: Int, bodyBytes: Long)

  def padded(length: Int): Int = (length + 7) & ~7

  def schemaMessage(columns: Seq[ArrowColumn]): Array[Byte] = {
    val builder = new FlatBufferBuilder(512)
    message(builder, MessageHeader.Schema, schema(builder, columns, Nil), 0)
  }

  /**
   * Return the message of a record batch. `columns` has the places of the buffers in the body. The
   * message says that the buffers are compressed, see BufferCodec.
   */
  def recordBatchMessage(
      rows: Int, columns: Seq[ColumnBuffers[Place]], bodyBytes: Long): Array[Byte] = {
    val builder = new FlatBufferBuilder(512)
    RecordBatch.startNodesVector(builder, columns.length)
    columns.reverseIterator
      .foreach(column => FieldNode.createFieldNode(builder, rows, column.nulls))
    val nodes = builder.endVector()
    val places = columns.flatMap(_.buffers)
    RecordBatch.startBuffersVector(builder, places.length)
    places.reverseIterator
      .foreach(place => Buffer.createBuffer(builder, place.offset, place.length))
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
      blocks: Seq[FileBlock], columns: Seq[ArrowColumn], metadata: Seq[(String, String)])
      : Array[Byte] = {
    val builder = new FlatBufferBuilder(1024)
    val schemaOffset = schema(builder, columns, metadata)
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

  /** Return the columns of a schema. */
  def columnsOf(schema: Schema): Seq[ArrowColumn] = Seq.tabulate(schema.fieldsLength) { i =>
    val field = schema.fields(i)
    ArrowColumn(field.name, field.nullable, typeOf(field))
  }

  private def typeOf(field: Field): ColumnType = field.typeType match {
    case Type.Binary => ColumnType.AnyBinary
    case Type.FixedSizeBinary =>
      val fixed = new FixedSizeBinary
      field.`type`(fixed)
      ColumnType.FixedBinary(fixed.byteWidth)
    case Type.Int => ColumnType.Int32
    case other => throw new IllegalArgumentException(s"a column of type $other")
  }

  /**
   * Return the number of rows of a record batch, and its columns by name, parsed from the
   * flatbuffer of the message.
   */
  def parseRecordBatch(
      message: Array[Byte], columns: Seq[ArrowColumn])
      : (Int, Map[String, ColumnBuffers[Place]]) = {
    val buffer = ByteBuffer.wrap(message).order(ByteOrder.LITTLE_ENDIAN).position(8)
    val header = Message.getRootAsMessage(buffer)
    require(header.headerType == MessageHeader.RecordBatch, "the message is no record batch")
    val batch = new RecordBatch
    header.header(batch)
    val firsts = columns.scanLeft(0)(_ + _.kind.buffers)
    require(batch.buffersLength == firsts.last,
      s"a record batch has ${batch.buffersLength} buffers")
    require(
      batch.compression != null && batch.compression.codec == BufferCodec.ArrowType,
      "a record batch is not compressed with Zstandard")
    val parsed = columns.indices.map { i =>
      val places = (firsts(i) until firsts(i + 1)).map { number =>
        val place = batch.buffers(number)
        Place(place.offset, place.length)
      }
      columns(i).name -> ColumnBuffers(Math.toIntExact(batch.nodes(i).nullCount), places)
    }
    (Math.toIntExact(batch.length), parsed.toMap)
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
      builder: FlatBufferBuilder, columns: Seq[ArrowColumn], metadata: Seq[(String, String)])
      : Int = {
    val pairs = metadata.map { case (key, value) =>
      KeyValue.createKeyValue(builder, builder.createString(key), builder.createString(value))
    }
    val custom = if (pairs.isEmpty) 0 else Schema.createCustomMetadataVector(builder, pairs.toArray)
    val list = Schema.createFieldsVector(builder, columns.map(field(builder, _)).toArray)
    Schema.startSchema(builder)
    Schema.addEndianness(builder, Endianness.Little)
    Schema.addFields(builder, list)
    if (custom != 0) Schema.addCustomMetadata(builder, custom)
    Schema.endSchema(builder)
  }

  private def field(builder: FlatBufferBuilder, column: ArrowColumn): Int = {
    val (kind, typeOffset) = column.kind match {
      case ColumnType.Int32 => (Type.Int, IntType.createInt(builder, 32, true))
      case ColumnType.FixedBinary(width) =>
        (Type.FixedSizeBinary, FixedSizeBinary.createFixedSizeBinary(builder, width))
      case ColumnType.AnyBinary =>
        Binary.startBinary(builder)
        (Type.Binary, Binary.endBinary(builder))
    }
    val name = builder.createString(column.name)
    val children = Field.createChildrenVector(builder, Array.empty[Int])
    Field.startField(builder)
    Field.addName(builder, name)
    Field.addNullable(builder, column.isNullable)
    Field.addTypeType(builder, kind)
    Field.addType(builder, typeOffset)
    Field.addChildren(builder, children)
    Field.endField(builder)
  }
}
