package org.apache.spark.sql.execution.streaming.state.cowstate.map

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.cowstate.bytes.{RowChecksums, Words}
import org.apache.spark.sql.execution.streaming.state.cowstate.memory.StateMemory
import org.apache.spark.unsafe.Platform

/**
 * Copy-on-write map with incremental rehash (docs/explanation/provider.md), on pages of bytes.
 *
 * RecordPages hold the rows. A KeyIndex leads from a key to the key's record. No Java object stands
 * for an entry.
 *
 * Time is counted in epochs. Opening a view ends an epoch: the view shares all records written
 * until then. A change to a shared record goes to a new record, and the view keeps reading the old
 * record. A record that no view shares is changed in place, if the value keeps its length and if
 * the memory makes changes in place cheap. MapView explains why views stay right.
 *
 * Dead records are freed page by page: when enough bytes have died, the live records move out of
 * pages that are dead by more than half. So freeing a byte costs copying at most one byte.
 *
 * With `prefixOf`, links connect the records whose keys have the same prefix, and `prefixScan`
 * follows the links.
 *
 * Each method that reads or writes bytes takes the lock of the map. Memory is unmapped under the
 * same lock. A caller takes the lock around steps that belong together. Any thread may read a view
 * without the lock while the map changes.
 *
 * @param memory    holds the pages and tables
 * @param prefixOf  returns the prefix of a key; the map uses the returned row at once
 * @param checksums checksums of the rows; they decide which results of `get`, `prefixScan` and
 *                  views are verified
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
  /** Least event time of each page, as read by `readTimes`; None before the first call. */
  private var zones: Option[ZoneMap] = None
  /**
   * `following`: the record after the last record read, 0 if there is none. `readsInOrder`: true
   * if reads follow the order of the records.
   */
  private var following = 0L
  private var readsInOrder = false
  /** True if the index has noted the slot of the record just found. */
  private var hasSlot = false
  private var epoch = 1
  private var compactAt = MinCompactBytes
  /** True while table, links and pages do not agree. */
  private var isChanging = false
  private val scratchKey = new UnsafeRow(0)
  private var scratchValue = new UnsafeRow(0)

  def size: Int = index.size
  def currentEpoch: Int = epoch
  /** Bytes of the keys and values. */
  def rowBytes: Long = records.liveBytes - size.toLong * records.headerBytes
  def pageCount: Int = records.pageCount + prefixes.map(_.heads.pageCount).getOrElse(0)
  def deadBytes: Long = records.deadBytes + prefixes.map(_.heads.deadBytes).getOrElse(0L)

  /** Percentage of a rehash that is done; 100 when no rehash is running. */
  def rehashPercent: Int = index.rehashPercent

  /**
   * True if an error, such as a file that could not grow, ended a change half-way. The map then
   * equals none of its versions, and cannot be brought back to any version.
   */
  def isBroken: Boolean = isChanging || prefixes.exists(_.heads.isBroken)

  /** End the epoch and begin the next. Returns the new epoch. */
  def beginEpoch(): Int = synchronized {
    finds.clear()
    fetched.clear()
    following = 0
    records.reuseNumbers()
    prefixes.foreach(_.heads.beginEpoch())
    epoch = Math.incrementExact(epoch)
    epoch
  }

  /** Make room for `expected` entries, if memory permits. Call before filling the map. */
  def reserve(expected: Long): Unit = synchronized(index.reserve(expected))

  /**
   * Make the table smaller if far fewer entries came than expected. Call after filling the map.
   * Making the table smaller takes time proportional to `size`, so a table of twice the needed size
   * stays as it is.
   */
  def trim(): Unit = synchronized(index.trim())

  /**
   * Give all memory back, except for pages that views read. Afterwards the map cannot be used, but
   * open views can still be read and released.
   */
  def close(): Unit = synchronized {
    fetched.clear()
    memory.close(isRead = views.newest > 0)
  }

  /** Return a copy of a key's value, null if the key is absent. */
  def get(key: UnsafeRow, valueFields: Int): UnsafeRow = synchronized {
    val address = findToRead(key)
    if (address == 0) null
    else {
      finds.note(address)
      verifiedValue(address, valueFields)
    }
  }

  /**
   * Find a key's record as `find` does, but first try the record after the last record read. A join
   * looks for old rows in the order of arrival, and the records lie in this order. So the next
   * record is likely the key's record. The next record is also in the processor's cache, while the
   * key's line of the hash table probably is not.
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

  /** Put a row whose key is absent from the map. */
  def add(key: UnsafeRow, hash: Int, value: UnsafeRow, checksum: Int): Unit =
    synchronized(insert(key, hash, value, checksum))

  /**
   * Fetch the memory that looking up these keys will read. Call before looking up many keys.
   * Returns the number of records found. Sets `isThere` for each key, unless `isThere` is null.
   */
  def prefetch(hashes: Array[Int], count: Int, isThere: Array[Boolean] = null): Int =
    synchronized(prefetches.ofKeys(hashes, count, isThere))

  /** Put a value. The replaced value goes to `undo`, unless `undo` is null. */
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

  /**
   * Remove a key. Returns true if the key was present. The value goes to `undo`, unless `undo` is
   * null.
   */
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
   * Remove the record at an address; `hash` is the hash of the record's key. No other record moves,
   * so call `compactIfDue` after a series of removals.
   */
  def removeAt(address: Long, hash: Int, undo: UndoLog): Unit = synchronized {
    verify(address)
    hasSlot = false
    removeRecord(address, hash, undo)
  }

  /**
   * Remove a key if its value fulfils a condition. The condition sees the value in the map's
   * memory. No other record moves: call `compactIfDue` afterwards, as with `removeAt`.
   */
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

  /** Return copies of the entries whose key begins with a prefix, in no order. */
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

  /** Open a view of the map's present entries. Any thread may read the view until its release. */
  def openView(): MapView =
    synchronized(opened(new MapView(this, records.contents(), epoch, records.headerBytes)))

  /**
   * Read the event times of the entries added since the last call. Call before `openOldRows`. The
   * first call reads the event times of all entries, and so does a call with another `time` than
   * the last call. Because this may take long, the method takes the lock of the map page by page.
   * Between two pages another thread may only read the map: the caller is the only writer.
   */
  def readTimes(time: RowTime, keyFields: Int, valueFields: Int): Unit = {
    if (!zones.exists(_.times.isOf(time, keyFields, valueFields))) {
      zones = Some(new ZoneMap(records, new TimeReader(time, keyFields, valueFields)))
    }
    records.numbers.foreach(number => synchronized(zones.get.readNew(number)))
  }

  /** Open a view, as `openView` does, of the entries whose time is `upTo` or before. */
  def openOldRows(upTo: Long): MapView = synchronized {
    val pages = records.contents(zones.get.takeOld(_, upTo))
    // The old rows get a TimeReader of their own: other threads may read the view.
    val old = new OldRows(zones.get.times.another(), upTo)
    opened(new MapView(this, pages, epoch, records.headerBytes, Some(old)))
  }

  /** Return the records that `openOldRows` would show, for a caller that removes them. */
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
   * Compact if the dead bytes have reached a limit. Call after records died. Waiting for the limit
   * saves copies, because more records of the freed pages are dead by then. After a large removal,
   * pass the number of bytes that died as `diedBytes`: the call may then copy as many bytes, even
   * if the number is above `MaxCompactBytes`.
   */
  def compactIfDue(diedBytes: Long = 0): Unit = synchronized {
    if (records.deadBytes >= compactAt) {
      compact(math.max(diedBytes, MaxCompactBytes))
      val live = records.allocatedBytes - records.deadBytes
      compactAt = records.deadBytes + math.min(math.max(live, MinCompactBytes), MaxCompactBytes)
    }
  }

  /** Free a page if all of its records are dead. No record moves. */
  private[cowstate] def dropIfDead(number: Int): Unit = synchronized {
    isChanging = true
    records.dropIfDead(number, epoch)
    isChanging = false
  }

  /**
   * Free pages that are dead by more than half, copying about `maxBytes` at most. The memory limit
   * does not apply to the copies: compaction frees more bytes than the copies take.
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

  /** Find a key's record. Skips the search in the table if a prefetch has the answer. */
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

  /** Find a key's record as `find` does, but first try the records of keys read recently. */
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

  /** Let a new record take the place of a record whose slot was found. */
  private def replaceFound(old: Long, by: Long): Unit = {
    index.replaceFound(by)
    prefixes.foreach(_.replace(old, by))
  }

  /** Copy a record to the tail, unchanged. The caller drops the record's page afterwards. */
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
    Words.rowOf(
      records.base(address), records.offset(address) + records.headerBytes,
      records.getInt(address, KeyLength), fields)

  private def verifiedValue(address: Long, fields: Int): UnsafeRow = {
    val value = valueAt(address, fields)
    Words.rowOf(value.getBaseObject, value.getBaseOffset, value.getSizeInBytes, fields)
  }

  private def verify(address: Long): Unit = {
    val base = records.base(address)
    val at = records.offset(address)
    checksums.read(
      base, at + records.headerBytes,
      Platform.getInt(base, at + KeyLength) + Platform.getInt(base, at + ValueLength),
      Platform.getInt(base, at + Checksum))
  }

  /** Verify a value and return it in the map's memory. The caller uses the row at once. */
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

  /** Check, for tests: every live record is in exactly one slot, and the counts are right. */
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
}
