package org.apache.spark.sql.execution.streaming.state.cowstate

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.unsafe.Platform

/**
 * The copy-on-write map with incremental rehash of docs/explanation/provider.md, on pages of bytes.
 *
 * RecordPages hold the rows, and a KeyIndex leads from a key to its record. No object stands for an
 * entry.
 *
 * Time is counted in epochs. Opening a view ends one: what was written in it or before is shared
 * with the view, and a change to a shared record goes to a new one, while the view goes on reading
 * the old one. Records that no view shares are changed in place if the length of the value stays,
 * and if the memory is one where that is cheap. MapView tells why views stay right.
 *
 * Dead records are freed page by page: whenever enough bytes have died, the live records move out
 * of pages that are dead by more than half. Freeing a byte costs at most copying one.
 *
 * With `prefixOf`, records whose keys have the same prefix are linked with each other, and
 * `prefixScan` follows the links.
 *
 * Each method that reads or writes bytes takes the lock of the map, under which its memory is
 * unmapped, too. A caller takes it for steps that belong together. A view is read without it, by any
 * thread, while this map changes.
 *
 * @param memory    where pages and tables are
 * @param prefixOf  the prefix of a key; the row that it returns is used at once
 * @param checksums of the rows; what `get`, `prefixScan` and views return is verified as it says
 */
