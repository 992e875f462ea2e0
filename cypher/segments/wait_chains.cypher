// purpose: Chains of waits across workers, of any length: a worker waited for one that had waited for another one, and
//   so on.
// param run: id of the run
// param epoch: number of the epoch
// param limit integer = 10: largest number of chains
// returns: one row per chain that ends with one of the window's waits, longest first: chain (its workers, the last waiter
//   first, each after the one that released it), messages, waited_ns (of the last wait), first_ns (when the first message
//   of the chain was sent), end_ns (when the last wait ended), chain_ns (between the two), operators (most active in the
//   stretches between, latest first). A chain goes back to the window's start, or to a wait that no message ended.
// example: skewed --epoch 4 --limit 3
//   chain  | messages | waited_ns | first_ns | end_ns   | chain_ns | operators
//   [3, 0] | 1        | 2665553   | 18534726 | 18534726 | 0        | ["FlatMap"]
//   [1, 0] | 1        | 2641954   | 18534726 | 18534726 | 0        | ["FlatMap"]
//   [2, 0] | 1        | 2632376   | 18534726 | 18534726 | 0        | ["FlatMap"]
//   3 rows

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true})
// Bound before the path: a property of the window would be looked up after each way has been walked to its end.
WITH window.start_ns AS opens_ns, window.end_ns AS closes_ns
MATCH (at:Worker {run: $run})
WHERE at.worker >= 0
MATCH (awake:Segment {run: $run, worker: at.worker})
WHERE awake.start_ns > opens_ns AND awake.start_ns <= closes_ns
// At most one message released a segment: there is one way back from each.
MATCH (awake)((later:Segment)<-[message:RELEASED]-(earlier:Segment) WHERE message.sent_ns > opens_ns)+(origin:Segment)
WHERE NOT EXISTS { (origin)<-[before:RELEASED]-(:Segment) WHERE before.sent_ns > opens_ns }
WITH awake, message, earlier, [awake] + earlier AS segments
ORDER BY size(message) DESC, head(message).waited_ns DESC, awake.id
LIMIT $limit
RETURN [segment IN segments | segment.worker] AS chain,
       size(message) AS messages,
       head(message).waited_ns AS waited_ns,
       last(message).sent_ns AS first_ns,
       awake.start_ns AS end_ns,
       awake.start_ns - last(message).sent_ns AS chain_ns,
       [segment IN earlier |
         head(COLLECT { MATCH (o:Operator {run: $run, operator: head(segment.operators)}) RETURN o.name })] AS operators
ORDER BY messages DESC, waited_ns DESC, end_ns;
