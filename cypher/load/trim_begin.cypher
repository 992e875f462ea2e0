// purpose: Say that epochs have less detail from now on, before it is removed; hide those that go altogether. Parameters
//   but for `run` are columns: lists of one value per epoch.
// param run: id of the run
// param epoch: number of the epoch
// param detail: how much of it stays: summary, waits or critical; null where it goes altogether

UNWIND range(0, size($epoch) - 1) AS i
MATCH (epoch:Epoch {run: $run, epoch: $epoch[i]})
SET epoch.trims = coalesce(epoch.trims, epoch.detail),
    epoch.detail = coalesce($detail[i], epoch.detail),
    epoch.published = $detail[i] IS NOT NULL
WITH epoch
MATCH (epoch)-[end:FIRST|LAST]->(:Event)
DELETE end;
