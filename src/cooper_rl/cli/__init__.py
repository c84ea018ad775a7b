"""The command line: one sub-command per stage, and a few beside them.

stages      a sub-command for every stage      options     options that several commands share
settings    keys that `--help` lists           experiment  arms x seeds
watch       the page of a run while it goes on
plan        memory before the start            serve       servers of scores and of rewards
presets     presets, and the merged configuration with its sources
completion  completion scripts of shells        slips       the name that an unknown word may stand for
screen      standard output that is full, closed or unread
starting    Ctrl-C during the imports
in_job      what the processes of a TrainJob run
pipelines   `python -m pipelines` for those who installed the wheel
"""
