"""All analyses of this package, in the order in which they are listed.

Made from their definitions: change them, and run `python -m pag_graph.analyses.indexing`.
"""

from pag_graph.analyses.definition import Entry

INDEX: tuple[Entry, ...] = (
    Entry(
        name="why",
        help="Say in plain words why a window took as long as it did, and what would help.",
        module="pag_graph.analyses.why",
    ),
    Entry(
        name="critical-path",
        help="Show the chain of activities that a window's length is made of.",
        module="pag_graph.analyses.critical_path",
    ),
    Entry(
        name="profile",
        help="Divide the critical path by type, operator, worker and pair of workers.",
        module="pag_graph.analyses.profile",
    ),
    Entry(
        name="profile-rounds",
        help="Divide the critical paths of all rounds, with percentiles over the rounds.",
        module="pag_graph.analyses.profile_rounds",
    ),
    Entry(
        name="sample",
        help="Estimate from some rounds what the critical paths and waits of all rounds are made of.",
        module="pag_graph.analyses.sample",
    ),
    Entry(
        name="imbalance",
        help="Compare the time of each activity on the critical path with its mean over the workers.",
        module="pag_graph.analyses.imbalance",
    ),
    Entry(
        name="slack",
        help="Say by how much each activity may last longer before the window does.",
        module="pag_graph.analyses.slack",
    ),
    Entry(
        name="what-if",
        help="Predict how long the window would be if something took more or less time.",
        module="pag_graph.analyses.what_if",
    ),
    Entry(
        name="causal-profile",
        help="Say by how much the window would be shorter if an operator, worker or link were faster.",
        module="pag_graph.analyses.causal_profile",
    ),
    Entry(
        name="participation",
        help="Say how many of all paths through the window lead over each activity.",
        module="pag_graph.analyses.participation",
    ),
    Entry(
        name="k-hops",
        help="Summarise the activities within k hops before the ends of the window's waits.",
        module="pag_graph.analyses.k_hops",
    ),
    Entry(
        name="k-hops-st2",
        help="Count k-hops of all epochs as SnailTrail 2 does, by joining on times.",
        module="pag_graph.analyses.k_hops_st2",
    ),
    Entry(
        name="metrics",
        help="Count activities, their time and records per epoch, pair of workers and type.",
        module="pag_graph.analyses.metrics",
    ),
    Entry(
        name="matrix",
        help="Count the messages and records that went from each worker to each other one.",
        module="pag_graph.analyses.matrix",
    ),
    Entry(
        name="skew",
        help="Compare the records that each worker read in each operator.",
        module="pag_graph.analyses.skew",
    ),
    Entry(
        name="invariants",
        help="List the violations of limits on epochs, messages, operators and progress.",
        module="pag_graph.analyses.invariants",
    ),
    Entry(
        name="diff",
        help="Divide the difference of two windows, or of two runs, among the activities on their critical paths.",
        module="pag_graph.analyses.diff",
    ),
    Entry(
        name="waits",
        help="Sum the waits in a window by the messages that ended them.",
        module="pag_graph.analyses.waits",
    ),
    Entry(
        name="blame",
        help="Charge the waiting in a window to what other workers did meanwhile.",
        module="pag_graph.analyses.blame",
    ),
    Entry(
        name="stragglers",
        help="Compare how much each worker worked, and how long the others waited for it.",
        module="pag_graph.analyses.stragglers",
    ),
    Entry(
        name="traffic",
        help="Sum the messages that were sent from worker to worker in a window.",
        module="pag_graph.analyses.traffic",
    ),
)
