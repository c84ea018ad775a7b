"""Records on disk: reading, writing, and the layouts that data comes in.

files           JSONL, Parquet and tables; an error names file, row and field
tables          CSV and TSV                        standard_input  the path `-`
parquet         a Parquet file in bounded memory   batches         a stream in parts
layouts         GSM8K, MATH, veRL and other layouts of problems
answer_text     a reference answer that is a number, or a list of one
messages        chat messages as columns           one_file        problems and completions in one file
verify_formats  layouts of labelled examples
step_metrics    `metrics.jsonl`: the numbers of every step
live            the steps of a run while it goes on
rejected        rows that were set aside, with their reason
model_set       the folder that `prepare_models` writes
written         folders that are replaced only where nothing of others lies in them
"""