private[cowstate] final class CopyOnWritePagedMap(
    memory: StateMemory,
    private[cowstate] val prefixOf: Option[UnsafeRow => UnsafeRow],
    val checksums: RowChecksums = RowChecksums.Off) {
  import CopyOnWritePagedMap._
  import KeyIndex.hashOf
  import RecordPages._

  private val account = memory.account
  private val views = new OpenViews(account)
  private val records =
    new RecordPages(if (prefixOf.isDefined) PrefixLinksBytes else 0, memory, views)
  private val index = new KeyIndex(records, memory)
  private val prefixes = prefixOf.map(new PrefixLinks(records, memory, _))
  private val finds = new RecentFinds(account)
  private val fetched = new FetchedKeys
  private val prefetches = new Prefetches(records, index, fetched)
  /** For the event time by which rows were last looked for. */
  private var zones: Option[ZoneMap] = None
  /** The record behind the last that was read, 0 if there is none; and whether reads go that way. */
  private var following = 0L
  private var readsInOrder = false
  /** Whether the index knows the slot of the record that was found. */
  private var hasSlot = false
  private var epoch = 1
  private var compactAt = MinCompactBytes
  /** Table, links and pages do not agree while it is set. */
  private var isChanging = false
  private val scratchKey = new UnsafeRow(0)
  private var scratchValue = new UnsafeRow(0)

  def size: Int = index.size
  def currentEpoch: Int = epoch
  /** Bytes of the keys and values. */
  def rowBytes: Long = records.liveBytes - size.toLong * records.headerBytes
  def pageCount: Int = records.pageCount + prefixes.map(_.heads.pageCount).getOrElse(0)
  def deadBytes: Long = records.deadBytes + prefixes.map(_.heads.deadBytes).getOrElse(0L)

  /** How much of a rehash is done, in percent; 100 when there is none. */
  def rehashPercent: Int = index.rehashPercent

  /**
   * Whether an error ended a change in its middle, as if a file could not grow. The map is then none
   * of its versions, and cannot be brought back to one.
   */
  def isBroken: Boolean = isChanging || prefixes.exists(_.heads.isBroken)

  /** End an epoch and begin the next, which is returned. */
  def beginEpoch(): Int = synchronized {
    finds.clear()
    fetched.clear()
    following = 0
    records.reuseNumbers()
    prefixes.foreach(_.heads.beginEpoch())
    epoch = Math.incrementExact(epoch)
    epoch
  }

  /** To be called before the map is filled: makes room for so many entries, if memory permits. */
  def reserve(expected: Long): Unit = synchronized(index.reserve(expected))

  /**
   * To be called after the map was filled: makes the table smaller if much less came than was
   * expected. That takes time of `size`, so a table that is one size too large stays.
   */
  def trim(): Unit = synchronized(index.trim())

  /**
   * Give all memory back, but for pages that views read. The map cannot be used any more, also not
   * to tell that a key is absent which was looked for before.
   */
  def close(): Unit = synchronized {
    fetched.clear()
    memory.close(isRead = views.newest > 0)
  }

  /** A copy of the value of a key, null if there is none. */
  def get(key: UnsafeRow, valueFields: Int): UnsafeRow = synchronized {
    val address = findToRead(key)
    if (address == 0) null
    else {
      finds.note(address)
      verifiedValue(address, valueFields)
    }
  }

  /**
   * As `find`. A join looks for old rows in the order in which they came, which is that of their
   * records. Then the record behind the last one is likely the key's, and is in the processor's
   * cache; the line of the table is not.
   */
  private def findToRead(key: UnsafeRow): Long = {
    val address =
      if (readsInOrder && isRecordOf(following, key)) following
      else find(key, hashOf(key))
    if (address != 0) {
      readsInOrder = address == following
      following = records.after(address)
    }
    address
  }

  def contains(key: UnsafeRow): Boolean = synchronized(find(key, hashOf(key)) != 0)

  /** Put a row that has no checksum yet. */
  def put(key: UnsafeRow, value: UnsafeRow, undo: UndoLog): Unit =
    put(key, value, checksums.of(key, value), undo)

  /** Put a row whose key is not there. */
  def add(key: UnsafeRow, hash: Int, value: UnsafeRow, checksum: Int): Unit =
    synchronized(insert(key, hash, value, checksum))

  /**
   * To be called before many keys are looked up: fetches what that reads. Returns how many records
   * there are, and tells for each key in `isThere`, unless that is null.
   */
  def prefetch(hashes: Array[Int], count: Int, isThere: Array[Boolean] = null): Int =
    synchronized(prefetches.ofKeys(hashes, count, isThere))

  /** Put a value; what it replaces goes to `undo`, unless that is null. */
  def put(key: UnsafeRow, value: UnsafeRow, checksum: Int, undo: UndoLog): Unit =
    put(key, hashOf(key), value, checksum, undo)

  def put(
      key: UnsafeRow, hash: Int, value: UnsafeRow, checksum: Int, undo: UndoLog): Unit =
    synchronized {
      val address = findToWrite(key, hash)
      if (address == 0) {
        if (undo != null) undo.logAbsent(key)
        insert(key, hash, value, checksum)
      } else {
        val base = records.base(address)
        val at = records.offset(address)
        val modified = Platform.getInt(base, at + Modified)
        if (undo != null && modified < undo.epoch) logOld(undo, base, at)
        if (modified > views.newest && records.isChangedInPlace(address) &&
            Platform.getInt(base, at + ValueLength) == value.getSizeInBytes) {
          Platform.putInt(base, at + Modified, epoch)
          Platform.putInt(base, at + Checksum, checksum)
          Words.copy(value, base, at + records.headerBytes + key.getSizeInBytes)
          if (zones.isDefined) zones.get.changed(address)
        } else {
          val copy = append(key, value, checksum)
          if (!hasSlot) index.findAddress(address, hash)
          isChanging = true
          replaceFound(address, copy)
          records.bury(address, epoch)
          isChanging = false
          compactIfDue()
        }
      }
    }

  /** Remove a key; returns whether it was there. Its value goes to `undo`, unless that is null. */
  def remove(key: UnsafeRow, undo: UndoLog): Boolean = synchronized {
    val hash = hashOf(key)
    val address = findToWrite(key, hash)
    val isThere = address != 0
    if (isThere) {
      removeRecord(address, hash, undo)
      compactIfDue()
    }
    isThere
  }

  /**
   * Remove the record at an address, of a key with this hash. No other record moves, so
   * `compactIfDue` is to be called when some of them were removed.
   */
  def removeAt(address: Long, hash: Int, undo: UndoLog): Unit = synchronized {
    verify(address)
    hasSlot = false
    removeRecord(address, hash, undo)
  }

  /** Remove a key if its value, where it is in the map, fulfils a condition. Then as `removeAt`. */
  def removeIf(key: UnsafeRow, hash: Int, undo: UndoLog, valueFields: Int)(
      condition: UnsafeRow => Boolean): Boolean = synchronized {
    val address = find(key, hash)
    val isRemoved = address != 0 && condition(valueAt(address, valueFields))
    if (isRemoved) removeRecord(address, hash, undo)
    isRemoved
  }

  private def removeRecord(address: Long, hash: Int, undo: UndoLog): Unit = {
    if (!hasSlot) index.findAddress(address, hash)
    val base = records.base(address)
    val at = records.offset(address)
    if (undo != null && Platform.getInt(base, at + Modified) < undo.epoch) logOld(undo, base, at)
    isChanging = true
    index.removeFound()
    if (prefixes.isDefined) prefixes.get.unlink(address)
    records.bury(address, epoch)
    isChanging = false
  }

  /** Copies of the entries whose key begins with a prefix, in no order. */
  def prefixScan(
      prefix: UnsafeRow,
      keyFields: Int,
      valueFields: Int): Array[(UnsafeRow, UnsafeRow)] = synchronized {
    val entries = Array.newBuilder[(UnsafeRow, UnsafeRow)]
    var address = prefixes.get.head(prefix)
    while (address != 0) {
      val value = verifiedValue(address, valueFields)
      entries += ((copyOfKey(address, keyFields), value))
      address = records.getLong(address, PrefixNext)
    }
    entries.result()
  }

  /** What the map holds now. It stays readable, by any thread, until it is released. */
  def openView(): MapView =
    synchronized(opened(new MapView(this, records.contents(), epoch, records.headerBytes)))

  /**
   * To be called before `openOldRows`: reads the times of what is new since it was called last for
   * the same time. That may be all entries, so it takes the map's lock page by page. Whoever has
   * the lock in between reads only: the caller is who changes the map.
   */
  def readTimes(time: RowTime, keyFields: Int, valueFields: Int): Unit = {
    if (!zones.exists(_.times.isOf(time, keyFields, valueFields))) {
      zones = Some(new ZoneMap(records, new TimeReader(time, keyFields, valueFields)))
    }
    records.numbers.foreach(number => synchronized(zones.get.readNew(number)))
  }

  /** As `openView`, of the entries whose time is `upTo` or before. */
  def openOldRows(upTo: Long): MapView = synchronized {
    val pages = records.contents(zones.get.takeOld(_, upTo))
    // Other threads may read a view, so it has a reader of its own.
    val old = new OldRows(zones.get.times.another(), upTo)
    opened(new MapView(this, pages, epoch, records.headerBytes, Some(old)))
  }

  /** As `openOldRows`, for whoever removes them. */
  def oldRecords(upTo: Long, keyFields: Int): OldRecords =
    new OldRecords(this, records, index, zones.get, upTo, keyFields)

  private def opened(view: MapView): MapView = {
    views.open(epoch)
    beginEpoch()
    view
  }

  private[cowstate] def release(view: MapView): Unit = synchronized {
    views.release(view.epoch)
    if (memory.isClosed) close()
  }

  /**
   * To be called after bytes have died: how many, if that may be more than a little. The longer it
   * waits, the less is alive in a page that it frees; dead bytes bound the wait.
   */
  def compactIfDue(diedBytes: Long = 0): Unit = synchronized {
    if (records.deadBytes >= compactAt) {
      compact(math.max(diedBytes, MaxCompactBytes))
      val live = records.allocatedBytes - records.deadBytes
      compactAt = records.deadBytes + math.min(math.max(live, MinCompactBytes), MaxCompactBytes)
    }
  }

  /** Free a page that is dead as a whole. No record moves. */
  private[cowstate] def dropIfDead(number: Int): Unit = synchronized {
    isChanging = true
    records.dropIfDead(number, epoch)
    isChanging = false
  }

  /**
   * Free pages that are dead by more than half, copying at most about `maxBytes`. The copies are
   * granted whatever the limit is: more than they take is freed.
   */
  def compact(maxBytes: Long): Unit = synchronized {
    account.withoutLimit {
      isChanging = true
      var left = maxBytes
      var number = records.pollSparse()
      while (number != 0) {
        records.foreachLive(number) { address =>
          left -= records.sizeOf(address)
          move(address)
        }
        records.drop(number, epoch)
        number = if (left > 0) records.pollSparse() else 0
      }
      isChanging = false
    }
  }

  /** Search the table, unless a prefetch has. */
  private def find(key: UnsafeRow, hash: Int): Long = {
    val likely = fetched.of(hash)
    hasSlot = false
    if (likely == KeyIndex.Absent) 0L
    else if (isRecordOf(likely, key)) likely
    else {
      hasSlot = true
      index.find(key, hash)
    }
  }

  /** As `find`, of a key that may have been read before. */
  private def findToWrite(key: UnsafeRow, hash: Int): Long = {
    if (finds.needsWindow) prefetches.ofWindow(finds)
    val first = finds.first
    val last = finds.last
    hasSlot = false
    if (isRecordOf(first, key)) {
      finds.tookFirst()
      first
    } else if (isRecordOf(last, key)) {
      finds.tookLast()
      last
    } else {
      if (first != 0) finds.missed()
      find(key, hash)
    }
  }

  private def isRecordOf(address: Long, key: UnsafeRow): Boolean =
    address != 0 && records.isAlive(address) && records.hasKey(address, key)

  private def insert(key: UnsafeRow, hash: Int, value: UnsafeRow, checksum: Int): Unit = {
    index.prepareInsert()
    val address = append(key, value, checksum)
    if (prefixes.isDefined) link(address, key)
    index.insert(hash, address)
    fetched.added(hash, address)
  }

  private def link(address: Long, key: UnsafeRow): Unit =
    try prefixes.get.link(address, key)
    catch {
      case e: Throwable =>
        records.takeBack(address)
        throw e
    }

  private def append(key: UnsafeRow, value: UnsafeRow, checksum: Int): Long = {
    val address = records.allocate(key.getSizeInBytes, value.getSizeInBytes, epoch)
    val base = records.base(address)
    val at = records.offset(address)
    Platform.putInt(base, at + Modified, epoch)
    Platform.putInt(base, at + Checksum, checksum)
    Words.copy(key, base, at + records.headerBytes)
    Words.copy(value, base, at + records.headerBytes + key.getSizeInBytes)
    address
  }

  /** A new record in the place of one whose slot was found. */
  private def replaceFound(old: Long, by: Long): Unit = {
    index.replaceFound(by)
    prefixes.foreach(_.replace(old, by))
  }

  /** Move a record to the tail, as it is. Its page is dropped afterwards. */
  private def move(address: Long): Unit = {
    val copy = records.allocate(
      records.getInt(address, KeyLength), records.getInt(address, ValueLength), epoch)
    Platform.copyMemory(
      records.base(address), records.offset(address), records.base(copy), records.offset(copy),
      records.sizeOf(address))
    index.findAddress(address, hashOf(pointToKey(address)))
    replaceFound(address, copy)
  }

  private def logOld(undo: UndoLog, base: AnyRef, at: Long): Unit =
    undo.logOld(
      base, at + records.headerBytes, Platform.getInt(base, at + KeyLength),
      Platform.getInt(base, at + ValueLength), Platform.getInt(base, at + Checksum))

  private def pointToKey(address: Long): UnsafeRow = {
    scratchKey.pointTo(
      records.base(address), records.offset(address) + records.headerBytes,
      records.getInt(address, KeyLength))
    scratchKey
  }

  private def copyOfKey(address: Long, fields: Int): UnsafeRow =
    rowOf(
      records.base(address), records.offset(address) + records.headerBytes,
      records.getInt(address, KeyLength), fields)

  private def verifiedValue(address: Long, fields: Int): UnsafeRow = {
    val value = valueAt(address, fields)
    rowOf(value.getBaseObject, value.getBaseOffset, value.getSizeInBytes, fields)
  }

  private def verify(address: Long): Unit = {
    val base = records.base(address)
    val at = records.offset(address)
    checksums.read(
      base, at + records.headerBytes,
      Platform.getInt(base, at + KeyLength) + Platform.getInt(base, at + ValueLength),
      Platform.getInt(base, at + Checksum))
  }

  /** Verified, and where it is in the map. The row is used at once. */
  private def valueAt(address: Long, fields: Int): UnsafeRow = {
    verify(address)
    val base = records.base(address)
    val at = records.offset(address)
    val keyLength = Platform.getInt(base, at + KeyLength)
    val valueLength = Platform.getInt(base, at + ValueLength)
    if (scratchValue.numFields != fields) scratchValue = new UnsafeRow(fields)
    scratchValue.pointTo(base, at + records.headerBytes + keyLength, valueLength)
    scratchValue
  }

  /** For tests: every live record is in a slot, once, and the counts are right. */
  def checkInvariants(): Unit = synchronized {
    var seen = 0
    index.foreach { (address, hashBits) =>
      val hash = hashOf(pointToKey(address))
      assert(records.isAlive(address), "a dead record is in a slot")
      assert(hash >>> 3 == hashBits, "a slot has the hash of another key")
      index.findAddress(address, hash)
      assert(fetched.of(hash) != KeyIndex.Absent, "a key that is there is noted as absent")
      seen += 1
    }
    assert(seen == size, s"$seen records in slots, $size entries")
    assert(following == 0 || records.mayBegin(following), "no record begins behind the last read")
    assert(fetched.addresses.forall(records.mayBegin), "no record begins where a key was fetched")
    var live = 0
    var liveBytes = 0L
    records.numbers.foreach(number =>
      records.foreachLive(number) { address =>
        live += 1
        liveBytes += records.sizeOf(address)
      })
    assert(live == size, s"$live live records, $size entries")
    assert(liveBytes == records.liveBytes, s"$liveBytes live bytes, ${records.liveBytes} counted")
  }
}

private[cowstate] object CopyOnWritePagedMap {
  private val MinCompactBytes = 64L << 10
  private val MaxCompactBytes = 4L << 20

  /** A row of its own with these bytes. */
  def rowOf(base: AnyRef, offset: Long, length: Int, fields: Int): UnsafeRow = {
    val bytes = new Array[Byte](length)
    Words.copy(base, offset, bytes, Platform.BYTE_ARRAY_OFFSET, length)
    val row = new UnsafeRow(fields)
    row.pointTo(bytes, length)
    row
  }
}
