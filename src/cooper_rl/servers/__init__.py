"""Services: those that the product calls, and its own.

open            judge and assistant of a configuration, and whether their servers answer
judge           completions to verdicts           assistant  solutions to wrong ones
chat            any OpenAI-compatible server
budget          what is asked, what it costs      pacing   fewer requests while a server limits its rate
answers         of a bounded size, unpacked too
verify_rm_http  VerifyRM behind HTTP              batcher  requests that wait are scored together
guard  deadline  numbers   token and limits; time limits; Prometheus metrics of a server
pages           health, metrics and refusals      listening  how a server listens, and how it ends
"""
