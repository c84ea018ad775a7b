"""Checkpoints: written aside, made visible last, verified when read.

state      a run's models and optimisers as files           manifest   hash of every file
store      publish, find, tidy                              writer     in the background
reference  a checkpoint named by its address                registry   champions
ownership  what a place has claimed, and may remove         search     which checkpoint is continued
identity   which run a checkpoint belongs to                versions   what else numbers depend on
reading    manifest and files, verified                     run_state  what steps need of the past
logs       rows of every step, in pieces           clearing   a place that nobody needs any more
model_registry  champions in MLflow
"""
