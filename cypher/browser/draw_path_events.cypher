// purpose: The events of an epoch's critical path, drawn step by step: the end of the path, or one stretch between
//   waits.
// param run: id of the run
// param epoch: number of the epoch
// param segment integer = null: id of the stretch, as draw_critical_path shows it; default: all
// param limit integer = 60: largest number of steps; the last ones are drawn
// returns: nodes and relationships to draw: begin, step, end

MATCH (window:Epoch {run: $run, epoch: $epoch, published: true, detail: 'full'})
WITH window.start_ns AS opens_ns, window.end_ns AS closes_ns
MATCH (at:Worker {run: $run})
WHERE at.worker >= 0
MATCH (end:Event {run: $run, worker: at.worker})
WHERE end.t_ns > opens_ns AND end.t_ns <= closes_ns AND ($segment IS NULL OR end.segment = $segment)
MATCH (begin:Event)-[step {critical: true}]->(end)
RETURN begin, step, end
ORDER BY end.t_ns DESC, end.id DESC
LIMIT $limit;
