"""Cooper-RL: reinforcement learning with a reward model that learns while the policy learns."""
