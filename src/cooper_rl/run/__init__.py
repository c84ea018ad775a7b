"""One iteration of co-training around the steps, and the order of the stages.

plan       where it stands: one exchange       iteration  its steps, on every rank
alarms     what the monitor's alarm does
chain      which output is whose input        build      everything that steps use
loop       train, probe, evaluate, save       recorder   metrics, trackers, checkpoints
evaluator  evaluation while training          identity   what makes two runs or evaluations alike
stopping   SIGTERM                            memory     does it fit on the GPU, how fast can it be?
launching  a TrainJob's inputs and result     promotion  rules of the registry
tracker    TensorBoard, MLflow, W&B           fit_checkpoints  VerifyRM's training goes on
"""
