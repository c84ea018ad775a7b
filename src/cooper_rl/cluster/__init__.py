"""Co-training as a Kubeflow TrainJob.

sdk  the Kubeflow SDK's client      trainjob  the job's specification      launch  start and follow it
task  the task that a person sees failing: its message      failures  the same message for the run's summary
leftovers  jobs that go on after their run
"""
