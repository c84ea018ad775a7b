"""Several processes that train together.

ranks  collective calls      open  the ranks of a configuration      zero  DeepSpeed
"""
