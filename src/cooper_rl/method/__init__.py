"""The method as pure functions over records and tensors: no server, store, engine or model library.

prompts      the text that a model sees              advantages  rewards relative to their group
losses       policy loss, pair loss                  mismatch    engine against trainer
metrics      accuracy, AUROC, calibration            intervals   confidence intervals
monitor      the hacking alarm                       ordering    are right completions paid more?
questions    which questions two sets share         shortcuts   can pairs be told apart without reading?
pass_at_k    does one of k samples solve it?
"""
