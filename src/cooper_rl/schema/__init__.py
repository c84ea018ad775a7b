"""Records that cross a file or a process: pydantic, frozen, unknown keys refused.

data    problems, completions, labels, examples, pairs
reports  what a stage tells of its work
runs    how a run ended; the registry's champions
step_metrics  the numbers of a step, with their flat names
stages  names of stages and of what they write
texts   halves of surrogate pairs, which no file can hold
paths   kinds of paths in a stage's signature
red_team  attack texts and what was measured of them
"""
