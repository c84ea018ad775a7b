"""Labelling of any number of rows in bounded memory: rows in, decisions kept as they come, splits out.

rows     completions with their problems, checked and on disk    spool   records on disk
splits   train, validation and test by question                  tally   the numbers of the report
workspace  what one labelling works on                           voters  who is asked, batch by batch
outputs  the files that labelling writes                         kept    verdicts in an object store
shards   one labelling in several pods                           merging what their pods said, put together
"""
