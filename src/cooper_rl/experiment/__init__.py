"""Arms x seeds from one start, and one page.

run      the whole comparison      arms     what an arm sets      jobs  the work of one process
summary  curves and intervals      page     HTML              texts the page's completions
"""
