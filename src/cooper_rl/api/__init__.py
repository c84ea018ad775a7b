"""The public interface, `from cooper_rl import ...`; docs/reference/python_api.md.

verify         verdicts by rule                       labels        rule and judge on rows in memory
models         VerifyRM: load, train                  reward        CooperReward, for any trainer
reward_run     a reward that learns, in one process   reward_state  its checkpoints
reward_config  its settings                           rows, groups  trainers' columns, by problem
client         RewardClient, for a server of rewards
processes      several processes of a trainer         trl           TRL's calls and checkpoints
"""
