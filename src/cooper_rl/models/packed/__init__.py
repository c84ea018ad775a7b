"""Forward passes over sequences that stand side by side without padding.

forward    Qwen2, Qwen3 and Llama, layer by layer      attention  within each sequence
norms      RMSNorm                                     packing    sequences to batches that share prompts
varlen     attention on a GPU, in one call          batching   padded batches for all other architectures
fused      on a GPU: norms, gates, angles, softmax
"""
