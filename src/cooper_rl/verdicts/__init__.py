"""Is a completion correct? Verifiers, judges and how their verdicts become labels.

rule     the rule verifier of mathematics          programs  the one of programs, which runs their tests
worker   what its processes do                    program_worker  what those do
pool     worker processes that can be killed
hybrid   rule verdict and judge verdict become a label
votes    who is asked about what, and its cost        journal  verdicts that survive a kill
panel    the majority of several judges
agreement  how far voters agree, what labels lose     answer_type  the kind of a reference answer
audit    the error of labels that nobody checked
answers  comparing two answers: extraction, parsing, equality
"""
