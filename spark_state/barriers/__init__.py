"""Assignment of records to epochs, from the barriers of a stream's channels. Pure.

A channel delivers the records of one writer in order, and a barrier for each epoch between the
records. Records before the barrier of epoch n belong to epochs up to n; records after the barrier
belong to later epochs. The input gate merges several channels. In mode `exactly_once`, the gate
returns all records of an epoch, and no record of a later epoch, before the gate reports the epoch
as aligned. In mode `at_least_once`, the gate returns every record on arrival.

    channel_event   input: records, barriers, the end of a channel
    epoch_outcome   decision: an epoch is aligned, or never will be aligned
    aligned_barrier_handler, barrier_tracker    the decisions in the two modes
    input_gate      events in, records and outcomes out

No clock, socket, thread or I/O: the caller reads the channels and passes the events in. Events of
channels that are ahead of the current epoch wait in memory. Source of the algorithm: Flink 1.9,
BarrierBuffer and BarrierTracker.
"""
