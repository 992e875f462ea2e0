"""All analyses of this package, in the order in which they are listed: what they are called, and what they do.

Made from their definitions: change them, and run `python -m pag_graph.analyses.indexing`.
"""

INDEX = {
    "why": "Say in plain words why a window took as long as it did, and what would help.",
    "critical-path": "Show the chain of activities that makes the window as long as it is.",
    "profile": "Divide the critical path by type, operator, worker and pair of workers.",
    "profile-rounds": "Divide the critical paths of all rounds, with percentiles over the rounds.",
    "sample": "Estimate from some rounds what the critical paths and waits of all rounds are made of.",
    "imbalance": "Compare the time of each activity on the critical path with its mean over the workers.",
    "slack": "Say how much longer each activity may last before the window gets longer.",
    "what-if": "Predict how long the window would be if something took more or less time.",
    "causal-profile": "Say by how much the window would be shorter if an operator, worker or link were faster.",
    "advise": "Say where one more thread would make the window shorter, and by how much.",
    "advise-ports": "Say how much of each thread's time lies downstream of each operator.",
    "participation": "Say how many of all paths through the window lead over each activity.",
    "k-hops": "Summarise the activities within k hops before the ends of the window's waits.",
    "k-hops-st2": "Count k-hops of all epochs as SnailTrail 2 does, by joining on times.",
    "metrics": "Count activities, their time and records per epoch, pair of workers and type.",
    "matrix": "Count the messages and records that each worker sent to each other worker.",
    "skew": "Compare the records that each worker read in each operator.",
    "invariants": "List the violations of limits on epochs, messages, operators and progress.",
    "diff": "Divide the difference of two windows, or of two runs, among the activities on their critical paths.",
    "waits": "Sum the waits in a window by the messages that ended them.",
    "blame": "Charge the waiting in a window to what other workers did in that time.",
    "stragglers": "Compare how much each worker worked, and how long the others waited for it.",
    "traffic": "Sum the messages that were sent from worker to worker in a window.",
}
