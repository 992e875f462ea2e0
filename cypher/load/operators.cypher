// purpose: Add the operators of a run. Parameters but for `run` are columns: lists of one value per operator.
// param run: id of the run
// param operator: number of the operator
// param address: its path in the dataflow
// param name: name given by the program

UNWIND range(0, size($operator) - 1) AS i
MERGE (operator:Operator {run: $run, operator: $operator[i]})
SET operator.address = $address[i],
    operator.name = $name[i];
