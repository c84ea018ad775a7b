"""Co-training as a Kubeflow TrainJob.

sdk  the Kubeflow SDK's client      trainjob  the job's specification      launch  start and follow it
"""
