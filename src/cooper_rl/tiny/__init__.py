"""The laptop world: problems, tokenizer and models trained from scratch in seconds.

problems   generated word problems       meaning       what a person would accept as correct
solutions  solutions and slips           texts         prompts and solutions as training texts
tokenizer  its tokenizer                 architecture  its models
warm_up    supervised training           hub           all models of a run
judge      an exact judge that errs on purpose         assistant  a rewriter of solutions
world      what a domain's world is made of            story_world  that of mathematics
tasks      generated programs and slips                program_world  that of programs
program_texts  what its models learn from
"""
