"""Several processes that train together.

ranks  collective calls      open  the ranks of a configuration      zero  DeepSpeed
trainable  the protocol of a model with what steps it
"""
