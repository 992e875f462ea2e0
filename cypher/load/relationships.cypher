// purpose: Add activities and messages of one type; the loader puts a type of the closed vocabulary for ACTIVITY_TYPE.
//   Parameters but for `run` are columns: lists of one value per relationship.
// param run: id of the run
// param src: event where the activity starts
// param dst: event where it ends
// param start_ns: time of its start
// param duration_ns: how long it takes
// param epoch: epoch of its end
// param src_epoch: epoch of its start
// param operator: operator that was active, or null
// param activation: event that started the activation, or null
// param channel: channel of a message, or null
// param records: records in the message, or read in the activation; or null
// param bytes: size of the message, or null
// param send_buffer_ns: time in the sender's buffer, or null
// param receive_buffer_ns: time between arrival and read, or null
// param read: event that read the message, or null
// param flags: EdgeFlags
// param alternatives: other messages that may have ended the wait instead
// param critical: true on the critical path of the epoch, else null

UNWIND range(0, size($src) - 1) AS i
MATCH (source:Event {run: $run, id: $src[i]})
MATCH (target:Event {run: $run, id: $dst[i]})
MERGE (source)-[activity:ACTIVITY_TYPE]->(target)
SET activity.start_ns = $start_ns[i],
    activity.duration_ns = $duration_ns[i],
    activity.epoch = $epoch[i],
    activity.src_epoch = $src_epoch[i],
    activity.operator = $operator[i],
    activity.activation = $activation[i],
    activity.channel = $channel[i],
    activity.records = $records[i],
    activity.bytes = $bytes[i],
    activity.send_buffer_ns = $send_buffer_ns[i],
    activity.receive_buffer_ns = $receive_buffer_ns[i],
    activity.read = $read[i],
    activity.flags = $flags[i],
    activity.alternatives = $alternatives[i],
    activity.critical = coalesce($critical[i], activity.critical);
