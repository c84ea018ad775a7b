"""`cooper-rl serve --learn`: rewards that learn, over HTTP; docs/how-to/reward_service.md.

http      requests and answers          openrlhf  the protocol of OpenRLHF
runs      all runs of a server          run       one of them: scores, answers, then learns
requests  what a run is asked           journal   what was answered, on disk
numbers   Prometheus metrics
"""
