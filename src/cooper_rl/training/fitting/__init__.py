"""VerifyRM's supervised training, before any step (rows 4 and 5).

fit_verify_rm  updates, validation, the best weights
fit_state      what an update depends on, for a training that goes on
curriculum     lessons for a model from scratch
plan           which examples an update learns
"""
