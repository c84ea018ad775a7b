"""One frozen model per section; `load.load(preset, overrides)` is the way in.

root            the whole configuration          load     presets, overrides, errors
section         the base of every section
data  models  engine  cooper  infrastructure     the sections
serve  VerifyRM behind HTTP                      names    keys that a program can add
kubernetes  texts that Kubernetes reads
red_team  the search for attacks                 sources  where each value comes from
"""
