"""The phases of one Cooper step; `step` reads top to bottom as the algorithm.

step           the six phases                     rollout        completions and their scores
policy_update  clipped policy gradient            reward_update  pair loss on VerifyRM
pairing        preference pairs                   pair_queue     pairs in the background
gate           harmful reward updates go back     optimizer      AdamW and what steps it
reward_learner rewards, pairs and reward update   refill         other problems for flat groups
auditing       labels of the best paid rollouts   rollout_queue  rollouts of later steps
negative_sources  one class for every source of negatives
fitting        VerifyRM's supervised training, a room of its own
"""
