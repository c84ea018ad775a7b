"""Generation of completions.

base      the protocol and its double         open  the engine of a configuration
hf        transformers                        vllm  vLLM in process
decoding  one token for every row at a time   separate  an engine in a process of its own
"""
