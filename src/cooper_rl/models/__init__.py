"""Policy and VerifyRM: loading, saving, forward passes and the memory that they take.

policy       causal language model            verify_rm  reward model: one logit over a rendered triple
completions  log-probabilities of completions  lora       adapters
precision    fp32 or bf16                     packed     forward passes without padding
shape        dimensions from a configuration  memory     the memory plan of a run
budget       seconds of a step, estimated
folder_check  what a folder lacks, before weights are loaded; hub_check: what a hub name lacks
muon         optimiser for models from scratch
decoys       other reference answers that a score is compared with
template     separators of VerifyRM's input   verify_rm_card  the README.md of a VerifyRM folder
"""
