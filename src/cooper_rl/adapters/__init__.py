"""Function files for trainers, which ask a server of rewards that learn; pages in docs/how-to/trainers/.

verl   veRL's `custom_reward_function`    ms_swift   an ORM plugin of ms-swift
vf     a reward of verifiers' tasks, which prime-rl trains with    trl    a reward function of TRL
"""
